"""DistributedDataParallel as PyTorch's tutorial on torchrun has it, with the losses saved: ddp.py OUTPUT."""

import sys

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817 - as the tutorial has it
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 64)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(64, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def dataset():
    generator = torch.Generator().manual_seed(7)
    return TensorDataset(torch.randn(64, 10, generator=generator), torch.randn(64, 5, generator=generator))


def demo_basic():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = ToyModel()
    ddp_model = DDP(model)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.05)
    sampler = DistributedSampler(dataset(), shuffle=False)
    losses = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for inputs, labels in DataLoader(dataset(), batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            loss = loss_fn(ddp_model(inputs), labels)
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            losses.append(mean.item())
    if rank == 0:
        torch.save(losses, sys.argv[1])
    dist.destroy_process_group()


if __name__ == "__main__":
    demo_basic()
