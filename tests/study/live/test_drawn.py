"""Jobs with random faults end, in their last step or in one line, and the same seed gives the same report."""

from dataclasses import replace

import pytest

from emu.model.plan.plan import Plan
from emu.study.live.faulty_job import time_faulty_job, times_of_estimate
from emu.study.training.estimate import EstimateRequest
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault_script import faults_of
from launch.data.devices import find_device

RINGS = tuple(f"{operation}=ring" for operation in ("all_reduce", "all_gather", "reduce_scatter"))
LINES = (
    "ub-mesh:rack-full:dims=2x4",
    "infinitehbd:dims=1x8x2x4,tp=8",
    "hpn:segment:dims=2x4,backup=1",
    "flex-sipac:r=4,L=2,jobs=8",
)
DEVICE = find_device("h100", "bfloat16")
REQUEST = EstimateRequest("tests/data/two-layers.toml", Plan(tp=2, dp=4, global_batch=4, seq=32), algorithms=RINGS)
SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 100)]


@pytest.mark.parametrize("seed", [*range(4), *SLOW])
def test_a_job_with_random_faults_ends_and_its_seed_says_how(seed):
    topology = build_topology(LINES[seed % len(LINES)])
    words = [f"random link=0.002 npu=0.01 slow=0.4 repair=2 seed={seed}"]
    reports = []
    for _ in range(2):
        faults = faults_of(words, topology, 8, 6)
        reports.append(time_faulty_job(topology, faults, 8, 6, times_of_estimate(replace(REQUEST), DEVICE), DEVICE.name))
    assert reports[0] == reports[1]
    (report, _) = reports
    assert [step.step for step in report.steps] == list(range(1, len(report.steps) + 1))
    assert (report.stopped is None) == (len(report.steps) == 6)
    assert "\n" not in (report.stopped or "")
    assert all(step.time_s > step.mending_s >= 0 for step in report.steps)
