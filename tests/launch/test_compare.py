"""`emu compare` as a person uses it."""

import pytest

from emu.trace.trace_file import save
from tests.trace.laid import Words, trace_of


@pytest.fixture
def traces(tmp_path):
    """A trace, and the same with a request that is larger."""
    words, paths = Words(), [tmp_path / name for name in ("a.trace", "b.trace")]
    for path, elements in zip(paths, (8, 9), strict=True):
        save(trace_of(words.events(words.compute(1), words.collective(elements), words.mark())), path)
    return [str(path) for path in paths]


def test_equal_traces_end_with_0(emu, traces) -> None:
    done = emu("compare", traces[0], traces[0])
    assert done.code == 0
    assert done.out.startswith("equal: step 1 of the first trace and step 1 of the second, on each of 2 ranks")
    assert emu("compare", traces[0], traces[0], "--json").json["first"] is None


def test_traces_that_differ_end_with_1_and_say_where(emu, traces) -> None:
    done = emu("compare", *traces)
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[0].startswith("not equal")
    assert lines[1] == "first on rank 0, event 1: request 0 (all_reduce): bytes 32, but 36 in the second"
    assert lines[4].split() == ["world", "2", "2", "64", "72", "0", "0"]
    told = emu("compare", *traces, "--json").json
    assert (told["equal"], told["first"]["event"], told["by_axis"]["world"]["bytes"]) == (False, 1, [64, 72])


def test_a_file_that_is_no_trace_ends_with_2(emu, traces, tmp_path) -> None:
    done = emu("compare", traces[0], str(tmp_path / "none.trace"))
    assert (done.code, done.out) == (2, "")
    assert "cannot read" in done.err


def test_a_step_in_files_of_ranks_is_the_step_in_one_file(emu, tmp_path) -> None:
    words = ("--model", "llama-tiny", "--plan", "tp=2,dp=2", "--global-batch", "4", "--seq", "16", "--device", "h100")
    on = ("--topology", "switch:n=4,bandwidth=50GB/s,latency=500ns", "--algorithm", "all_reduce=ring", "--json")
    own, folder = str(tmp_path / "own.trace"), f"{tmp_path}/new/"
    steps = [emu("estimate", *words, *on, "--trace", path).json for path in (own, folder, str(tmp_path / "named.et"))]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        *(f"trace.{rank}.et" for rank in range(4)),
        "trace.groups.json",
    ]
    for path in (folder, str(tmp_path / "named.et")):
        assert emu("compare", own, path).code == 0
        (replayed,) = emu("replay", path, *on).json
        assert abs(replayed["step_time_s"] - steps[0]["step_time_s"]) < 1e-6
