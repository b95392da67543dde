"""Shifts of steps: circles that steps divide, the demand on them, and the best turns."""

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from emu.study.jobs.jobs_request import JobsSetting
from emu.study.jobs.shifts import BINS, StepProfile, best_turn, common_circle, demand_on_circle, shifts_of
from tests.study.jobs.test_side_by_side import BETWEEN, loop, run


@pytest.mark.parametrize(
    ("steps", "length", "turns"),
    [
        ((100, 100), 100, (1, 1)),
        ((100, 50), 100, (1, 2)),
        ((300, 200), 600, (2, 3)),
        ((100, 99.5), 100, (1, 1)),
        ((1000, 501), 1000, (1, 2)),  # nearly twice, from below
        ((1000, 992), 1000, (1, 1)),  # by 0.8 %, which is near enough
        ((5168, 4864, 4352), 16 * 5168, (16, 17, 19)),  # no fewer steps than 16 are near for both of the others
    ],
)
def test_the_shortest_circle_that_all_steps_divide_nearly(steps, length, turns):
    circle = common_circle(steps)
    assert (circle.length_fs, circle.turns) == (length, turns)
    assert circle.off <= 0.01


def test_steps_that_divide_no_short_circle_get_the_best_one():
    assert 0 < common_circle((1000, 617)).off < 0.05


def phase(begin: float, end: float) -> np.ndarray:
    """One link that is wanted from a begin to an end, as shares of the circle."""
    found = np.zeros((1, BINS))
    found[0, round(begin * BINS) : round(end * BINS)] = 1
    return found


def test_a_job_is_turned_until_it_sends_when_the_other_does_not():
    assert best_turn(phase(0.5, 0.75), phase(0.5, 0.75), BINS) == round(0.25 * BINS)
    assert best_turn(phase(0.5, 0.75), phase(0.0, 0.25), BINS) == 0
    assert best_turn(phase(0, 0.5), phase(0, 0.5) / 2, BINS) == BINS // 2


def test_a_job_of_half_the_step_sends_twice_beside_the_other():
    """6 ms of every 24 and 6 of every 12 fit one link without overlap; together they begin at one time and wait."""
    jobs = [loop("slow", BETWEEN[0], 18), loop("fast", BETWEEN[1], 6)]
    row = run(jobs, setting=JobsSetting(shift="circle")).row
    assert [job.step_s for job in row.jobs] == pytest.approx([0.024, 0.012], rel=1e-9)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_the_gain_of_two_equal_jobs_is_one_plus_the_share_in_which_they_send(share):
    """Rajasekaran et al. (HotNets 2022, NSDI 2024): a step of c + m becomes c + 2 m where both send at one time."""
    pause_ms = 6 / share - 6
    jobs = [loop("a", BETWEEN[0], pause_ms), loop("b", BETWEEN[1], pause_ms)]
    together, shifted = (run(jobs, setting=JobsSetting(shift=shift)).row.jobs[0].step_s for shift in ("none", "circle"))
    assert together / shifted == pytest.approx(1 + share, rel=1e-6)


def profile(numbers: Random, step_fs: int = BINS) -> StepProfile:
    """A step of one message on each of three links, each at a time of its own; a bin of the circle is a tick."""
    begin = np.array([numbers.randrange(0, BINS // 2, 60) for _ in range(3)])
    end = begin + [numbers.choice((60, 180, 300)) for _ in range(3)]
    links = np.arange(3)
    graph = SimpleNamespace(n_links=3, hop_link=links, hop_task=links, hop_weight=np.ones(3), capacity_Bps=np.full(3, 1e15))
    graph.size_bytes = end - begin  # a whole link for as long as the message takes
    return StepProfile(step_fs, graph, SimpleNamespace(start_fs=begin, left_fs=end))


def excess(demands: list[np.ndarray]) -> float:
    return float(np.maximum(np.sum(demands, axis=0) - 1, 0).sum())


@pytest.mark.parametrize("seed", [*range(12), 366])  # of 366 no job moves before the last one is there
def test_no_job_could_be_turned_to_a_better_place_beside_all_others(seed):
    numbers = Random(seed)
    profiles = [profile(numbers) for _ in range(3)]
    own = [demand_on_circle(each, 1, np.arange(3)) for each in profiles]
    at = shifts_of(profiles, np.arange(3))
    placed = [np.roll(demand, turn, axis=1) for demand, turn in zip(own, at, strict=True)]
    for job in (1, 2):
        turned = [*placed]
        for turn in range(0, BINS, 12):
            turned[job] = np.roll(own[job], turn, axis=1)
            assert excess(turned) >= excess(placed) - 1e-6


def sending(spans: list[tuple[int, int, int]]) -> StepProfile:
    """A step of a message on a whole link for each (link, begin, end); a bin of the circle is a tick."""
    link, begin, end = np.array(spans).T
    graph = SimpleNamespace(n_links=int(link.max()) + 1, hop_link=link, hop_task=np.arange(len(link)), size_bytes=end - begin)
    graph.hop_weight, graph.capacity_Bps = np.ones(len(link)), np.full(graph.n_links, 1e15)
    return StepProfile(BINS, graph, SimpleNamespace(start_fs=begin, left_fs=end))


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_link_is_asked_for_while_messages_leave_and_as_long_as_it_needs_for_them(turns):
    """Two messages cross link 2, of 2 bytes a tick: 90 bytes twice over, in 90 ticks, and half of 100 bytes, in 200."""
    graph = SimpleNamespace(
        n_links=3, hop_link=np.array([0, 2, 2]), hop_task=np.array([0, 0, 1]), size_bytes=np.array([90, 100])
    )
    graph.hop_weight, graph.capacity_Bps = np.array([1, 2, 0.5]), np.array([1e15, 1e15, 2e15])
    times = SimpleNamespace(start_fs=np.array([10, 300]), left_fs=np.array([100, 500]), end_fs=np.array([200, 650]))
    (found,) = demand_on_circle(StepProfile(BINS, graph, times), turns, np.array([2]))
    assert found.sum() == pytest.approx(90 + 25)  # of a circle of so many steps, whose bins are as much longer
    if turns == 1:
        assert found.tolist() == pytest.approx([0] * 10 + [1] * 90 + [0] * 200 + [0.125] * 200 + [0] * 220)


def test_links_that_jobs_need_at_the_same_times_count_once():
    """Three links are of one kind, for 280 ticks; two others would meet for about as long each if the job left these alone."""
    alike = [(link, 0, 440) for link in range(3)]
    first = sending([*alike, (3, 0, 420), (4, 0, 415)])
    second = sending([*[(link, 0, 280) for link in range(3)], (3, 420, 720), (4, 415, 720)])
    assert shifts_of([first, second], np.arange(5)) == [0, 0]
    assert shifts_of([first, second], np.arange(3)) == [0, 440]


def test_of_many_links_the_busiest_are_looked_at():
    """Link 0 is the first of 80: beside it the job has to begin 300 ticks later, and with the last ones not at all."""
    spans = [(0, 0, 300), *[(link, link, link + 1) for link in range(1, 80)]]
    jobs = [sending(spans), sending([(0, 0, 400), *[(link, 700, 701) for link in range(1, 80)]])]
    assert shifts_of(jobs, np.arange(80)) == [0, 300]
