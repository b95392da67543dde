"""Requests whose answers nobody has waited for: what completes them, and what may happen before."""

import pytest
import torch
import torch.distributed as dist

from emu.cluster.fake.fake_run import trace_script
from emu.cluster.rank_state.cpu_device import Stream
from emu.cluster.script_run import run_script
from emu.errors import RunError
from tests.cluster.apart import run_apart

SYNCHRONIZE = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank, n = dist.get_rank(), dist.get_world_size()
for synchronize in (torch.cuda.synchronize, torch.accelerator.synchronize):
    sums, message = torch.ones(2, device="cuda"), torch.full((1,), float(rank), device="cuda")
    dist.all_reduce(sums, async_op=True)
    if rank:
        dist.isend(message, rank - 1)
    if rank < n - 1:
        handle = dist.irecv(message := torch.zeros(1, device="cuda"), rank + 1)
    synchronize()
    assert sums.tolist() == [n, n] and message.item() == min(rank + 1, n - 1), (rank, sums, message)
synchronize()
"""


@pytest.fixture
def run(tmp_path):
    def run(text, n=2, runs=run_script):
        script = tmp_path / "script.py"
        script.write_text(text)
        return runs(script, [], n)

    return run


@pytest.mark.filterwarnings("ignore")
def test_a_synchronized_device_has_the_answers_of_all_its_rank_s_requests(run):
    assert run(SYNCHRONIZE, 4)[1] == 0


def await_sum(rank):
    sums = torch.ones(1000)
    dist.all_reduce(sums, async_op=True)
    Stream.await_requests()
    return sums[-1].item()


@pytest.mark.parametrize("per_process", [1, 2])
def test_also_in_processes(per_process):
    assert run_apart(4, per_process, await_sum)[0] == [4] * 4


def test_a_synchronized_device_waits_for_nobody_where_the_other_ranks_do_not_exist(run):
    text = "import torch, torch.distributed as dist\ndist.init_process_group()\nx = torch.ones(4, device='cuda')\n"
    assert run(text + "dist.all_reduce(x, async_op=True)\ntorch.cuda.synchronize()", runs=trace_script)[1] == 0


def test_a_request_that_never_ends_is_told_where_the_device_is_synchronized(run):
    with pytest.raises(RunError, match=r"deadlock: rank 0 waits in all_reduce .* for rank 1"):
        run(
            "import torch, torch.distributed as dist\ndist.init_process_group()\n"
            "if dist.get_rank() == 0:\n    dist.all_reduce(torch.ones(1), async_op=True)\n    torch.cuda.synchronize()"
        )
