"""Tensor parallelism as PyTorch's tutorial has it, with the losses saved: tensor_parallel.py OUTPUT."""

import os
import sys

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class ToyModel(nn.Module):
    """MLP based model."""

    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.out_proj = nn.Linear(32, 5)

    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))


def main():
    world_size = int(os.environ["WORLD_SIZE"])
    device_mesh = init_device_mesh(device_type="cpu", mesh_shape=(world_size,))
    rank = device_mesh.get_rank()
    torch.manual_seed(0)
    tp_model = parallelize_module(
        module=ToyModel(),
        device_mesh=device_mesh,
        parallelize_plan={"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()},
    )
    optimizer = torch.optim.AdamW(tp_model.parameters(), lr=0.25, foreach=True)
    losses = []
    for i in range(4):
        torch.manual_seed(i)
        inp = torch.rand(20, 10)
        loss = tp_model(inp).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if rank == 0:
        torch.save(losses, sys.argv[1])


if __name__ == "__main__":
    main()
