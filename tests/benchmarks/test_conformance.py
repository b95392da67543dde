"""The table of PyTorch's own tests tells what passed, what failed and what is left out."""

from benchmarks.conformance.__main__ import LEFT_OUT, faults, passed

GLOO = {name: {"how": "passed", "why": "", "started": 3} for name in ("test_a", "test_b", *LEFT_OUT["threads"])}


def ended(**changed):
    """Return how tests ended as gloo has them, without those that are left out, with some changes."""
    return {name: how for name, how in GLOO.items() if name not in LEFT_OUT["processes"]} | changed


def test_what_passes_where_gloo_passes_has_no_fault():
    assert faults("processes", ended(), GLOO) == []


def test_a_test_that_passed_without_its_ranks_has_not_passed():
    idle = ended(test_a={"how": "passed", "why": "", "started": 0})
    assert "test_a" not in passed(idle)
    assert faults("processes", idle, GLOO) == ["processes: test_a passed, and 0 of 3 ranks ran"]


def test_a_failed_and_a_skipped_test_are_named():
    bad = ended(test_a={"how": "failed", "why": "x", "started": 3}, test_b={"how": "skipped", "why": "needs y", "started": 0})
    assert faults("processes", bad, GLOO) == [
        "processes: test_a failed",
        "processes: test_b did not run, and is not named as left out: needs y",
    ]


def test_what_is_left_out_and_passes_is_named():
    name = next(iter(LEFT_OUT["processes"]))
    assert faults("processes", ended(**{name: GLOO[name]}), GLOO) == [f"processes: {name} is named as left out, and passes"]
