"""Steps of one layer of experts, as many as there are ranks: each takes an even share of every rank's tokens."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

TOKENS, WIDTH = 64, 32
dist.init_process_group()
n = dist.get_world_size()
torch.manual_seed(dist.get_rank())
router, expert = nn.Linear(WIDTH, n), nn.Linear(WIDTH, WIDTH)
shared = nn.parallel.DistributedDataParallel(router)
optimizer = torch.optim.AdamW([*router.parameters(), *expert.parameters()])
for _ in range(5):
    tokens = torch.randn(TOKENS, WIDTH)
    weight = shared(tokens).softmax(-1)
    order = weight[:, 0].argsort()  # so many tokens to each, whatever they are
    sent = tokens[order] * weight.amax(-1, keepdim=True)
    there = all_to_all_single_autograd(sent, None, None, dist.group.WORLD)
    back = all_to_all_single_autograd(expert(there), None, None, dist.group.WORLD)
    back.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
