"""Means over seeds: those of the rows of each seed, with the interval of Student's t, whoever computes the rows."""

import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from emu.study.faults.waste import machine_of
from emu.study.job_pool import LocalPool
from emu.study.queue.cluster_queue import QueueCase, QueueRequest, QueueWork, queues
from emu.study.queue.queue_policy import POLICIES
from emu.study.queue.queue_row import queue_spread, seed_mean
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device
from launch.data.job_mixes import find_mix
from tests.study.queue.queues import COSTS, SWITCH, jobs_of, log_of

TWO = (POLICIES["fifo"], POLICIES["backfill"])
SEEDS = range(4)


@pytest.fixture
def asked():
    machines = tuple(machine_of(build_topology(line), 16) for line in (SWITCH.format(16), "servers:nodes=2"))
    jobs = partial(find_mix("philly").draw, 40, 1, npu_us=0.9 * 16 * 86400e6, most_npus=16)
    return QueueRequest(machines, TWO, jobs, 1, COSTS, 8, 4, find_device("h100"))


def cases():
    log = log_of([(1, 4000, 9000)], 4)
    return [QueueCase(machine, seed, log) for machine in (0, 1) for seed in SEEDS]


def test_the_mean_of_seeds_has_the_interval_of_students_t():
    values = np.random.default_rng(0).normal(3, 2, 12)
    found, (low, high) = seed_mean(values), stats.t.interval(0.95, 11, np.mean(values), stats.sem(values))
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    assert seed_mean([5.0, 5.0, 5.0]).half == 0


def test_an_interval_has_the_mean_of_all_seeds_as_often_as_it_says():
    draws = np.random.default_rng(1).normal(0, 1, (2000, 5))
    held = np.mean([abs(found.mean) <= found.half for found in map(seed_mean, draws)])
    assert held == pytest.approx(0.95, abs=0.015)


def test_two_processes_give_the_bits_of_one(asked):
    here, there = [*queues(asked, cases())], [*queues(asked, cases(), LocalPool(2))]
    assert here == there
    assert len(here) == 8
    assert {rows[0].wait_mean_s for rows in here[:4]} != {here[0][0].wait_mean_s}  # each seed has jobs of its own


def test_the_cases_of_a_pool_run_in_its_processes(asked, monkeypatch):
    ran, own = [], QueueWork.__call__
    monkeypatch.setattr(QueueWork, "__call__", lambda work, case: ran.append(os.getpid()) or own(work, case))
    list(queues(asked, cases(), LocalPool(2)))
    assert not ran  # none of them here


def test_a_spread_is_of_the_rows_of_one_machine_and_policy(asked):
    rows = [rows[0] for rows in queues(asked, cases()[:4])]
    found = queue_spread(rows)
    assert (found.policy, found.seeds, found.npus) == ("fifo", 4, 16)
    assert found.goodput == seed_mean([row.goodput for row in rows])
    assert found.wait_p95_s.mean == pytest.approx(np.mean([row.wait_p95_s for row in rows]))
    assert sum(part.mean for part in found.npu_hours.values()) == pytest.approx(16 * 24)


def test_moments_are_left_out_where_they_are_not_kept(asked):
    [kept], [short] = (list(queues(each, cases()[:1])) for each in (asked, replace(asked, keeps_moments=False)))
    assert kept[0].moments
    assert [replace(row, moments=()) for row in kept] == short


def test_jobs_that_are_listed_are_the_same_for_all_seeds(asked):
    listed = jobs_of([(0, 4, 100), (10, 16, 100)])
    found = list(queues(replace(asked, jobs_of=lambda _: listed), [QueueCase(0, seed, None) for seed in SEEDS]))
    assert all(rows == found[0] for rows in found)
