import numpy as np
import pytest

from emu.errors import InputError
from emu.trace.trace import Group, Trace
from emu.trace.trace_file import check_trace

WORLD = Group("world", (0, 1))


def trace_of(*roles, role_of_rank=(0, 0)):
    return Trace(
        roles, np.array(role_of_rank, np.int32), (WORLD,), ((0,), (0,)), peak_by_part=np.zeros((len(roles), 4), np.int64)
    )


def refused(trace):
    with pytest.raises(InputError) as error:
        check_trace(trace)
    return str(error.value)


def test_a_trace_that_can_have_run_passes(words):
    floats, halves = words.collective(10), {**words.collective(10), "dtype": "bfloat16", "bytes": 20}
    check_trace(trace_of(words.events(words.compute(1), floats, halves, words.mark([1, 2]))))
    check_trace(trace_of(words.events()))


@pytest.mark.parametrize("flops", [-1.0, float("nan"), float("inf")])
def test_flops_must_be_finite_and_not_below_0(words, flops):
    events = words.events(words.compute(1), words.compute(flops=flops))
    assert refused(trace_of(events)) == f"trace: flops of event 1 of rank 0 (mm) must be finite and 0 or more, got {flops}"


def test_bytes_and_counts_must_fit_one_another(words):
    assert refused(trace_of(words.events({**words.collective(1), "bytes": -8}))) == (
        "trace: bytes of event 0 of rank 0 (all_reduce) must be 0 or more, got -8"
    )
    for count in (-1, 3, 2**62):
        assert refused(trace_of(words.events({**words.collective(2), "count": count}))) == (
            f"trace: count of event 0 of rank 0 (all_reduce) must be 0 or more, and no more than its bytes hold, got {count}"
        )


@pytest.mark.parametrize("wait", [-1, 1, 2])
def test_what_is_waited_for_must_be_earlier(words, wait):
    events = words.events(words.compute(1), words.mark([0, wait]), words.mark())
    assert refused(trace_of(events)) == f"trace: a wait of event 1 of rank 0 (step) must be an earlier event, got {wait}"


def test_the_first_rank_of_the_role_is_named(words):
    good, bad = words.events(words.mark()), words.events(words.compute(-1))
    assert "event 0 of rank 1 (mm)" in refused(trace_of(good, bad, role_of_rank=(0, 1)))
