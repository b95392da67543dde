import pickle

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from emu.backend.rank.record import Recorder, Recording, declare_equal_work
from emu.backend.rank.recorded_events import merge
from emu.cluster.threads.threads import ThreadRanks
from emu.errors import RunError
from emu.trace.trace import Kind


def record(program, n=2):
    recording = Recording(n)
    ThreadRanks(n, recording=recording).run(program)
    return recording.trace()


def waits(events, seq):
    return events.wait[events.wait_start[seq] : events.wait_start[seq + 1]].tolist()


def named(events, name):
    return [seq for seq in range(len(events)) if events.name[seq] == name]


def test_ranks_that_do_the_same_share_a_role():
    trace = record(lambda rank: dist.all_reduce(torch.ones(4) * rank), n=4)
    assert trace.role_of_rank.tolist() == [0] * 4
    assert len(trace.events) == 1
    assert [(g.axis, g.ranks) for g in trace.groups] == [("world", (0, 1, 2, 3))]


def test_ranks_that_do_different_things_have_different_roles():
    def program(rank):
        if rank == 1:
            torch.ones(3) * 2
        dist.barrier()

    assert record(program, n=3).role_of_rank.tolist() == [0, 1, 0]


def test_ranks_of_a_role_have_their_own_groups():
    def program(rank):
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        dist.all_reduce(torch.ones(2), group=pairs[rank // 2])

    trace = record(program, n=4)
    assert trace.role_of_rank.tolist() == [0] * 4
    assert [trace.groups[of_rank[0]].ranks for of_rank in trace.group_of] == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_only_a_wait_is_a_dependency():
    def program(rank):
        x = torch.ones(4)
        work = dist.all_reduce(x, async_op=True)
        y = torch.ones(2) + 1
        work.wait()
        return y * 2

    events = record(program).events_of(0)
    (request,), (before,), (after,) = (named(events, n) for n in ("all_reduce", "aten.add", "aten.mul"))
    assert waits(events, request) == [named(events, "aten.ones")[0]]
    assert waits(events, before) == []
    assert waits(events, after) == [request]


def test_a_wait_counts_once_and_for_a_later_request_too():
    def program(rank):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        work.wait()
        work.wait()
        dist.all_reduce(torch.ones(5))
        return torch.ones(1) + 1

    events = record(program).events_of(0)
    first, second = named(events, "all_reduce")
    ones = named(events, "aten.ones")
    assert waits(events, ones[1]) == [first]
    assert waits(events, second) == [ones[1]]
    assert waits(events, ones[2]) == [second]


def test_a_request_right_after_a_wait_waits_and_so_does_the_next_computation():
    def program(rank):
        x, y = torch.ones(4), torch.ones(5)
        dist.all_reduce(x)
        dist.all_reduce(y, async_op=True)
        return x + 1

    events = record(program).events_of(0)
    first, second = named(events, "all_reduce")
    assert waits(events, second) == [first - 1, first]
    assert waits(events, named(events, "aten.add")[0]) == [first]


def test_sizes_are_the_operation_s():
    def program(rank):
        mine = torch.ones(3, dtype=torch.float64)
        dist.all_gather_single(torch.empty(6, dtype=torch.float64), mine)
        dist.scatter(mine, [mine, mine] if rank == 1 else None, 1)
        splits = [1, 3] if rank == 0 else [3, 4]
        dist.all_to_all_single(torch.empty(sum(splits)), torch.ones(sum(splits)), splits, splits)

    trace = record(program)
    events = trace.events_of(0)
    found = {
        events.name[i]: (events.dtype[i], events.count[i], events.bytes[i]) for i in range(len(events)) if events.group[i] >= 0
    }
    assert found == {
        "all_gather": ("float64", 6, 48),
        "scatter": ("float64", 6, 48),
        "all_to_all": ("float32", 7, 28),
    }
    assert [e.root[named(e, "scatter")[0]] for e in trace.events] == [1] * len(trace.events)


def test_instances_count_the_calls_of_a_group():
    def program(rank):
        pair = dist.new_group([0, 1])
        for group in (None, pair, None, pair, pair):
            dist.barrier(group=group)

    events = record(program).events_of(0)
    assert list(zip(events.group.tolist(), events.instance.tolist(), strict=True)) == [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)]
    assert events.stream.tolist() == [0] * 5


def test_messages_have_peers_and_tags_of_their_own():
    def program(rank):
        x = torch.ones(2)
        for tag in (5, 5, 6):
            sending = dist.isend(x, 1 - rank, tag=tag)
            dist.recv(x, 1 - rank, tag=tag)
            sending.wait()

    trace = record(program)
    kinds = [Kind.COMPUTE, *[Kind.SEND, Kind.RECV] * 3]
    for rank in (0, 1):
        events = trace.events_of(rank)
        assert events.kind.tolist() == kinds
        assert events.root.tolist() == [0] + [1 - rank] * 6
        assert events.tag.tolist() == [0, 5, 5, 5, 5, 6, 6]
        assert events.instance.tolist() == [0, 0, 0, 1, 1, 0, 0]


def train(rank, buckets_mb=0.001, steps=3):
    torch.manual_seed(0)
    layers = [nn.Linear(32, 32) for _ in range(4)]
    module = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=buckets_mb)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        module(torch.ones(2, 32)).sum().backward()
        optimizer.step()


@pytest.fixture(scope="module")
def ddp():
    return record(train).events_of(0)


def test_steps_end_at_the_optimizer_and_set_up_at_the_first_forward(ddp):
    marks = [(ddp.name[i], ddp.step[i]) for i in range(len(ddp)) if ddp.kind[i] == Kind.MARK]
    assert marks == [(name, step) for step in (1, 2, 3) for name in ("optimizer", "step")]
    assert sorted(set(ddp.step.tolist())) == [0, 1, 2, 3]
    assert (ddp.step[1:] >= ddp.step[:-1]).all()
    set_up = {ddp.name[i] for i in range(len(ddp)) if ddp.step[i] == 0 and ddp.group[i] >= 0}
    assert set_up == {"all_gather", "broadcast"}
    assert "aten.addmm" not in {ddp.name[i] for i in range(len(ddp)) if ddp.step[i] == 0}


def test_what_follows_the_last_optimizer_step_is_of_no_step():
    def program(rank):
        train(rank, steps=2)
        dist.reduce(torch.ones(3), 0)

    events = record(program).events_of(1)
    assert [int(events.step[i]) for i in named(events, "reduce")] == [0]
    assert int(events.step.max()) == 2


def test_the_buckets_of_ddp_are_joined_at_the_end_of_the_backward(ddp):
    last = [i for i in range(len(ddp)) if ddp.step[i] == 3]
    reduces = [i for i in last if ddp.name[i] == "all_reduce"]
    assert len(reduces) >= 3
    joining = [i for i in last if set(waits(ddp, i)) & set(reduces)]
    assert len(joining) == 1
    assert waits(ddp, joining[0]) == reduces[-1:]  # those of a group end in their order
    products = [i for i in last if ddp.name[i] == "aten.mm"]
    assert reduces[0] < products[-1] < reduces[-1] < joining[0]
    assert min(i for i in last if ddp.name[i] == "aten.add_") > joining[0]


def test_each_bucket_leaves_when_it_is_computed(ddp):
    for i in named(ddp, "all_reduce"):
        assert ddp.kind[i - 1] == Kind.COMPUTE
        assert waits(ddp, i) == [i - 1]


def test_a_future_taken_outside_a_backward_is_joined_at_the_next_optimizer_step():
    def program(rank):
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        layer(torch.ones(1, 2)).sum().backward()
        dist.all_reduce(layer.weight.grad, async_op=True).get_future()
        torch.ones(1) * 2
        optimizer.step()

    events = record(program).events_of(0)
    (request,) = named(events, "all_reduce")
    assert [i for i in range(len(events)) if request in waits(events, i)] == named(events, "optimizer")
    assert named(events, "optimizer")[0] < named(events, "aten.add_")[0]


def test_what_the_executor_does_is_no_rank_s_computation():
    def program(rank):
        x = torch.ones(1000)
        parts = list(x.chunk(2))
        for _ in range(3):
            dist.all_reduce(x)
            dist.all_gather(parts, x[:500] if rank else x[500:])

    events = record(program).events_of(0)
    assert [events.name[i] for i in range(len(events)) if events.kind[i] == Kind.COMPUTE] == ["aten.ones"]


def test_the_peak_is_the_rank_s_largest_live_storage():
    def program(rank):
        for _ in range(3):
            torch.ones(1000 * (rank + 1)).sum()

    trace = record(program)
    assert [trace.peak_bytes[trace.role_of_rank[rank]] for rank in (0, 1)] == [
        pytest.approx(4000, abs=64),
        pytest.approx(8000, abs=64),
    ]


@pytest.mark.parametrize("largest", [0, 1, 2])
def test_the_peak_of_a_role_is_the_largest_of_its_ranks_whichever_has_it(largest):
    def program(rank):
        held = torch.empty(1000 * (3 if rank == largest else 1))  # an allocation is no event
        dist.barrier()
        del held

    trace = record(program, n=3)
    assert trace.role_of_rank.tolist() == [0, 0, 0]
    assert trace.peak_bytes.tolist() == [pytest.approx(12000, abs=64)]


def test_ranks_that_wait_for_different_things_have_different_roles():
    def program(rank):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        if rank == 1:
            work.wait()
        torch.ones(2)
        work.wait()

    trace = record(program, n=3)
    first, second = (trace.events_of(rank) for rank in (0, 1))
    assert first.name == second.name
    assert trace.role_of_rank.tolist() == [0, 1, 0]
    computed = named(first, "aten.ones")[-1]
    assert waits(first, computed) == []
    assert waits(second, computed) == named(second, "all_reduce")


def test_roles_keep_their_own_events_peaks_and_groups_in_the_order_in_which_they_first_appear():
    def program(rank):
        groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        held, sent = torch.empty(1000 * (rank + 1)), torch.empty(1)
        for _ in range(1 + rank % 2):
            dist.all_reduce(sent, group=groups[rank % 2])
        del held

    trace = record(program, n=4)
    assert trace.role_of_rank.tolist() == [0, 1, 0, 1]
    assert [len(named(events, "all_reduce")) for events in trace.events] == [1, 2]
    assert trace.peak_bytes.tolist() == [pytest.approx(12000, abs=64), pytest.approx(16000, abs=64)]
    assert [trace.groups[of_rank[0]].ranks for of_rank in trace.group_of] == [(0, 2), (1, 3), (0, 2), (1, 3)]


def test_notes_of_ranks_in_other_processes_make_the_same_trace():
    recording = Recording(2)
    ThreadRanks(2, recording=recording).run(train)
    notes = pickle.loads(pickle.dumps([recording.of(rank).recorded_events() for rank in range(2)]))
    assert merge(notes).digest() == recording.trace().digest()


def test_nothing_is_left_behind():
    record(train)
    assert not nn.modules.module._global_forward_pre_hooks
    assert not _global_optimizer_pre_hooks
    assert not _global_optimizer_post_hooks


def test_a_trace_of_nothing_is_empty():
    trace = record(lambda _: None)
    assert len(trace.events) == 1
    assert len(trace.events[0]) == 0
    assert trace.groups == ()


def alike(rank, n_steps=2, twice=False):
    """A rank that says it computes what the others of its half do; rank 3 may not keep to it."""
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    declare_equal_work(rank // 2)
    for _ in range(n_steps):
        layer(torch.ones(2 + rank // 2, 4)).sum().backward()
        for parameter in layer.parameters():
            dist.all_reduce(parameter.grad)
        if twice and rank == 3:
            dist.all_reduce(torch.ones(1), group=dist.new_group([3], use_local_synchronization=True))
        optimizer.step()
        optimizer.zero_grad()


def test_ranks_that_compute_alike_are_counted_once_and_the_trace_is_as_if_each_were(monkeypatch):
    counted, own = [], Recorder.operator
    monkeypatch.setattr(Recorder, "operator", lambda self, operator: (counted.append(id(self)), own(self, operator))[1])
    once = record(alike, n=4)
    assert len(set(counted[len(counted) // 2 :])) == 2  # one of each half, after the set-up
    counted.clear()
    monkeypatch.setattr(f"{__name__}.declare_equal_work", lambda _: None)
    each = record(alike, n=4)
    assert len(set(counted[len(counted) // 2 :])) == 4
    assert once.digest() == each.digest()
    assert once.role_of_rank.tolist() == [0, 0, 1, 1]


def test_a_rank_that_was_said_to_compute_alike_and_asks_for_more_is_refused():
    with pytest.raises(RunError, match="ranks that are declared to compute the same made different requests"):
        record(lambda rank: alike(rank, twice=True), n=4)


def test_a_rank_whose_set_up_was_another_is_counted_by_itself():
    def program(rank):
        torch.ones(1 + rank) * 2
        declare_equal_work("all")
        dist.barrier()
        torch.ones(3) * 2

    assert record(program, n=2).role_of_rank.tolist() == [0, 1]
