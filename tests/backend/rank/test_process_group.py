"""Collectives and messages of a process group between threads: results, places, order, and what is refused."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from emu.backend.rank.record import Recording
from emu.cluster.threads.threads import ThreadRanks
from emu.errors import RunError
from emu.trace.trace import Kind


def test_avg_divides_the_sum():
    def program(rank):
        whole, share = torch.full((4,), rank + 1.0), torch.empty(2)
        dist.all_reduce(whole, dist.ReduceOp.AVG)
        dist.reduce_scatter_single(share, torch.arange(6.0) * (rank + 1), dist.ReduceOp.AVG)
        return whole.tolist(), share.tolist()

    assert ThreadRanks(3).run(program) == [([2.0] * 4, [4.0 * r, 4.0 * r + 2]) for r in range(3)]


def test_bits_are_reduced():
    def program(rank):
        given = [torch.tensor([1 << rank, 7]) for _ in range(3)]
        for tensor, op in zip(given, (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR), strict=True):
            dist.all_reduce(tensor, op)
        return [t.tolist() for t in given]

    assert ThreadRanks(3).run(program) == [[[0, 7], [7, 7], [7, 7]]] * 3


def test_lists_of_unequal_sizes_are_gathered_scattered_and_exchanged():
    def program(rank):
        sizes = [1, 0, 4]
        gathered = [torch.empty(s) for s in sizes]
        dist.all_gather(gathered, torch.full((sizes[rank],), float(rank)))
        share = torch.empty(sizes[rank])
        dist.reduce_scatter(share, [torch.full((s,), float(s)) for s in sizes])
        come = [torch.empty(rank + s) for s in range(3)]
        dist.all_to_all(come, [torch.full((rank + d,), 10.0 * rank + d) for d in range(3)])
        return gathered, share, come

    for rank, (gathered, share, come) in enumerate(ThreadRanks(3).run(program)):
        assert [t.tolist() for t in gathered] == [[0.0], [], [2.0] * 4]
        assert share.tolist() == [3.0 * [1, 0, 4][rank]] * [1, 0, 4][rank]
        assert [t.tolist() for t in come] == [[10.0 * s + rank] * (rank + s) for s in range(3)]


def test_coalesced_calls_keep_each_tensor_s_shape_and_place():
    def program(rank):
        world = dist.group.WORLD
        gathered = functional.all_gather_into_tensor_coalesced([torch.full((1, 2), rank), torch.full((2, 3), -rank)], world)
        reduced = functional.all_reduce_coalesced([torch.ones(2), torch.full((3, 1), rank + 1.0)], "sum", world)
        shares = functional.reduce_scatter_tensor_coalesced([torch.arange(4.0), torch.arange(6.0) * rank], "sum", [0, 0], world)
        return [[t + 0 for t in several] for several in (gathered, reduced, shares)]

    with pytest.warns(FutureWarning):
        made = ThreadRanks(2).run(program)
    for rank, (gathered, reduced, shares) in enumerate(made):
        assert torch.equal(gathered[0], torch.tensor([[0, 0], [1, 1]]))
        assert torch.equal(gathered[1], torch.cat([torch.zeros(2, 3, dtype=int), -torch.ones(2, 3, dtype=int)]))
        assert torch.equal(reduced[0], torch.full((2,), 2.0))
        assert torch.equal(reduced[1], torch.full((3, 1), 3.0))
        assert torch.equal(shares[0], 2 * torch.arange(4.0).chunk(2)[rank])
        assert torch.equal(shares[1], torch.arange(6.0).chunk(2)[rank])


def test_tensors_that_are_not_contiguous_are_written_in_place():
    def program(rank):
        whole = torch.zeros(4, 4)
        columns = whole[:, ::2]
        columns += rank + 1
        dist.all_reduce(columns)
        got = torch.zeros(3, 2).t()
        dist.broadcast(got if rank else torch.arange(6.0).reshape(3, 2).t(), 0)
        return whole, got

    for rank, (whole, got) in enumerate(ThreadRanks(2).run(program)):
        assert torch.equal(whole, torch.tensor([[3.0, 0, 3, 0]] * 4))
        assert rank == 0 or torch.equal(got, torch.arange(6.0).reshape(3, 2).t())


def test_a_reduction_leaves_the_inputs_of_others_and_its_own_alone():
    def program(rank):
        mine, given, share = torch.arange(4.0) + rank, torch.arange(6.0) + rank, torch.empty(2)
        dist.reduce(mine, 0)
        dist.reduce_scatter_single(share, given)
        return mine, given

    for rank, (mine, given) in enumerate(ThreadRanks(3).run(program)):
        assert rank == 0 or torch.equal(mine, torch.arange(4.0) + rank)
        assert torch.equal(given, torch.arange(6.0) + rank)


def test_an_output_inside_its_input_is_right():
    def program(rank):
        given = torch.arange(6.0) * (rank + 1)
        dist.reduce_scatter_single(given[2 * rank : 2 * rank + 2], given)
        return given[2 * rank : 2 * rank + 2]

    for rank, share in enumerate(ThreadRanks(3).run(program)):
        assert torch.equal(share, 6 * torch.arange(6.0)[2 * rank : 2 * rank + 2])


def test_a_collective_does_not_disturb_autograd():
    def program(rank):
        x = torch.ones(2, requires_grad=True)
        y = x * 3
        dist.all_reduce(y.detach())
        y.sum().backward()
        return x.grad.tolist(), y.tolist()

    assert ThreadRanks(2).run(program) == [([3.0, 3.0], [6.0, 6.0])] * 2


def test_a_receive_from_any_rank_takes_what_was_sent_first_and_says_by_whom():
    def program(rank):
        got = torch.zeros(2)
        if rank:
            dist.send(torch.full((2,), float(rank)), 0, tag=5)
            return None
        first = dist.recv(got, tag=5), got.tolist()
        named = dist.recv(got, 2, tag=5), got.tolist()
        late = dist.irecv(got, tag=5)
        late.wait()
        return first, named, (late._source_rank(), got.tolist())

    recording = Recording(4)
    told = ThreadRanks(4, recording=recording).run(program)[0]
    assert told == ((1, [1, 1]), (2, [2, 2]), (3, [3, 3]))
    events = recording.trace().events_of(0)
    received = [(r, i) for k, r, i in zip(events.kind, events.root, events.instance, strict=True) if k == Kind.RECV]
    assert received == [(1, 0), (2, 0), (3, 0)]


def test_messages_to_one_rank_meet_in_their_order_whether_their_sender_is_named_or_not():
    def program(rank):
        if rank == 1:
            for value in range(4):
                dist.send(torch.tensor([value]), 0)
            return None
        if rank == 0:
            got = [torch.empty(1, dtype=torch.int64) for _ in range(4)]
            for work in [dist.irecv(t, None if i % 2 else 1) for i, t in enumerate(got)]:
                work.wait()
            return [t.item() for t in got]
        return None

    recording = Recording(2)
    assert ThreadRanks(2, recording=recording).run(program)[0] == [0, 1, 2, 3]
    events = recording.trace().events_of(0)
    assert [i for k, i in zip(events.kind, events.instance, strict=True) if k == Kind.RECV] == [0, 1, 2, 3]


def test_a_receive_that_no_rank_sends_to_is_named():
    with pytest.raises(RunError, match=r"deadlock: rank 0 waits in recv .* for the send of any rank \(tag 0\)"):
        ThreadRanks(2).run(lambda rank: rank or dist.recv(torch.ones(1)))


def test_a_sum_of_what_each_rank_multiplies_first():
    def program(rank):
        factor = dist._make_nccl_premul_sum(rank + 1.0)
        whole, rooted, share = torch.full((2,), 10.0), torch.ones(3), torch.empty(1)
        dist.all_reduce(whole, factor)
        dist.reduce(rooted, 0, dist._make_nccl_premul_sum(torch.tensor([rank + 1.0])))
        dist.reduce_scatter_single(share, torch.arange(2.0), factor)
        listed = torch.empty(1)
        dist.reduce_scatter(listed, [torch.tensor([1.0]), torch.tensor([2.0])], factor)
        return whole.tolist(), rooted.tolist(), share.item(), listed.item()

    assert ThreadRanks(2).run(program) == [([30.0, 30.0], [3.0] * 3, 0.0, 3.0), ([30.0, 30.0], [1.0] * 3, 3.0, 6.0)]


def test_a_sum_of_integers_that_are_multiplied_first_is_refused_by_its_dtype():
    with pytest.raises(RunError, match=r"rank \d: _make_nccl_premul_sum: dtype must be one of float64, .*, got 'int64'; cast"):
        ThreadRanks(2).run(lambda _: dist.all_reduce(torch.tensor([2]), dist._make_nccl_premul_sum(2.0)))


@pytest.mark.parametrize(("value", "mean"), [(torch.full((4,), 4e4, dtype=torch.float16), 4e4), (torch.tensor([-7]), -10)])
def test_averages_are_those_of_nccl_in_float16_and_of_integers(value, mean):
    def program(rank):
        mine = value * (1 if value.is_floating_point() else 1 + rank // 2 * 2 - rank % 2)
        dist.all_reduce(mine, dist.ReduceOp.AVG)
        return mine[0].item()

    assert ThreadRanks(4).run(program) == [mean] * 4


def test_requests_that_are_coalesced_by_device_are_awaited_together():
    def program(rank):
        group, device = dist.group.WORLD, torch.device("cpu")
        a, b = torch.ones(2), torch.full((3,), float(rank))
        with dist.distributed_c10d._coalescing_manager(group, device, async_ops=True) as both:
            dist.all_reduce(a)
            dist.all_reduce(b)
        both.wait()
        group._start_coalescing(device)
        works = [dist.broadcast(a, 1, async_op=True), dist.all_reduce(b, async_op=True)]
        together = group._end_coalescing(device)
        together.wait()
        assert together.is_completed()
        assert together.is_success()
        assert together.exception() is None
        assert len(together.get_future().wait()) == len(together.result()) == len(works)
        return a.tolist(), b.tolist()

    assert ThreadRanks(2).run(program) == [([2.0, 2.0], [2.0] * 3)] * 2


def test_a_group_is_split_and_a_barrier_monitored():
    def program(rank):
        dist.group.WORLD.monitored_barrier()
        half = dist.group.WORLD.split_group([2 * (rank // 2), 2 * (rank // 2) + 1])
        assert dist.group.WORLD.split_group([(rank + 1) % 4]) is None
        total = torch.tensor([float(rank)])
        dist.all_reduce(total, group=half)
        return total.item(), dist.get_process_group_ranks(half)

    assert ThreadRanks(4).run(program) == [(1.0, [0, 1])] * 2 + [(5.0, [2, 3])] * 2


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda group: group.merge_remote_group(None, 2), "merge_remote_group"),
    ],
)
def test_what_is_not_emulated_says_so_by_its_name(call, named):
    with pytest.raises(RunError, match=f"NotImplementedError: emu: {named} is not emulated; ") as error:
        ThreadRanks(1).run(lambda _: call(dist.group.WORLD))
    assert isinstance(error.value.__cause__, NotImplementedError)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: dist.all_to_all_single(torch.empty(3), torch.empty(3)),
            "all_to_all: 3 rows do not divide by 2 ranks; give the split sizes",
        ),
        (
            lambda: dist.all_to_all_single(torch.empty(4), torch.empty(4), [2, 2], [1, 2]),
            r"all_to_all: split sizes must be 2 numbers that add up to 4 rows, got \[1, 2\]",
        ),
        (
            lambda: dist.reduce_scatter_single(torch.empty(1), torch.empty(3)),
            "reduce_scatter: 3 elements do not divide by 2 ranks",
        ),
        (
            lambda: dist.group.WORLD.allreduce_coalesced([torch.ones(1), torch.ones(1, dtype=int)]),
            r"all_reduce: tensors must be one or more of one dtype, got \['float32', 'int64'\]; call it once a dtype",
        ),
        (
            lambda: dist.broadcast(torch.ones(2, 2).to_sparse(), 0),
            "broadcast: tensors must be dense and on the CPU, got 'torch.sparse_coo on cpu'",
        ),
        (
            lambda: dist.all_reduce(torch.ones(2, 2).to_sparse(), dist.ReduceOp.MAX),
            "all_reduce: the reduction of a sparse tensor must be sum, of one tensor at a time, got 'max'",
        ),
        (
            lambda: dist.all_reduce(torch.ones(2, 2 + dist.get_rank()).to_sparse()),
            r"all_reduce: a sparse tensor must be of one shape on all ranks, got '\[2, 2\] on rank 0 of the group'",
        ),
        (
            lambda: dist.all_reduce(torch.ones(1, 1, 1, 1, 1).to_sparse()),
            "all_reduce: a sparse tensor must be of 4 sparse and 4 dense dims at most, got '5 and 0'",
        ),
        (
            lambda: dist.all_reduce(torch.empty(2, device="meta")),
            "all_reduce: tensors must be dense and on the CPU, got 'torch.strided on meta'",
        ),
        (
            lambda: dist.all_reduce(torch.ones(2, 1).expand(2, 3)),
            r"all_reduce: tensors must be of elements of their own, got '\[2, 3\] that repeats some'; clone it first",
        ),
        (
            lambda: dist.all_gather(list(torch.zeros(6).unfold(0, 4, 2)), torch.ones(4)),
            "all_gather: two of the tensors that are written share memory; give each its own",
        ),
        (
            lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e5m2)),
            "all_reduce: dtype must be one that can be reduced, got 'float8_e5m2'",
        ),
        (
            lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BXOR),
            "all_reduce: reduce must be sum, avg, product, min or max for float32, got 'xor'",
        ),
    ],
)
def test_bad_input_is_refused_with_rank_and_line(call, said):
    with pytest.raises(RunError, match=rf"^rank [01]: {said}.* \(tests/backend/rank/test_process_group.py:\d+\)$"):
        ThreadRanks(2).run(lambda _: call())


def test_columns_of_one_tensor_are_gathered_apart():
    def gathers(rank):
        table = torch.zeros(3, 2)
        dist.all_gather([table[:, 0], table[:, 1]], torch.full((3,), float(rank)))
        return table

    assert all(torch.equal(table, torch.tensor([[0.0, 1.0]] * 3)) for table in ThreadRanks(2).run(gathers))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bool, torch.complex64])
def test_other_dtypes_are_moved_by_the_methods_of_pytorch(dtype):
    def moves(rank):
        mine = torch.tensor([rank, 1, 0]).to(dtype)
        gathered, swapped, shared = [torch.empty_like(mine) for _ in range(3)], torch.empty_like(mine), mine.clone()
        dist.all_gather(gathered, mine)
        dist.all_to_all_single(swapped, mine)
        dist.broadcast(shared, 2)
        return [t.to(torch.complex64).real.tolist() for t in (*gathered, swapped, shared)]

    high = 1.0 if dtype is torch.bool else 2.0
    rows = [[0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [high, 1.0, 0.0]]
    for rank, (*gathered, swapped, shared) in enumerate(ThreadRanks(3).run(moves)):
        assert (gathered, swapped, shared) == (rows, [row[rank] for row in rows], rows[2])


def test_names_sizes_and_axes_of_groups():
    def program(rank):
        pair = dist.new_group([1, 2])
        mesh = dist.device_mesh.init_device_mesh("cpu", (3,), mesh_dim_names=("tp",))
        world, names = dist.group.WORLD, []
        if rank:
            names = [pair.members.axis, pair.members.ranks, pair.rank(), pair.size(), pair.get_group_store() is not None]
            pair.abort(), pair.set_timeout(None), pair.shutdown()
        return names, world.members.axis, world.getBackendName(), world.name(), mesh["tp"].get_group() is world

    assert ThreadRanks(3).run(program) == [
        ([], "tp", "emu", "emu", True),
        (["", (1, 2), 0, 2, True], "tp", "emu", "emu", True),
        (["", (1, 2), 1, 2, True], "tp", "emu", "emu", True),
    ]


def test_a_group_s_axis_is_its_mesh_s_dim():
    def program(rank):
        before = dist.group.WORLD.members.axis
        named = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        unnamed = dist.device_mesh.init_device_mesh("cpu", (2, 2))
        groups = named.get_group("dp"), named.get_group("tp"), unnamed.get_group(0)
        return before, *(g.members.axis for g in groups)

    assert ThreadRanks(4).run(program) == [("world", "dp", "tp", "")] * 4
