"""Checkpoints that PyTorch saves beside the training, in a thread or in a process of each rank."""

from itertools import count
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from emu.cluster.script_run import run_script

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "saved_beside.py"


@pytest.fixture
def saved(tmp_path: Path):
    numbers = count()

    def save(kind: str) -> tuple[Path, object]:
        folder = tmp_path / f"{kind}-{next(numbers)}"
        trace, code = run_script(SCRIPT, [kind, str(folder)], 2)
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
