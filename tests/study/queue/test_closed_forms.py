"""Queues whose mean wait has a closed form: M/M/c (Erlang C), and gangs that run one after another (M/D/1) or in pairs."""

from math import factorial, sqrt

import numpy as np
import pytest

from tests.study.queue.queues import SWITCH, jobs_of, run

SEEDS, JOBS, WARM = 12, 3000, 300
T_99 = 3.11  # Student's t with 11 degrees of freedom, both sides, 99 %


def erlang_c(servers, load):
    """The probability that a job waits in M/M/c; `load` is the arrival rate over the rate of one server."""
    last = load**servers / factorial(servers) * servers / (servers - load)
    return last / (sum(load**k / factorial(k) for k in range(servers)) + last)


def waits(seed, npus, size, rate, work):
    """The mean wait of jobs that arrive at random, once the queue has filled."""
    random = np.random.default_rng(seed)
    submit = random.exponential(1 / rate, JOBS).cumsum()
    jobs = jobs_of(zip(submit, [size] * JOBS, work(random), strict=True))
    history = run(SWITCH.format(npus), jobs, submit[-1] + 1000)
    waited = [record.waited_us(history.until_us) / 1e6 for record in history.records]
    return float(np.mean(waited[WARM:]))


def check(means, expected):
    """The closed form lies in the confidence interval of 99 %, which is narrow enough to tell something."""
    half = T_99 * np.std(means, ddof=1) / sqrt(len(means))
    assert half < 0.3 * expected
    assert abs(np.mean(means) - expected) < half


@pytest.mark.parametrize(("servers", "busy"), [(1, 0.6), (3, 0.7), (8, 0.75)])
def test_jobs_of_one_npu_wait_as_erlang_c_says(servers, busy):
    rate = busy * servers  # of arrivals, where a job takes 1 s
    expected = erlang_c(servers, rate) / (servers - rate)
    check([waits(s, servers, 1, rate, lambda random: random.exponential(1.0, JOBS)) for s in range(SEEDS)], expected)


@pytest.mark.slow
def test_gangs_of_which_one_runs_at_a_time_wait_as_in_m_d_1():
    check([waits(s, 8, 5, 0.7, lambda _: np.ones(JOBS)) for s in range(SEEDS)], 0.7 / (2 * (1 - 0.7)))


@pytest.mark.slow
def test_gangs_that_run_in_pairs_wait_as_two_servers():
    expected = erlang_c(2, 1.4) / (2 - 1.4)
    check([waits(s, 8, 3, 1.4, lambda random: random.exponential(1.0, JOBS)) for s in range(SEEDS)], expected)
