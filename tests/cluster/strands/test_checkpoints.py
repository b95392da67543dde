"""Checkpoints that PyTorch saves beside the training, in a thread or in a process of each rank."""

from itertools import count
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from emu.cluster.script import run_script

SCRIPT = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.fsdp import fully_shard

def main(kind, folder):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    fully_shard(model)
    group, weights = dist.new_group(backend="gloo"), lambda: [p.full_tensor().clone() for p in model.parameters()]
    optimizer, saving, kept = torch.optim.SGD(model.parameters(), lr=0.1), None, {}
    for step in range(4):
        model(torch.ones(2, 4) * dist.get_rank()).square().sum().backward()
        optimizer.step(); optimizer.zero_grad()
        if step % 2:
            if saving is not None:
                saving.result()
            kept[step] = weights()
            state = {"model": get_model_state_dict(model)}
            how = getattr(AsyncCheckpointerType, kind)
            saving = dcp.async_save(state, checkpoint_id=f"{folder}/{step}", process_group=group, async_checkpointer_type=how)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    saving.result()
    dist.barrier()
    for step, expected in kept.items():
        state = {"model": get_model_state_dict(model)}
        dcp.load(state, checkpoint_id=f"{folder}/{step}")
        set_model_state_dict(model, state["model"])
        assert all(map(torch.equal, weights(), expected)), step
    if dist.get_rank() == 0:
        torch.save(expected, f"{folder}/expected")

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.fixture
def saved(tmp_path: Path):
    numbers = count()

    def save(kind: str) -> tuple[Path, object]:
        (tmp_path / "script.py").write_text(SCRIPT)
        folder = tmp_path / f"{kind}-{next(numbers)}"
        trace, code = run_script(tmp_path / "script.py", [kind, str(folder)], 2)
        assert code == 0
        return folder, trace

    return save


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")  # where one process reads it
@pytest.mark.parametrize("kind", ["THREAD", "PROCESS"])
def test_a_checkpoint_that_is_saved_beside_the_training_holds_the_weights_of_its_step(saved, kind):
    folder, _ = saved(kind)
    expected = torch.load(folder / "expected")
    for step in (1, 3):
        made = sorted(file.name for file in (folder / str(step)).iterdir())
        assert made == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    # Read by one process, which is no rank of Emu's.
    names = [f"model.{layer}.{part}" for layer in (0, 1) for part in ("weight", "bias")]
    found = {name: torch.full_like(weight, float("nan")) for name, weight in zip(names, expected, strict=True)}
    dcp.load(found, checkpoint_id=str(folder / "3"), no_dist=True)
    assert all(torch.equal(found[name], weight) for name, weight in zip(names, expected, strict=True))


def test_a_checkpoint_saved_in_a_thread_gives_the_same_trace_every_time(saved):
    assert len({saved("THREAD")[1].digest() for _ in range(3)}) == 1
