"""Sums of sparse tensors; every rank saves what it has to a file of its number in the folder that is given."""

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

warnings.simplefilter("ignore")  # checks of sparse tensors are to be chosen
dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
generator = torch.Generator().manual_seed(rank)
left = {}

for dtype in (torch.float32, torch.float64, torch.int64):
    places = torch.randint(0, 4, (2, 3 + rank), generator=generator)
    values = torch.randn(3 + rank, 2, generator=generator).mul(10).to(dtype)
    left[f"hybrid {dtype}"] = torch.sparse_coo_tensor(places, values, (4, 4, 2))
    dist.all_reduce(left[f"hybrid {dtype}"])

left["half"] = torch.eye(4)[rank].to_sparse()
half = dist.new_group([0, n - 1])
if rank in (0, n - 1):
    dist.all_reduce(left["half"], group=half)

left["ahead"] = torch.eye(4)[: rank + 1].sum(0).to_sparse()
dist.all_reduce(left["ahead"], async_op=True).wait()

torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.EmbeddingBag(10, 4, sparse=True, mode="sum"))
model(torch.tensor([[rank, rank + 1, 5]])).square().sum().backward()
left["gradient"] = model.module.weight.grad

torch.save(left, Path(sys.argv[1]) / f"{rank}.pt")
dist.destroy_process_group()
