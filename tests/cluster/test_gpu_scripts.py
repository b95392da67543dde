"""Ordinary code for GPUs: pinned memory, streams as contexts, and the modules of devices."""

import pytest

from emu.cluster.fake.fake_run import trace_script
from emu.cluster.script_run import run_script

BEGIN = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
"""
PINNED = """
x = torch.ones(4, device="cuda")
before = torch.cuda.memory_allocated()
made = [torch.empty(3, pin_memory=True), torch.zeros(3, pin_memory=True), torch.empty_like(x, pin_memory=True, device="cpu"),
        x.new_empty(3, pin_memory=True, device="cpu"), torch.tensor([1, 2], pin_memory=True)]
assert all(each.is_pinned() and each.pin_memory() is each for each in made)
assert not torch.empty(3, pin_memory=False).is_pinned() and made[-1].tolist() == [1, 2]
assert torch.cuda.memory_allocated() == before
w = torch.ones(4, requires_grad=True)
with torch.autograd.graph.save_on_cpu(pin_memory=True):
    (w * x * w).sum().backward()
assert w.grad.tolist() == [2] * 4
"""
STREAMS = """
first = torch.cuda.current_stream()
for side in (torch.cuda.Stream(), torch.Stream(device="cuda"), first):
    with side as entered:
        assert entered is side == torch.cuda.current_stream() == torch.accelerator.current_stream()
        with torch.cuda.Stream() as other, side, other:
            assert torch.cuda.current_stream() == other
        assert torch.cuda.current_stream() == side
    assert torch.cuda.current_stream() == first
assert torch.Event(device="cuda").device == torch.cuda.Event().device == side.device
assert torch.get_device_module() is torch.get_device_module("cuda") is torch.cuda
assert torch.get_device_module("cpu") is torch.cpu and torch.get_device_module().device_count() == 2
"""
STAGED = """
import sys, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
saved = {"x": torch.arange(3.0, device="cuda") + rank}
for turn in range(2):
    stager = DefaultStager(StagingOptions())
    response = dcp.async_save(saved, checkpoint_id=f"{sys.argv[1]}/{turn}", async_stager=stager)
    response.staging_completion.result()
    saved["x"].add_(1)
    response.upload_completion.result()
    stager.close()
found = {"x": torch.zeros(3)}
dcp.load(found, checkpoint_id=f"{sys.argv[1]}/1")
assert found["x"].tolist() == [1, 2, 3], found
"""


@pytest.fixture
def run(tmp_path):
    def run(text, runs=run_script):
        script = tmp_path / "script.py"
        script.write_text(BEGIN + text)
        return runs(script, [str(tmp_path)], 2)[1]

    return run


def test_pinned_memory_can_be_made_and_is_the_host_s(run):
    assert run(PINNED) == 0


@pytest.mark.parametrize("runs", [run_script, trace_script])
def test_a_stream_is_a_context_and_a_device_has_its_module(run, runs):
    assert run(STREAMS, runs) == 0


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_is_staged_in_pinned_and_shared_memory(run):
    assert run(STAGED) == 0
