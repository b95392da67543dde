"""Started once, as PyTorch's first tutorial on DDP is: trains, then saves in one process and loads in all."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817 - as the tutorial has it


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def step(model, rank):
    optimizer = optim.SGD(model.parameters(), lr=0.001)
    optimizer.zero_grad()
    outputs = model(torch.randn(20, 10).to(rank))
    loss = nn.MSELoss()(outputs, torch.randn(20, 5).to(rank))
    loss.backward()
    optimizer.step()
    return loss.item()


def demo_basic(rank, world_size, _):
    setup(rank, world_size)
    model = DDP(ToyModel().to(rank), device_ids=[rank])
    say("basic", rank, step(model, rank))
    dist.destroy_process_group()


def demo_checkpoint(rank, world_size, folder):
    setup(rank, world_size)
    model = DDP(ToyModel().to(rank), device_ids=[rank])
    path = os.path.join(folder, "model.checkpoint")  # noqa: PTH118
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    model.load_state_dict(torch.load(path, map_location={"cuda:0": f"cuda:{rank}"}, weights_only=True))
    say("checkpoint", rank, step(model, rank))
    dist.destroy_process_group()


def demo_model_parallel(rank, world_size, _):
    setup(rank, world_size)
    dev0, dev1 = rank * 2, rank * 2 + 1

    class Split(ToyModel):
        def __init__(self):
            super().__init__()
            self.net1.to(dev0)
            self.net2.to(dev1)

        def forward(self, x):
            return self.net2(self.relu(self.net1(x.to(dev0))).to(dev1))

    say("model parallel", rank, step(DDP(Split()), dev1))
    dist.destroy_process_group()


if __name__ == "__main__":
    n_gpus = torch.cuda.device_count()
    assert n_gpus >= 2, f"Requires at least 2 GPUs to run, but got {n_gpus}"
    with tempfile.TemporaryDirectory() as own:
        folder = sys.argv[1] if len(sys.argv) > 1 else own
        mp.spawn(demo_basic, args=(n_gpus, folder), nprocs=n_gpus, join=True)
        mp.spawn(demo_checkpoint, args=(n_gpus, folder), nprocs=n_gpus, join=True)
        mp.spawn(demo_model_parallel, args=(n_gpus // 2, folder), nprocs=n_gpus // 2, join=True)
