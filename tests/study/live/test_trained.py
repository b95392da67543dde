"""Random faults while 8 to 64 ranks train: a job ends with the right losses or in one line, and leaves nothing else behind.

The hundred: `python -m pytest -m "slow or not slow" tests/study/live/test_trained.py`.
"""

import tempfile
import threading
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch._dynamo  # noqa: F401 - which makes a folder in the temporary one as it is loaded

from emu.errors import LostError, RunError
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack
from emu.study.live.elastic_job import CheckpointPolicy, train_with_checkpoints
from emu.study.live.faulty_job import FaultyJob
from emu.study.training.train import TrainRequest, run_steps
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import cables
from launch.data.devices import find_device

RINGS = tuple(f"{operation}=ring" for operation in ("all_reduce", "all_gather", "reduce_scatter"))
DEVICE = find_device("h100", "bfloat16")
MODEL = "tests/data/one-narrow-layer.toml"
STEPS = 4
LINES = {
    8: ("ub-mesh:rack-full:dims=2x4", "infinitehbd:dims=1x8x2x4,tp=8", "hpn:segment:dims=2x4,backup=1"),
    16: ("ub-mesh:rack-full:dims=4x4", "infinitehbd:dims=1x5x1x4,k=2,tp=4", "railx:torus:m=2,n=2,nodes=3x3"),
    32: ("ub-mesh:rack-full:dims=4x8", "hpn:segment:dims=8x4,backup=1", "flex-sipac:r=6,L=2,jobs=32"),
    64: ("ub-mesh:rack-full", "infinitehbd:dims=1x10x2x8,tp=8", "hpn:segment:dims=8x8,backup=1"),
}
PLANS = {
    8: ("tp=2,dp=4", "dp=8,sharding=zero1", "tp=2,dp=4,sharding=fsdp"),
    16: ("tp=4,dp=4", "tp=2,dp=8,sharding=zero1", "dp=16,sharding=fsdp"),
    32: ("tp=4,dp=8", "tp=4,dp=8,sharding=zero1"),
    64: ("tp=4,dp=16",),
}


@dataclass(frozen=True)
class Drawn:
    """A job and its faults, as a seed has them."""

    line: str
    request: TrainRequest
    faults: tuple[str, ...]
    every: int
    goes_on: bool

    def run(self, folder: Path, *faults: str) -> FaultyJob:
        keeping = CheckpointPolicy(folder, self.every, self.goes_on)
        return train_with_checkpoints(self.request, keeping, build_topology(self.line), DEVICE, faults, Stack())


def drawn(seed: int) -> Drawn:
    draw = np.random.default_rng(seed)
    ranks = (*(8,) * 5, 16, 16, 32, *(8,) * 5, 16, 16, 64)[seed % 16]
    line = str(draw.choice(LINES[ranks]))
    plan = parse_plan(str(draw.choice(PLANS[ranks])), global_batch=16, seq=8)
    topology = build_topology(line)
    rates = {"link": 2 / len(cables(topology)), "npu": 1.5 / topology.n_npus, "rank": 0.7 / ranks}
    words = " ".join(f"{part}={rate / STEPS:.6f}" for part, rate in rates.items())
    faults = (f"random {words} slow=0.3 repair={draw.integers(0, 3)} seed={seed}",)
    every, goes_on = int(draw.integers(1, 3)), bool(draw.random() < 0.8)
    return Drawn(line, TrainRequest(MODEL, plan, steps=STEPS, algorithms=RINGS), faults, every, goes_on)


@cache
def undisturbed(request: TrainRequest) -> tuple[float, ...]:
    """The losses of the ranks of a plan without faults."""
    topology = build_topology(f"switch:n={request.plan.world},bandwidth=50GB/s,latency=500ns")
    return run_steps(request, [topology], DEVICE).loss


def in_worlds_of(job: Drawn, report: FaultyJob, folder: Path) -> tuple[float, ...]:
    """The losses of a job that has the worlds of this one, each from the same checkpoint on, and no faults."""
    plan, batch = job.request.plan, {"global_batch": job.request.plan.global_batch, "seq": job.request.plan.seq}
    found, begun = None, 0
    for until, then in [*((each.went_on_from, each.plan) for each in report.recoveries), (STEPS, None)]:
        if until > begun:
            found = replace(job, request=replace(job.request, plan=plan, steps=until)).run(folder)
        begun, plan = until, plan if then is None else parse_plan(then, **batch)
    return found.loss


def told(job: Drawn, folder: Path) -> FaultyJob | str:
    """The report, or the line that the job ends in."""
    ends = RunError if job.goes_on else LostError
    try:
        return job.run(folder, *job.faults)
    except ends as error:
        return str(error)


def left(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 100)]


@pytest.mark.parametrize("seed", [0, 1, *SLOW])
def test_a_training_job_with_random_faults_learns_what_it_would_without(seed, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    Path(tempfile.tempdir).mkdir()
    job = drawn(seed)
    before = threading.active_count(), psutil.Process().children()
    ours = told(job, tmp_path / "ours")
    if seed % 2:
        assert told(job, tmp_path / "again") == ours
        assert left(tmp_path / "again") == left(tmp_path / "ours")
    if isinstance(ours, str):
        assert "\n" not in ours
        assert ours.startswith(("step ", "elastic: step "))
    else:
        assert left(tmp_path / "ours") == [f"step-{STEPS // job.every * job.every}"]
        worlds = {each.ranks for each in ours.recoveries} | {job.request.plan.world}
        expected = undisturbed(job.request) if len(worlds) == 1 else in_worlds_of(job, ours, tmp_path / "worlds")
        assert ours.loss == expected
        assert ours.loss == pytest.approx(ours.reference_loss, rel=1e-4)
    assert left(Path(tempfile.tempdir)) == []
    assert (threading.active_count(), psutil.Process().children()) == before
