"""PyTorch's parallel styles on four ranks: a program each, whose losses on every rank are those of one process.

Context parallelism is not among them: PyTorch's own has no attention for a CPU.
"""

import contextlib
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

N, BATCH, WIDTH, STEPS = 4, 16, 16, 3
MLP = {"up": ColwiseParallel(), "down": RowwiseParallel()}


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def model():
    torch.manual_seed(0)
    return Mlp()


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, WIDTH, generator=generator), torch.randn(BATCH, WIDTH, generator=generator)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def train(module, x, y, mean=lambda loss: loss.item(), make=adamw):
    optimizer = make(module.parameters())
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        losses.append(mean(loss.detach()))
    return losses


def reference():
    return train(model(), *data())


def mean_over(group=None):
    def mean(loss):
        whole = loss.clone()
        dist.all_reduce(whole, group=group)
        return whole.item() / dist.get_world_size(group)

    return mean


def share(rank, n):
    return [t.chunk(n)[rank] for t in data()]


def ddp(rank):
    return train(DistributedDataParallel(model(), bucket_cap_mb=0.001), *share(rank, N), mean_over())


def ddp_with_a_hook(rank):
    module = DistributedDataParallel(model())
    module.register_comm_hook(None, default_hooks.allreduce_hook)
    return train(module, *share(rank, N), mean_over())


def power_sgd(rank):
    """Compressed only after more steps than are taken: before that it is exact."""
    module = DistributedDataParallel(model())
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=STEPS + 1)
    module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(module, *share(rank, N), mean_over())


def no_sync(rank):
    """Half of a rank's rows at a time, and one reduction for both."""
    module = DistributedDataParallel(model())
    optimizer, (x, y) = adamw(module.parameters()), share(rank, N)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        whole = torch.zeros(())
        for i, (rows, wanted) in enumerate(zip(x.chunk(2), y.chunk(2), strict=True)):
            with module.no_sync() if i == 0 else contextlib.nullcontext():
                loss = nn.functional.mse_loss(module(rows), wanted) / 2
                loss.backward()
            whole += loss.detach()
        optimizer.step()
        losses.append(mean_over()(whole))
    return losses


def join(rank):
    """Rank 3 has two steps more, in which it is alone; told is what all do together."""
    module = DistributedDataParallel(model())
    optimizer, (x, y) = adamw(module.parameters()), share(rank, N)
    losses = []
    with Join([module]):
        for _ in range(STEPS + (2 if rank == 3 else 0)):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(module(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    together = torch.stack(losses[:STEPS])
    dist.all_reduce(together, op=dist.ReduceOp.AVG)
    return together.tolist()


def zero(rank):
    module = DistributedDataParallel(model())
    return train(
        module,
        *share(rank, N),
        mean_over(),
        lambda parameters: ZeroRedundancyOptimizer(parameters, optimizer_class=torch.optim.AdamW, lr=0.01),
    )


def fsdp1(rank):
    module = FullyShardedDataParallel(model(), device_id=torch.device("cpu"), use_orig_params=True)
    return train(module, *share(rank, N), mean_over())


def sharded(mesh):
    module = model()
    for layer in (module.up, module.down, module):
        fully_shard(layer, mesh=mesh)
    return module


def fsdp2(rank):
    return train(sharded(init_device_mesh("cpu", (N,))), *share(rank, N), mean_over())


def hsdp(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return train(sharded(mesh), *share(rank, N), mean_over())


def tensor(rank):
    mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))
    return train(parallelize_module(model(), mesh, MLP), *data())


def tensor_and_data(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    dp = mesh["dp"]
    module = DistributedDataParallel(parallelize_module(model(), mesh["tp"], MLP), device_mesh=dp)
    return train(module, *share(dp.get_local_rank(), 2), mean_over(dp.get_group()))


def tensor_and_fsdp(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    dp = mesh["dp"]
    module = fully_shard(parallelize_module(model(), mesh["tp"], MLP), mesh=dp)
    return train(module, *share(dp.get_local_rank(), 2), mean_over(dp.get_group()))


class Normed(Mlp):
    """With a norm before, which sequence parallelism splits by rows."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        return super().forward(self.norm(x))


def sequence(rank):
    mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "up": ColwiseParallel(input_layouts=Shard(0)),
        "down": RowwiseParallel(output_layouts=Replicate()),
    }
    x, y = data()
    ours = train(parallelize_module(Normed(), mesh, plan), x.chunk(N)[rank], y)
    torch.manual_seed(0)
    return ours, train(Normed(), x, y)


def classes(rank):
    """A loss over classes that are split over the ranks."""
    mesh = init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))
    wanted = torch.arange(BATCH) % WIDTH
    split = parallelize_module(model().down, mesh, ColwiseParallel(output_layouts=Shard(-1), use_local_output=False))
    x = torch.randn(BATCH, 64, generator=torch.Generator().manual_seed(1))
    with loss_parallel():
        loss = nn.functional.cross_entropy(split(x), wanted)
        loss.backward()
    gradient = split.weight.grad.full_tensor()
    whole = model().down
    expected = nn.functional.cross_entropy(whole(x), wanted)
    expected.backward()
    ours, theirs = (value.detach().double().norm().item() for value in (gradient, whole.weight.grad))
    return [loss.full_tensor().item() if hasattr(loss, "full_tensor") else loss.item(), ours], [expected.item(), theirs]


class Piece(nn.Sequential):
    """Some layers of a pipeline."""


def layers():
    torch.manual_seed(0)
    return [nn.Linear(WIDTH, WIDTH) for _ in range(8)]


def pipeline(schedule, virtual=1):
    def program(rank):
        every, (x, y) = layers(), data()
        each = len(every) // (N * virtual)
        places = [rank + N * v for v in range(virtual)]
        pieces = [Piece(*every[each * place : each * (place + 1)]) for place in places]
        stages = [
            PipelineStage(piece, place, N * virtual, torch.device("cpu")) for piece, place in zip(pieces, places, strict=True)
        ]
        run = schedule(stages if virtual > 1 else stages[0], 8, loss_fn=nn.functional.mse_loss)
        optimizer = adamw([p for piece in pieces for p in piece.parameters()])
        losses = torch.zeros(STEPS)
        for step in range(STEPS):
            optimizer.zero_grad()
            found = []
            ends = {"target": y, "losses": found} if places[-1] == N * virtual - 1 else {}
            run.step(*([x] if rank == 0 else []), **ends)
            optimizer.step()
            losses[step] = torch.stack(found).mean().item() if found else 0
        dist.all_reduce(losses)
        return losses.tolist(), train(nn.Sequential(*layers()), x, y)

    return program


def experts(rank):
    """Each rank's expert gets a row of every rank, and gives it back; gradients go the same way."""
    x, y = share(rank, N)
    torch.manual_seed(0)
    every = [nn.Linear(WIDTH, WIDTH) for _ in range(N)]
    given = differentiable.all_to_all_single(torch.empty_like(x), x)
    back = differentiable.all_to_all_single(torch.empty_like(x), every[rank](given))
    loss = nn.functional.mse_loss(back, y)
    loss.backward()
    told = torch.stack([loss.detach() / N, every[rank].weight.grad.norm() ** 2 / N**2])
    dist.all_reduce(told)
    torch.manual_seed(0)
    whole, (rows, wanted) = [nn.Linear(WIDTH, WIDTH) for _ in range(N)], data()
    one = torch.cat([whole[i % N](rows[i : i + 1]) for i in range(BATCH)])
    expected = nn.functional.mse_loss(one, wanted)
    expected.backward()
    return told.tolist(), [expected.item(), sum(e.weight.grad.norm().item() ** 2 for e in whole)]


def collectives_with_gradients(rank):
    x = torch.full((3,), float(rank + 1), requires_grad=True)
    gathered = torch.stack(differentiable.all_gather(x))
    summed = differentiable.all_reduce(x * 2)
    (gathered.sum() + summed.sum()).backward()
    return [gathered.sum().item(), summed[0].item(), x.grad[0].item()], [30.0, 20.0, 12.0]


def checkpoint(rank):
    """Saved from four shards after a step, loaded into two by two, and trained on."""
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    before = sharded(init_device_mesh("cpu", (N,)))
    losses = train(before, *share(rank, N), mean_over())
    dcp.save({"model": before.state_dict()}, checkpoint_id=folder[0])
    after = sharded(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    state = {"model": after.state_dict()}
    dcp.load(state, checkpoint_id=folder[0])
    after.load_state_dict(state["model"])
    same = [torch.equal(a.full_tensor(), b.full_tensor()) for a, b in zip(before.parameters(), after.parameters(), strict=True)]
    if rank == 0:
        for file in Path(folder[0]).iterdir():
            file.unlink()
    return [*losses, float(all(same))], [*reference(), 1.0]


def redistributed(rank):
    mesh = init_device_mesh("cpu", (2, 2))
    split = distribute_tensor(torch.arange(7.0), mesh, [Shard(0), Shard(0)])
    return split.full_tensor().tolist(), list(map(float, range(7)))


def check(outcomes):
    """Hold what every rank tells, of losses and the like, to one process: its own, or that of `reference`."""
    whole = reference()
    assert len(outcomes) == N
    for outcome in outcomes:
        ours, expected = outcome if isinstance(outcome, tuple) else (outcome, whole)
        assert ours == pytest.approx(expected, rel=1e-5)


STYLES = {
    "ddp": ddp,
    "ddp with a hook": ddp_with_a_hook,
    "power sgd": power_sgd,
    "no_sync": no_sync,
    "join": join,
    "zero": zero,
    "fsdp1": fsdp1,
    "fsdp2": fsdp2,
    "hsdp": hsdp,
    "tp": tensor,
    "tp and ddp": tensor_and_data,
    "tp and fsdp2": tensor_and_fsdp,
    "sp": sequence,
    "loss_parallel": classes,
    "gpipe": pipeline(ScheduleGPipe),
    "1f1b": pipeline(Schedule1F1B),
    "interleaved": pipeline(ScheduleInterleaved1F1B, 2),
    "zero bubble": pipeline(ScheduleInterleavedZeroBubble, 2),
    "experts": experts,
    "functional": collectives_with_gradients,
    "checkpoint": checkpoint,
    "redistributed": redistributed,
}
