"""PyTorch's own parallel pieces on thread ranks, against one process and no process group."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from emu.backend.rank.record import Recording
from emu.cluster.threads import Threads
from emu.trace.trace import Kind

BATCH, WIDTH, STEPS = 16, 16, 3
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


def train(module, x, y, mean=lambda loss: loss.item()):
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        losses.append(mean(loss.detach()))
    return losses


@pytest.fixture(scope="module")
def reference():
    return train(model(), *data())


def mean_over(group):
    def mean(loss):
        whole = loss.clone()
        dist.all_reduce(whole, group=group)
        return whole.item() / dist.get_world_size(group)

    return mean


def share(rank, n):
    return [t.chunk(n)[rank] for t in data()]


def check(losses, reference):
    for of_rank in losses:
        assert of_rank == pytest.approx(reference, rel=1e-5)
    assert reference[-1] < reference[0]


@pytest.mark.parametrize("n", [1, 2, 8])
def test_ddp_with_several_buckets_has_the_loss_of_one_process(n, reference):
    def program(rank):
        module = DistributedDataParallel(model(), bucket_cap_mb=0.001)
        return train(module, *share(rank, n), mean_over(None))

    recording = Recording(n)
    check(Threads(n, recording=recording).run(program), reference)
    events = recording.trace().events_of(0)
    buckets = [
        i for i in range(len(events)) if events.step[i] == STEPS and events.name[i] == "all_reduce" and events.count[i] > 1
    ]
    assert len(buckets) > 1


def test_tensor_parallel_has_the_loss_of_one_process(reference):
    def program(rank):
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
        return train(parallelize_module(model(), mesh, MLP), *data())

    check(Threads(4).run(program), reference)


def test_uneven_shards_are_each_rank_s_own():
    """7 rows over 2 x 2: if meshes of two ranks were equal, DTensor's process-wide caches would mix the shards' sizes."""

    def program(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        sharded = distribute_tensor(torch.arange(7.0), mesh, [Shard(0), Shard(0)])
        return sharded.to_local().tolist(), sharded.full_tensor().tolist()

    whole = list(range(7))
    assert Threads(4).run(program) == [(part, whole) for part in ([0, 1], [2, 3], [4, 5], [6])]


def test_data_and_tensor_parallel_together_have_the_loss_of_one_process(reference):
    def program(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        dp = mesh["dp"]
        sharded = parallelize_module(model(), mesh["tp"], MLP)
        module = DistributedDataParallel(sharded, device_mesh=dp, bucket_cap_mb=0.001)
        return train(module, *share(dp.get_local_rank(), 2), mean_over(dp.get_group()))

    recording = Recording(4)
    check(Threads(4, recording=recording).run(program), reference)
    trace = recording.trace()
    assert trace.role_of_rank.tolist() == [0, 0, 0, 0]
    assert {(g.axis, g.ranks) for g in trace.groups} == {("dp", (0, 2)), ("dp", (1, 3)), ("tp", (0, 1)), ("tp", (2, 3))}
    for rank, of_rank in enumerate(trace.group_of):
        assert all(rank in trace.groups[group].ranks for group in of_rank)
    events = trace.events_of(0)
    axes = {
        trace.groups[trace.group_of[0][g]].axis for g, k in zip(events.group, events.kind, strict=True) if k == Kind.COLLECTIVE
    }
    assert axes == {"dp", "tp"}


def test_fully_shard_has_the_loss_of_one_process(reference):
    def program(rank):
        mesh = init_device_mesh("cpu", (4,))
        module = model()
        for layer in (module.up, module.down):
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        return train(module, *share(rank, 4), mean_over(None))

    check(Threads(4).run(program), reference)
