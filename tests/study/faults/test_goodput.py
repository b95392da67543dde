"""The best interval of checkpoints, held to a simulation of faults and to scipy's minimum."""

from math import exp, expm1

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from emu.errors import InputError
from emu.study.faults.waste import least_checkpoint_loss


def simulated(interval, delta, restart, mtbf, segments, seed):
    """The share of the time that is lost, where a job works, saves, fails and begins again."""
    random, now, done = np.random.default_rng(seed), 0.0, 0
    fault = random.exponential(mtbf)
    restarting = False
    while done < segments:
        need = interval + delta + (restart if restarting else 0.0)
        if now + need <= fault:
            now, done, restarting = now + need, done + 1, False
        else:
            now, restarting = fault, True
            fault = now + random.exponential(mtbf)
    return 1 - segments * interval / now


@pytest.mark.parametrize(("delta", "restart", "mtbf"), [(60, 0, 86400), (120, 300, 7200), (30, 600, 3600)])
def test_what_is_lost_is_what_a_simulated_job_loses(delta, restart, mtbf):
    found = least_checkpoint_loss(delta, restart, mtbf)
    lost = simulated(found.interval_s, delta, restart, mtbf, 20_000, seed=0)
    assert found.lost == pytest.approx(lost, rel=0.05)


@pytest.mark.parametrize(("delta", "mtbf"), [(60, 86400), (120, 7200), (300, 3600), (600, 900)])
def test_no_other_interval_loses_noticeably_less(delta, mtbf):
    def lost(interval):
        return 1 - interval / (mtbf * expm1((interval + delta) / mtbf) * exp(0))

    best = minimize_scalar(lost, bounds=(1, 10 * mtbf), method="bounded")
    found = least_checkpoint_loss(delta, 0, mtbf)
    assert found.lost == pytest.approx(lost(found.interval_s))
    assert found.lost <= best.fun + 2e-3


def test_times_that_cannot_be_are_one_line():
    with pytest.raises(InputError, match="faults: --checkpoint must be a time above 0, got '0 s'"):
        least_checkpoint_loss(0, 0, 1)
    with pytest.raises(InputError, match="faults: the mean time between faults must be a time above 0, got '0 s'"):
        least_checkpoint_loss(1, 0, 0)
    with pytest.raises(InputError, match="faults: --restart must be a time of 0 or more, got '-1 s'"):
        least_checkpoint_loss(1, -1, 1)


def test_the_interval_is_that_of_dalys_equation_37_and_the_mean_time_between_faults_where_a_checkpoint_takes_twice_that():
    """By a pocket calculator: of 60 s, 10 min and 2 h; of 1,000 s where 400 s pass between faults, and at the border itself."""
    found = least_checkpoint_loss(60, 600, 7200)
    assert (found.interval_s, found.lost) == (pytest.approx(889.95, abs=0.01), pytest.approx(0.19367, abs=1e-5))
    long = least_checkpoint_loss(1000, 0, 400)
    assert (long.interval_s, long.lost) == (400, pytest.approx(0.96886, abs=1e-5))
    assert least_checkpoint_loss(800, 0, 400).interval_s == 400
    assert least_checkpoint_loss(799.999, 0, 400).interval_s == pytest.approx(800 * (1 + 1 / 3 + 1 / 9) - 800, rel=1e-4)


def test_a_job_whose_restart_never_ends_loses_all_time():
    assert least_checkpoint_loss(1, 1e9, 1).lost == pytest.approx(1)
    assert least_checkpoint_loss(1e9, 0, 1).lost == pytest.approx(1)
