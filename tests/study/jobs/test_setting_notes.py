"""The sentences on which the figures of a setting rest, and the share of time in which NPUs compute, by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from emu.study.jobs.jobs_request import FAIR, INTENSITY, LANES, LEAST_LOADED, PLANES, PRIORITY, SLICES, WEIGHTS, JobsSetting
from emu.study.jobs.setting_notes import notes_of
from emu.study.jobs.setting_run import computing_share

PLAIN = ("a step of a job begins", "algorithms are those", "a cell of the matrix")
WORDS = {
    INTENSITY: "weights follow from computation",
    SLICES: "a job has a slice of each link",
    LANES: "each job has lanes of its own",
    PLANES: "a job sends over its own planes",
}
WEIGHED = "a message of weight w gets w shares"


def beside(weights: tuple[int, ...] = (1, 1, 1), priorities: tuple[int, ...] = (0, 0, 0), **others: Any) -> Any:
    jobs = zip(weights, priorities, strict=True)
    placed = [SimpleNamespace(job=SimpleNamespace(weight=weight, priority=priority)) for weight, priority in jobs]
    known = {"is_composed": False, "is_coarse": False, "packets": None, **others}
    request = SimpleNamespace(packets=known.pop("packets"))
    return SimpleNamespace(topology=SimpleNamespace(assumptions=("of the topology",)), request=request, placed=placed, **known)


def told(of: Any, **setting: str) -> list[str]:
    """The sentences after those that are always there, which are the first."""
    first, *rest = notes_of(of, JobsSetting(**setting))
    assert first == "of the topology"
    assert all(line.startswith(begin) for line, begin in zip(rest, PLAIN, strict=False))
    return rest[len(PLAIN) :]


def begin_with(lines: list[str], *begins: str) -> bool:
    return len(lines) == len(begins) and all(line.startswith(begin) for line, begin in zip(lines, begins, strict=True))


def test_nothing_more_is_said_of_jobs_of_one_weight_that_share_links_as_they_come() -> None:
    assert told(beside()) == []
    assert told(beside(weights=(1, 4, 1)), share=FAIR) == []


@pytest.mark.parametrize("weights", [(4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 2, 2)])
def test_a_weight_of_any_job_is_explained_where_links_are_shared_by_weights(weights: tuple[int, ...]) -> None:
    assert begin_with(told(beside(weights=weights), share=WEIGHTS), WEIGHED)


@pytest.mark.parametrize("share", [SLICES, LANES, PLANES])
def test_what_keeps_jobs_apart_is_explained(share: str) -> None:
    assert begin_with(told(beside(weights=(1, 2, 3)), share=share), WORDS[share])


def test_weights_by_intensity_are_explained_with_what_a_weight_is() -> None:
    assert begin_with(told(beside(), share=INTENSITY), WORDS[INTENSITY], WEIGHED)


def test_composed_steps_say_whether_requests_that_meet_have_every_message() -> None:
    fine, coarse = (told(beside(is_composed=True, is_coarse=is_coarse)) for is_coarse in (False, True))
    assert begin_with(fine, "steps are composed", "requests that meet those of another job on a link are no bodies")
    assert begin_with(coarse, "steps are composed", "requests that meet those of another job on a link are bodies, too")


@pytest.mark.parametrize(("priorities", "times"), [((0, 0, 0), 2**20), ((0, 7, 7), 2**20), ((5, 0, 63), 2**15)])
def test_priorities_are_told_with_the_factor_between_two_neighbours(priorities: tuple[int, ...], times: int) -> None:
    """The factor is 2**20, but no more than lets the highest of all priorities get 2**30 times as much as the lowest."""
    (line,) = told(beside(priorities=priorities), share=PRIORITY)
    assert line.startswith(f"on a full link a message gets {times} times as much as one of the next lower priority")


def test_packets_have_lanes_by_priority_and_bring_their_own_sentences_last() -> None:
    packets = SimpleNamespace(assumptions=("of packets", "of cells"))
    lines = told(beside(priorities=(1, 2, 3), packets=packets), share=PRIORITY)
    assert begin_with(lines, "jobs of one priority share lanes", "of packets", "of cells")
    assert told(beside(packets=packets)) == ["of packets", "of cells"]


def test_shifts_and_chosen_routes_are_explained_each_by_itself() -> None:
    assert begin_with(told(beside(), shift="circle"), "jobs begin later by the turn")
    assert begin_with(told(beside(), routes=LEAST_LOADED), "routes are chosen for one job after another")


def test_npus_compute_for_their_share_of_their_own_step_and_those_without_a_step_never() -> None:
    """Two of 2 + 6 + 4 NPUs compute for half of the time, six for an eighth of it, and four are of a job without a step."""
    rows = [(2, 0.003, 0.006), (6, 0.001, 0.008), (4, 0.0, 0.0)]
    jobs: Any = [SimpleNamespace(ranks=ranks, compute_s=own, step_s=step) for ranks, own, step in rows]
    assert computing_share(jobs) == pytest.approx((2 / 2 + 6 / 8) / 12)
