"""A job whose process is killed while it saves leaves a checkpoint that is whole, and goes on from it."""

import os
import shutil
import signal
from pathlib import Path
from unittest import mock

import pytest
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.study.live.elastic_job import CheckpointPolicy, train_with_checkpoints
from emu.study.training.train import TrainRequest
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device
from tests.forked import Fork
from tests.two_layers import TWO_LAYERS

RINGS = tuple(f"{operation}=ring" for operation in ("all_reduce", "all_gather", "reduce_scatter"))
REQUEST = TrainRequest(TWO_LAYERS, Plan(dp=2, global_batch=2, seq=8), steps=4, algorithms=RINGS)
WHERE = {"write_data": FileSystemWriter, "finish": FileSystemWriter, "rmtree": shutil}
MOMENTS = [  # of the save after step 3
    pytest.param("write_data", 6, 2, id="as the second of two ranks writes", marks=pytest.mark.slow),
    pytest.param("finish", 3, 2, id="before it is marked as whole"),
    pytest.param("rmtree", 2, 3, id="as the older one goes", marks=pytest.mark.slow),
]


def trained(folder: Path) -> tuple[float, ...]:
    line, device = "ub-mesh:rack-full:dims=2x2", find_device("h100", "bfloat16")
    return train_with_checkpoints(REQUEST, CheckpointPolicy(folder), build_topology(line), device, (), Stack()).loss


def killed(folder: Path, name: str, nth: int) -> None:
    """Train, and die as something is called for the nth time."""
    calls, whole = [], getattr(WHERE[name], name)

    def called(*given, **more):
        calls.append(name)
        if len(calls) == nth:
            if name == "rmtree":
                next(iter(given[0].iterdir())).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*given, **more)

    with mock.patch.object(WHERE[name], name, called):
        trained(folder)


@pytest.mark.parametrize(("name", "nth", "whole"), MOMENTS)
def test_a_job_that_is_killed_while_it_saves_goes_on_from_the_last_whole_checkpoint(name, nth, whole, tmp_path):
    folder = tmp_path / "kept"
    assert Fork(tmp_path, {}, killed, folder, name, nth).end().code == -signal.SIGKILL
    there = {each.name: (each / ".metadata").exists() for each in folder.iterdir()}
    assert there.keys() == {"step-2", "step-3"}
    assert there[f"step-{whole}"]
    assert trained(folder) == trained(tmp_path / "undisturbed")
    assert [each.name for each in folder.iterdir()] == ["step-4"]
