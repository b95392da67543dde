"""Tensor or sequence parallelism of a toy model as PyTorch's examples have them: toy_parallel.py tensor|sequence FILE."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tensor import Shard
from torch.distributed._tensor.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

if not (torch.accelerator.is_available() and torch.accelerator.device_count() >= 2):
    sys.exit("Unable to locate sufficient 2 gpus to run this example. Exiting.")


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.out_proj = nn.Linear(32, 5)

    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))


way, file = sys.argv[1:]
device_type = torch.accelerator.current_accelerator().type
mesh = init_device_mesh(device_type=device_type, mesh_shape=(int(os.environ["WORLD_SIZE"]),))
rank = mesh.get_rank()
torch.manual_seed(0)
plan = {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()}
if way == "sequence":
    plan = {"in_proj": ColwiseParallel(input_layouts=Shard(0)), "out_proj": RowwiseParallel(output_layouts=Shard(0))}
model = parallelize_module(module=ToyModel().to(device_type), device_mesh=mesh, parallelize_plan=plan)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, foreach=True)
losses = []
for i in range(4):
    torch.manual_seed(i)
    inp = torch.rand(20, 10, device=device_type)
    if way == "sequence":
        inp = inp.chunk(dist.get_world_size())[rank]
    loss = model(inp).sum()
    loss.backward()
    optimizer.step()
    if way == "sequence":
        dist.all_reduce(loss.detach())
    losses.append(loss.item())
if rank == 0:
    torch.save(losses, file)
if dist.is_initialized():
    dist.destroy_process_group()
