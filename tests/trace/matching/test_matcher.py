"""Sends meet the receives that the executor pairs them with, by group, peers and tag, each queue in order."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from emu.backend.rank.record import Recording
from emu.cluster.threads.threads import ThreadRanks
from emu.errors import InputError
from emu.trace.matching.matcher import collective_requests, matched_calls
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.trace import Group
from tests.trace.laid import MS_OF_FLOATS, WORLD, told, trace_of

PAIR = Group("tp", (0, 1))


def paired(trace):
    """Return for each message the row of its sender's event, that of its receiver's, and its size as timed."""
    found = [met for met in matched_calls(trace, "float32") if met.asks[0].name == MESSAGE]
    return sorted(
        (*rows, met.asks[ask].size_bytes) for met in found for rows, ask in zip(met.rows.tolist(), met.ask, strict=True)
    )


def record(program):
    """The trace of two ranks whose one step is that program."""

    def step(rank):
        module = nn.Linear(1, 1)
        module(torch.ones(1)).backward()
        program(rank)
        torch.optim.SGD(module.parameters()).step()

    recording = Recording(2)
    ThreadRanks(2, recording=recording).run(step)
    return recording.trace()


@pytest.mark.parametrize("other", [PAIR, Group("tp", (1, 0)), WORLD], ids=["axis", "turned", "name"])
def test_messages_of_different_groups_do_not_meet(words, other):
    """Groups of the same ranks too, be it that they differ in their axis, their order or their name alone."""
    sends = words.send(1 * MS_OF_FLOATS, 1), words.send(4 * MS_OF_FLOATS, other.ranks.index(1), group=1)
    recvs = words.recv(4 * MS_OF_FLOATS, other.ranks.index(0), group=0), words.recv(1 * MS_OF_FLOATS, 0, group=1)
    roles = words.events(*sends, words.mark([0, 1])), words.events(*recvs, words.mark([0, 1]))
    # Rank 1 uses the other group first, so that its own number of it is 0.
    trace = trace_of(*roles, role_of_rank=(0, 1), groups=(WORLD, other), group_of=((0, 1), (1, 0)))
    assert paired(trace) == [(0, 1, 4 * MS_OF_FLOATS), (1, 0, 16 * MS_OF_FLOATS)]
    # Both leave one port: 1 + 4 ms together, not twice the larger.
    assert told(trace).step_times_fs == (5 * 10**12,)


def test_messages_of_different_groups_are_timed_as_they_were_delivered():
    def program(rank):
        group, small, large = dist.new_group([0, 1]), torch.zeros(10), torch.zeros(1000)
        if rank == 0:
            works = [dist.isend(small, 1), dist.isend(large, 1, group=group)]
        else:
            works = [dist.irecv(large, 0, group=group), dist.irecv(small, 0)]
        for work in works:
            work.wait()

    trace = record(program)
    assert [size for *_, size in paired(trace)] == [40, 4000]
    sends, recvs = ([i for i in range(len(e)) if e.group[i] >= 0] for e in trace.events)
    assert [(s, r) for s, r, _ in paired(trace)] == [(sends[0], recvs[1]), (sends[1], recvs[0])]


def test_tags_may_be_received_in_another_order(words):
    sends = [words.send(ms * MS_OF_FLOATS, 1, tag=ms) for ms in (1, 2)]
    recvs = [words.recv(ms * MS_OF_FLOATS, 0, tag=ms) for ms in (2, 1)]
    roles = (words.events(*rows, words.mark([0, 1])) for rows in (sends, recvs))
    trace = trace_of(*roles, role_of_rank=(0, 1))
    assert [(s, r) for s, r, _ in paired(trace)] == [(0, 1), (1, 0)]
    assert told(trace).step_times_fs == (3 * 10**12,)


def test_of_several_messages_that_nobody_receives_that_of_the_lowest_sender_is_told(words):
    roles = [words.events(words.send(8, peer, tag=tag), words.mark([0])) for peer, tag in ((1, 5), (0, 2))]
    with pytest.raises(InputError, match="got 1 sends and 0 receives of tag 5"):
        matched_calls(trace_of(*roles, role_of_rank=(0, 1)), "float32")


@pytest.mark.parametrize("seed", range(6))
def test_any_programs_messages_are_paired_as_the_executor_pairs_them(seed):
    """Three groups, two of the same ranks, three tags: what arrives says which send it was, and so does the trace."""
    rng = np.random.default_rng(seed)
    sent = [(int(g), int(t)) for g, t in rng.integers(0, 3, (12, 2))]
    asked = [sent[i] for i in rng.permutation(len(sent))]
    arrived = {}

    def program(rank):
        groups = [None, dist.new_group([0, 1]), dist.new_group([0, 1])]
        tensors = [torch.full((1 + i % 2,), float(i)) if rank == 0 else torch.empty(0) for i in range(len(sent))]
        if rank == 0:
            works = [dist.isend(x, 1, group=groups[g], tag=t) for x, (g, t) in zip(tensors, sent, strict=True)]
        else:
            queues = {key: [i for i, other in enumerate(sent) if other == key] for key in sent}
            tensors = [torch.empty(1 + queues[key].pop(0) % 2) for key in asked]
            works = [dist.irecv(x, 0, group=groups[g], tag=t) for x, (g, t) in zip(tensors, asked, strict=True)]
        for work in works:
            work.wait()
        if rank == 1:
            arrived.update({n: int(x[0]) for n, x in enumerate(tensors)})

    trace = record(program)
    sends, recvs = ([i for i in range(len(e)) if e.group[i] >= 0] for e in trace.events)
    assert {recvs.index(r): sends.index(s) for s, r, _ in paired(trace)} == arrived


@pytest.mark.parametrize("steps", [(0, 0), (0, 1), (1, 0)])
def test_a_call_that_one_member_makes_before_the_first_step_is_part_of_no_step(words, steps):
    """A member that comes to it later has its steps begin elsewhere; who waits in set-up has no time to wait."""
    roles = [words.events(words.collective(8, step=step), words.collective(16, instance=1), words.mark([1])) for step in steps]
    found = matched_calls(trace_of(*roles, role_of_rank=(0, 1)), "float32")
    assert [ask.size_bytes for met in found for ask in met.asks] == [64]


def test_messages_of_set_up_may_have_any_size_and_sizes_are_told_in_the_order_of_their_first_message(words):
    """The ends of the first disagree, which costs no step; the second size is the larger one."""
    sends = [words.send(8, 1, step=0), words.send(24, 1), words.send(4, 1), words.send(24, 1), words.mark([0])]
    recvs = [words.recv(9, 0, step=0), words.recv(24, 0), words.recv(4, 0), words.recv(24, 0), words.mark([0])]
    [met] = matched_calls(trace_of(words.events(*sends), words.events(*recvs), role_of_rank=(0, 1)), "float32")
    assert [ask.size_bytes for ask in met.asks] == [96, 16]
    assert (met.ask.tolist(), met.rows.tolist()) == ([0, 1, 0], [[1, 1], [2, 2], [3, 3]])


def test_requests_are_told_by_group_where_equivalent_groups_lie_around_another(words):
    """The first and the last pair play the same roles, and ask for the same of other ranks."""
    mine, other = (words.events(words.collective(count), words.mark()) for count in (4, 8))
    groups = tuple(Group("tp", pair) for pair in ((0, 1), (2, 3), (4, 5)))
    trace = trace_of(mine, other, role_of_rank=(0, 0, 1, 1, 0, 0), groups=groups, group_of=((0,), (0,), (1,), (1,), (2,), (2,)))
    assert [(each.ranks, each.elements) for each in collective_requests(trace)] == [((0, 1), 4), ((2, 3), 8), ((4, 5), 4)]


def test_of_several_queues_that_are_uneven_the_first_is_told_with_its_own_counts(words):
    """Sends and receives of tag 0 and of the other direction are even; of tag 1 there are three sends and one receive."""
    sends = [words.send(8, 1, tag=tag) for tag in (0, 1, 1, 1, 2, 2)] + [words.recv(8, 1)]
    recvs = [words.recv(8, 0, tag=tag) for tag in (2, 1, 0)] + [words.send(8, 0)]
    with pytest.raises(InputError) as error:
        matched_calls(trace_of(*(words.events(*rows) for rows in (sends, recvs)), role_of_rank=(0, 1)), "float32")
    assert str(error.value) == (
        "trace: messages between ranks [0, 1] on group 'world' must be sent and received equally often, got 3 sends and 1 "
        "receives of tag 1"
    )


@pytest.mark.parametrize("odd", range(3))
@pytest.mark.parametrize("changed", [{"root": 2}, {"name": "reduce"}, {"bytes": 40}, {"count": 10}])
def test_a_member_that_differs_is_found_at_any_place_and_in_any_call(words, odd, changed):
    """The error names the one of three calls after set-up that has the odd member."""
    rows = [words.collective(8, "broadcast", instance=i, step=int(i > 0)) for i in range(3)]
    roles = [words.events(*rows[:2], {**rows[2], **(changed if role == odd else {})}, words.mark()) for role in range(3)]
    three = (Group("tp", (0, 1, 2)),)
    with pytest.raises(InputError, match=r"^trace: .*(broadcast|reduce) 2 "):
        matched_calls(trace_of(*roles, role_of_rank=(0, 1, 2), groups=three), "float32")
    early = [words.events({**rows[0], "bytes": 32 + role}, *rows[1:], words.mark()) for role in range(3)]
    [met] = matched_calls(trace_of(*early, role_of_rank=(0, 1, 2), groups=three), "float32")
    assert met.rows.tolist() == [[1] * 3, [2] * 3]
