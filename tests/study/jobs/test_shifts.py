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
    [((100, 100), 100, (1, 1)), ((100, 50), 100, (1, 2)), ((300, 200), 600, (2, 3)), ((100, 99.5), 100, (1, 1))],
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
