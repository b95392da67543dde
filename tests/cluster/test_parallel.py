"""PyTorch's own parallel pieces on thread ranks, against one process and no process group."""

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

from emu.backend.rank.record import Recording
from emu.cluster.threads.threads import ThreadRanks
from emu.trace.trace import Kind
from tests.cluster.styles import MLP, STEPS, STYLES, N, check, mean_over, model, reference, share, train


@pytest.mark.filterwarnings("ignore:torch.distributed.nn.functional:FutureWarning")
@pytest.mark.parametrize("style", STYLES)
def test_every_style_has_the_losses_of_one_process(style):
    check(ThreadRanks(N).run(STYLES[style]))


@pytest.fixture(scope="module")
def whole():
    return reference()


def check_losses(losses, whole):
    for of_rank in losses:
        assert of_rank == pytest.approx(whole, rel=1e-5)
    assert whole[-1] < whole[0]


@pytest.mark.parametrize("n", [1, 2, 8])
def test_ddp_with_several_buckets_has_the_loss_of_one_process(n, whole):
    def program(rank):
        module = DistributedDataParallel(model(), bucket_cap_mb=0.001)
        return train(module, *share(rank, n), mean_over())

    recording = Recording(n)
    check_losses(ThreadRanks(n, recording=recording).run(program), whole)
    events = recording.trace().events_of(0)
    buckets = [
        i for i in range(len(events)) if events.step[i] == STEPS and events.name[i] == "all_reduce" and events.count[i] > 1
    ]
    assert len(buckets) > 1


def test_uneven_shards_are_each_rank_s_own():
    """7 rows over 2 x 2: if meshes of two ranks were equal, DTensor's process-wide caches would mix the shards' sizes."""

    def program(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        sharded = distribute_tensor(torch.arange(7.0), mesh, [Shard(0), Shard(0)])
        return sharded.to_local().tolist(), sharded.full_tensor().tolist()

    whole = list(range(7))
    assert ThreadRanks(4).run(program) == [(part, whole) for part in ([0, 1], [2, 3], [4, 5], [6])]


def test_data_and_tensor_parallel_together_have_the_loss_of_one_process(whole):
    def program(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        dp = mesh["dp"]
        sharded = parallelize_module(model(), mesh["tp"], MLP)
        module = DistributedDataParallel(sharded, device_mesh=dp, bucket_cap_mb=0.001)
        return train(module, *share(dp.get_local_rank(), 2), mean_over(dp.get_group()))

    recording = Recording(4)
    check_losses(ThreadRanks(4, recording=recording).run(program), whole)
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
