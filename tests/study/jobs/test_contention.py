"""Links that jobs share, and what each job gets of them, held against marking every tick."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.study.jobs.step_graphs import contention
from emu.study.jobs.step_graphs.contention import LinkUse, busy_by_job, links_in_common, share_links, times_of_jobs
from emu.study.jobs.step_graphs.link_shares import by_intensity, intensities, intensity_weights, link_shares
from emu.study.jobs.step_graphs.shared_graph import LinkShare
from emu.study.jobs.step_graphs.steady import TooManyTasksError, jain_index

LINKS, JOBS, TICKS = 4, 3, 60


class Run:
    """A run of three jobs at random: of each task its owner, its links, and when it flows; two lanes of each link are one."""

    def __init__(self, seed: int) -> None:
        random_ = random.Random(seed)
        self.tasks = []
        for _ in range(random_.randrange(1, 25)):
            begin = random_.randrange(TICKS - 10)
            links = random_.sample(range(2 * LINKS), random_.randrange(4))
            self.tasks.append((random_.randrange(JOBS), links, begin, begin + random_.randrange(10)))
        owner, links, start, left = (np.array(of, object) if i == 1 else np.array(of) for i, of in enumerate(self._columns()))
        counts = [len(of) for of in links]
        graph = SimpleNamespace(
            n_tasks=len(owner),
            owner=owner,
            hop_start=np.cumsum([0, *counts]),
            hop_task=np.repeat(np.arange(len(owner)), counts),
            hop_link=np.array([link for of in links for link in of], np.int32),
        )
        steps = [SimpleNamespace(begin_fs=np.array((0, 20, 40)), end_fs=np.array((20, 40, 55))) for _ in range(JOBS)]
        steady = tuple(np.array((job != 1, True, job != 2)) for job in range(JOBS))
        self.run: Any = SimpleNamespace(
            shared=SimpleNamespace(graph=graph, n_links=LINKS),
            timeline=SimpleNamespace(start_fs=start, left_fs=left),
            steps=steps,
            steady=steady,
        )

    def _columns(self) -> list[list[Any]]:
        owner, links, start, left = ([] for _ in range(4)) if not self.tasks else map(list, zip(*self.tasks, strict=True))
        ragged = np.empty(len(links), object)
        ragged[:] = links
        return [owner, list(ragged), start, left]

    def marked(self, job: int, link: int | None = None) -> np.ndarray:
        """[ticks] whether a job has a message on a link; None: on any."""
        found = np.zeros(TICKS, bool)
        for owner, links, begin, end in self.tasks:
            if owner == job and (links if link is None else link in [each % LINKS for each in links]):
                found[begin:end] = True
        return found


def ticks_of(spans: Any) -> np.ndarray:
    found = np.zeros(TICKS, bool)
    for begin, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True):
        assert not found[begin:end].any()
        found[begin:end] = True
    return found


@pytest.mark.parametrize("seed", range(25))
def test_spans_of_jobs_on_links_are_those_of_their_messages(seed: int) -> None:
    own = Run(seed)
    looked = np.array([0, 2, 3])
    use = LinkUse(own.run, looked)
    for link in looked.tolist():
        for job in range(JOBS):
            assert (ticks_of(use.spans(link, job)) == own.marked(job, link)).all()
        for one, other in ((0, 1), (1, 2), (2, 0)):
            steady = own.run.steady[one]
            low, high = ((0, 20, 40)[int(steady.argmax())], (20, 40, 55)[2 - int(steady[::-1].argmax())])
            together = (own.marked(one, link) & own.marked(other, link))[low:high].sum()
            assert use.together_s(link, one, other) == pytest.approx(together * 1e-15 / steady.sum())
    found = times_of_jobs(use, ("a", "b", "c"))
    assert [each.name for each in found] == ["a", "b", "c"]
    for job, each in enumerate(found):
        assert each.steps is own.run.steps[job]
        assert (ticks_of(each.sending) == own.marked(job)).all()
        beside = [
            own.marked(job, link) & own.marked(other, link) for link in (0, 2, 3) for other in range(JOBS) if other != job
        ]
        assert (ticks_of(each.meeting) == np.any(beside, axis=0)).all()


def test_links_that_two_jobs_use_come_the_busiest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    link_s = [np.array((1.0, 2.0, 0.0, 4.0, 0.5)), np.array((3.0, 0.0, 0.0, 1.0, 0.5)), np.array((0.0, 0.0, 6.0, 0.0, 0.0))]
    busy = busy_by_job(link_s, (4.0, 2.0, 0.0))
    assert busy.tolist() == [[0.25, 0.5, 0.0, 1.0, 0.125], [1.5, 0.0, 0.0, 0.5, 0.25], [0.0] * 5]
    assert links_in_common(busy).tolist() == [0, 3, 4]
    assert links_in_common(busy[:, [3, 0, 4, 1, 2]]).tolist() == [1, 0, 2]
    assert links_in_common(np.full((2, 4), 0.5)).tolist() == [0, 1, 2, 3]
    monkeypatch.setattr(contention, "_MOST_LINKS", 2)
    assert links_in_common(busy).tolist() == [0, 3]


def test_jobs_that_cross_one_link_share_it() -> None:
    def tasks(*links: int) -> Any:
        return SimpleNamespace(graph=SimpleNamespace(hop_link=np.array(links, np.int32)))

    for one, other, both in (((1, 2), (3, 4), False), ((1, 2), (5, 2), True), ((), (1,), False), ((1,), (), False)):
        assert share_links(tasks(*one), tasks(*other)) == share_links(tasks(*other), tasks(*one)) == both


def placed(*jobs: tuple[float, int, int, int]) -> list[Any]:
    """Jobs by their seconds of computation, their NPUs, their weights and their priorities."""
    return [
        SimpleNamespace(compute_s=s, npus=list(range(n)), job=SimpleNamespace(weight=weight, priority=priority))
        for s, n, weight, priority in jobs
    ]


FOUR = placed((3.0, 4, 5, 7), (1.0, 2, 1, 0), (8.0, 1, 3, 7), (2.0, 8, 2, -1))
LINK_S = [np.array((0.5, 3.0)), np.array((0.0, 0.0)), np.array((4.0, 1.0)), np.array((16.0, 2.0))]


def test_intensity_is_the_computation_of_all_ranks_for_a_second_of_the_busiest_link() -> None:
    assert intensities(FOUR, LINK_S) == [4.0, float("inf"), 2.0, 1.0]
    assert by_intensity(FOUR, LINK_S) == [1, 0, 2, 3]
    assert intensity_weights(FOUR, LINK_S) == [2**4, 2**6, 2**2, 1]
    assert intensity_weights(FOUR[:3], LINK_S[:3]) == [2**3, 2**6, 1]
    assert intensity_weights(FOUR[2:], LINK_S[2:]) == [2**6, 1]
    assert intensity_weights(FOUR[:1], LINK_S[:1]) == [2**6]
    same = placed((1.0, 2, 1, 0), (2.0, 1, 1, 0), (1.0, 2, 1, 0))
    assert by_intensity(same, [np.array((1.0,))] * 3) == [0, 1, 2]


def test_each_setting_gives_jobs_their_shares() -> None:
    def given(share: str, *, has_packets: bool) -> list[LinkShare]:
        return link_shares(share, FOUR, LINK_S, has_packets=has_packets)

    for has_packets in (False, True):
        assert given("weights", has_packets=has_packets) == [LinkShare(weight) for weight in (5, 1, 3, 2)]
        assert given("slices", has_packets=has_packets) == [LinkShare(weight, is_sliced=True) for weight in (5, 1, 3, 2)]
        assert given("lanes", has_packets=has_packets) == [LinkShare(lane=lane) for lane in range(4)]
        assert given("intensity", has_packets=has_packets) == [LinkShare(weight) for weight in (16, 64, 4, 1)]
        assert given("even", has_packets=has_packets) == [LinkShare(1)] * 4
    assert given("priority", has_packets=True) == [LinkShare(lane=lane, is_strict=True) for lane in (0, 1, 0, 2)]
    assert given("priority", has_packets=False) == [LinkShare(w, is_strict=True) for w in (2**30, 2**15, 2**30, 1)]


def test_what_is_too_much_is_said_and_fairness_is_one_where_all_are_equal() -> None:
    assert str(TooManyTasksError(7_000, 5_000)).startswith(
        "jobs: messages and computations of all steps must be at most 5000, got 7000; take fewer steps"
    )
    assert jain_index(np.array((2.0, 2.0, 2.0))) == pytest.approx(1.0)
    assert jain_index(np.array((3.0, 0.0, 0.0, 0.0))) == pytest.approx(1 / 4)
    assert jain_index(np.array((1.0, 2.0))) == pytest.approx(9 / 10)
