"""A recorded step on more ranks: what is told of it is the job's, and what was told of the ranks recorded is gone."""

from dataclasses import replace

import pytest

from emu.errors import InputError
from emu.study.training.grown_job import grown_job
from emu.trace.formats.reading import Reading, reading_entry, reading_of
from emu.trace.trace import Group, Trace
from tests.trace.laid import Words, trace_of

READING = Reading(
    format="a profiler", ranks=2, filled_ranks=(1,), devices=("A GPU",), computations=5, streams=1, collectives=3,
    collective_s=0.25, host_time=True, left_out={"copies": 2}, assumptions=("one",), step_times_s=(0.5, 0.75),
)  # fmt: skip
BESIDE = ("command", "emu train"), ("tokens", "300"), ("model_flops", "70"), ("other", "300")


def recorded(*meta: tuple[str, str]) -> Trace:
    words = Words()
    role = words.events(words.compute(1), words.collective(8))
    return trace_of(role, groups=(Group("dp", (0, 1)),), meta=meta)


@pytest.mark.parametrize("factor", [2, 3, 8])
@pytest.mark.parametrize("at", range(len(BESIDE) + 1))
def test_what_was_told_of_the_ranks_recorded_is_gone_and_the_rest_stays(factor: int, at: int) -> None:
    own = ("plan", "dp=2"), reading_entry(READING)
    found = grown_job(recorded(*BESIDE[:at], *own, *BESIDE[at:]), 2 * factor)
    assert found.n_ranks == 2 * factor
    told = dict(found.meta)
    assert "plan" not in told
    assert (told["command"], told["other"]) == ("emu train", "300")
    assert reading_of(found) == replace(READING, step_times_s=(), parts=(), collective_s=0.0)
    assert [key for key, _ in found.meta].count("reading") == 1


def test_a_trace_without_a_reading_gets_none() -> None:
    found = grown_job(recorded(*BESIDE), 4)
    assert reading_of(found) is None
    assert [key for key, _ in found.meta][: len(BESIDE)] == [key for key, _ in BESIDE]


def test_as_many_ranks_are_the_trace_itself_and_no_multiple_is_refused() -> None:
    trace = recorded(reading_entry(READING))
    assert grown_job(trace, 2) is trace
    for ranks in (1, 3, 5, 0):
        with pytest.raises(InputError, match=f"replay: --ranks must be a multiple of the 2 ranks of the trace, got {ranks}"):
            grown_job(trace, ranks)
