"""The speed of a job by its places: equal on places that a symmetry joins, and that of an estimate on all others."""

import numpy as np
import pytest

from emu.study.faults.waste import machine_of
from emu.study.queue.gang_machine import GangMachine
from emu.study.queue.workload import job_speed
from emu.study.queue.workload.job_speed import JobSpeeds
from emu.study.queue.workload.queued_job import JobModel, QueuedJob
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device

JOB = QueuedJob(0, 0, 8, 0, trained=JobModel("llama-tiny", "dp=8", 16, 256, 1))
WITHIN, ASTRIDE, SECOND = np.arange(8), np.arange(4, 12), np.arange(8, 16)  # two servers of eight


@pytest.fixture
def speeds():
    machine = GangMachine(machine_of(build_topology("servers:nodes=2"), 16), 1)
    return JobSpeeds(machine, 4, find_device("h100"), ("auto",))


@pytest.mark.parametrize("first", [WITHIN, ASTRIDE])
def test_a_job_on_parts_of_two_servers_is_slower_whichever_placement_came_first(speeds, first):
    speeds.slowness(JOB, first)
    assert speeds.slowness(JOB, WITHIN) == 1
    assert speeds.slowness(JOB, ASTRIDE) > 1


def test_places_that_a_symmetry_joins_are_estimated_once(speeds, monkeypatch):
    asked, own = [], job_speed.estimate
    monkeypatch.setattr(job_speed, "estimate", lambda *given: asked.append(given) or own(*given))
    assert speeds.slowness(JOB, WITHIN) == speeds.slowness(JOB, SECOND) == 1
    assert len(asked) == 1
