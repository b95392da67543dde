"""The optimizers of `torch.distributed.optim`, whose functional ones TorchScript compiles: what each leaves of the weights.

It is the same script on gloo and on Emu; every rank saves what it has to a file of its number in the folder that is given.
"""

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

warnings.simplefilter("ignore", DeprecationWarning)  # the functional ones are old
dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()

import torch.distributed.optim as parts  # noqa: E402 - compiled while the ranks run, as in a script that imports it late
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook  # noqa: E402
from torch.distributed.algorithms.model_averaging import averagers  # noqa: E402

FUNCTIONAL = (
    "_FunctionalAdadelta",
    "_FunctionalAdagrad",
    "_FunctionalAdam",
    "_FunctionalAdamW",
    "_FunctionalAdamax",
    "_FunctionalRMSprop",
    "_FunctionalRprop",
    "_FunctionalSGD",
)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def batch(step):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank))


def trained(module, optimizer):
    for step in range(3):
        optimizer.zero_grad()
        module(batch(step)).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in module.parameters()]


def zero(kind):
    module = DistributedDataParallel(model())
    optimizer = parts.ZeroRedundancyOptimizer(module.parameters(), optimizer_class=kind, lr=0.01)
    left = trained(module, optimizer)
    optimizer.consolidate_state_dict(0)
    return [*left, torch.tensor(len(optimizer.state_dict()["state"]) if rank == 0 else 0)]


def functional(name):
    weights = [p.detach().clone() for p in model().parameters()]
    optimizer = getattr(parts, name)(weights)
    for step in range(2):
        optimizer.step([torch.full_like(w, 0.1 * (step + 1)) for w in weights])
    return weights


def local_sgd():
    module = DistributedDataParallel(model())
    state = post_localSGD_hook.PostLocalSGDState(None, dist.new_subgroups(1)[0], start_localSGD_iter=1)
    module.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = averagers.PeriodicModelAverager(period=2, warmup_steps=1)
    return trained(module, parts.PostLocalSGDOptimizer(torch.optim.SGD(module.parameters(), lr=0.01), averager))


left = {
    "zero adamw": zero(torch.optim.AdamW),
    "zero sgd": zero(torch.optim.SGD),
    "local sgd": local_sgd(),
    **{name: functional(name) for name in FUNCTIONAL},
}
torch.save(left, Path(sys.argv[1]) / f"{rank}.pt")
dist.destroy_process_group()
