"""Shifts of steps: circles that steps divide, the demand on them, and the best turns."""

import numpy as np
import pytest

from emu.study.jobs.jobs_request import JobsSetting
from emu.study.jobs.shifts import BINS, best_turn, common_circle
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
