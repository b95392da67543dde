import numpy as np
import pytest

from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.errors import InputError
from emu.fabric.run import run_graph
from emu.study.training.step.step import time_trace
from emu.topology.catalogue import build_topology
from emu.trace.replay.replay import TraceLayout
from emu.trace.replay.replay_graph import Service, event_name
from emu.trace.report.report import report
from emu.trace.trace import Group
from tests.trace.laid import DEVICE, MS_OF_FLOATS, in_ms, replay, replayed, star_of, told, trace_of
from topologies.simple import full_mesh


def test_computations_of_a_rank_follow_one_another(words):
    step = told(trace_of(words.events(words.compute(3), words.compute(4), words.mark())))
    assert in_ms(step) == (7, 7, 0, 0)


def test_communication_that_is_waited_for_late_is_hidden(words):
    rows = words.compute(3), words.collective(2 * MS_OF_FLOATS), words.compute(5), words.mark([1])
    step = told(trace_of(words.events(*rows)))
    assert in_ms(step) == (8, 8, 0, 0)
    assert step.total_comm_fs == 2 * 10**12
    assert step.exposed_comm_by_axis_s == {"world": 0}


def test_communication_that_is_waited_for_early_is_exposed(words):
    rows = words.compute(3), words.collective(4 * MS_OF_FLOATS), words.compute(1), words.compute(2, waits=[1]), words.mark()
    step = told(trace_of(words.events(*rows)))
    assert in_ms(step) == (3 + 4 + 2, 6, 3, 0)
    assert step.total_comm_fs == 4 * 10**12


def test_what_nobody_waits_for_delays_no_computation(words):
    step = told(trace_of(words.events(words.collective(9 * MS_OF_FLOATS), words.compute(1), words.compute(1))))
    assert in_ms(step) == (9, 2, 7, 0)


def test_collectives_of_one_group_run_in_order(words):
    rows = [words.collective(4 * MS_OF_FLOATS, instance=i) for i in range(2)]
    laid = replayed(trace_of(words.events(*rows, words.mark([0, 1]))))
    done = run_graph(laid.graph)
    ends = done.end_fs[laid.ends[: len(rows)]] / 10**12
    assert ends.tolist() == [4, 8]


def test_each_groups_collectives_run_in_order_whatever_the_others_do(words):
    """Two groups of the same ranks share their ports: the first of both, then the second, and not three at a time."""
    groups = Group("tp", (0, 1)), Group("dp", (0, 1))
    rows = [words.collective(4 * MS_OF_FLOATS, group=g, instance=i) for i in (0, 1) for g in (0, 1)]
    laid = replayed(trace_of(words.events(*rows), groups=groups, group_of=((0, 1), (0, 1))))
    assert (run_graph(laid.graph).end_fs[laid.ends[:4]] / 10**12).tolist() == [8, 8, 16, 16]


def test_what_a_switch_sends_is_of_no_event_and_what_a_rank_sends_of_its_request(words):
    """Rank 0 asks in its second event, rank 1 in its first; the switch sends each of them the sum."""
    asks, switch = words.collective(MS_OF_FLOATS), build_topology("nvl:72")
    roles = (words.events(words.compute(1), asks, words.mark([1])), words.events(asks, words.mark([0])))
    trace = trace_of(*roles, role_of_rank=(0, 1), groups=(Group("tp", (0, 1)),))
    graph = replay(trace, Choice({"all_reduce": "in-switch"}), switch).graph
    sends = np.diff(graph.hop_start) > 0
    of = set(zip(graph.owner[sends].tolist(), graph.origin[sends].tolist(), strict=True))
    assert of == {(0, 1), (1, 0), (-1, -1)}


def test_collectives_of_different_groups_overlap(words):
    # Rows and columns of a square of ranks, every pair of which has its own link.
    groups = Group("tp", (0, 1)), Group("tp", (2, 3)), Group("dp", (0, 2)), Group("dp", (1, 3))
    rows = words.collective(4 * MS_OF_FLOATS, group=0), words.collective(6 * MS_OF_FLOATS, group=1), words.mark([0, 1])
    group_of = ((0, 2), (0, 3), (1, 2), (1, 3))
    trace = trace_of(words.events(*rows), role_of_rank=(0,) * 4, groups=groups, group_of=group_of)
    step = told(trace, full_mesh(4, 1e9, 0))
    assert in_ms(step) == (6, 0, 6, 0)
    assert step.total_comm_fs == 10 * 10**12
    # The first began as early, and ended first: what follows is the second's.
    assert step.exposed_comm_by_axis_fs == {"tp": 4 * 10**12, "dp": 2 * 10**12}


def test_groups_that_share_a_port_share_its_rate(words):
    groups = Group("tp", (0, 1)), Group("dp", (0, 1))
    rows = words.collective(4 * MS_OF_FLOATS, group=0), words.collective(4 * MS_OF_FLOATS, group=1), words.mark([0, 1])
    step = told(trace_of(words.events(*rows), groups=groups, group_of=((0, 1),) * 2))
    assert step.step_times_fs == (8 * 10**12,)


def test_gradients_in_three_buckets_are_partly_hidden(words):
    rows = []
    for i in range(3):
        rows += [words.compute(2), words.collective(3 * MS_OF_FLOATS, instance=i)]
    step = told(trace_of(words.events(*rows, words.compute(1, waits=[1, 3, 5]), words.mark())))
    assert in_ms(step) == (2 + 3 * 3 + 1, 3 * 2 + 1, 5, 0)
    assert step.total_comm_fs == 9 * 10**12
    assert 0 < step.exposed_comm_fs < step.total_comm_fs


def test_a_rank_is_idle_while_it_waits_for_a_slower_one(words):
    fast = words.events(words.compute(2), words.collective(4 * MS_OF_FLOATS), words.mark([1]))
    slow = words.events(words.compute(5), words.collective(4 * MS_OF_FLOATS), words.mark([1]))
    step = told(trace_of(fast, slow, role_of_rank=(0, 1)))
    assert step.rank == 0
    assert in_ms(step) == (9, 2, 4, 3)


def test_the_rank_that_ends_last_is_told_of(words):
    short, long = words.events(words.compute(2)), words.events(words.compute(3))
    step = told(trace_of(short, long, short, role_of_rank=(0, 1, 2), groups=(Group("world", (0, 1, 2)),)))
    assert step.rank == 1
    assert in_ms(step) == (3, 3, 0, 0)


def test_set_up_is_left_out(words):
    rows = (
        words.compute(100, step=0), words.collective(100 * MS_OF_FLOATS, step=0, instance=0), words.mark([1], step=0),
        words.compute(2, waits=[1]), words.collective(3 * MS_OF_FLOATS, instance=1), words.mark([0, 4]),
    )  # fmt: skip
    laid = replayed(trace := trace_of(words.events(*rows)))
    step = report(trace, laid, run_graph(laid.graph))
    assert in_ms(step) == (5, 2, 3, 0)
    assert (laid.ends[:3] == -1).all()
    assert len(laid.pieces) == 1


def test_every_step_has_its_time(words):
    rows = words.compute(2), words.mark(), words.compute(3, step=2), words.mark(step=2), words.compute(7, step=3)
    step = told(trace_of(words.events(*rows)))
    assert [t / 10**12 for t in step.step_times_fs] == [2, 3, 7]
    assert step.step_times_s == (0.002, 0.003, 0.007)
    assert (step.step_time_s, *in_ms(step)) == (0.007, 7, 7, 0, 0)


def test_a_step_begins_when_the_last_rank_ended_the_one_before(words):
    fast = words.events(words.compute(1), words.mark(), words.compute(6, step=2))
    slow = words.events(words.compute(4), words.mark(), words.compute(1, step=2))
    step = told(trace_of(fast, slow, role_of_rank=(0, 1)))
    assert [t / 10**12 for t in step.step_times_fs] == [4, 3]
    assert (step.rank, in_ms(step)) == (0, (3, 3, 0, 0))


def test_a_message_is_received_when_it_was_sent_and_asked_for(words):
    sender = words.events(words.compute(4), words.send(2 * MS_OF_FLOATS, peer=1), words.compute(3))
    receiver = words.events(words.recv(2 * MS_OF_FLOATS, peer=0), words.compute(5, waits=[0]))
    step = told(trace_of(sender, receiver, role_of_rank=(0, 1)))
    assert (step.rank, in_ms(step)) == (1, (4 + 2 + 5, 5, 2, 4))


def test_messages_are_matched_in_order_by_peers_and_tag(words):
    sizes = {1: (1, 2), 7: (3, 4)}  # ms, by tag
    sends = [words.send(ms * MS_OF_FLOATS, peer=1, tag=tag) for tag, of_tag in sizes.items() for ms in of_tag]
    recvs = [words.recv(ms * MS_OF_FLOATS, peer=0, tag=tag) for tag in (7, 1) for ms in sizes[tag]]
    laid = replayed(trace_of(words.events(*sends), words.events(*recvs), role_of_rank=(0, 1)))
    sent = laid.instance[:4], [laid.pieces[i].graph.size_bytes[0] // 10**6 for i in laid.instance[:4]]
    got = laid.instance[4:], [laid.pieces[i].graph.size_bytes[0] // 10**6 for i in laid.instance[4:]]
    assert sent[1] == [1, 2, 3, 4]
    assert got[1] == [3, 4, 1, 2]
    assert sent[0].tolist() == [*got[0][2:].tolist(), *got[0][:2].tolist()]


def test_two_ranks_may_both_send_before_they_receive(words):
    rows = [words.send(2 * MS_OF_FLOATS, peer=p) for p in (1, 0)], [words.recv(2 * MS_OF_FLOATS, peer=p) for p in (1, 0)]
    roles = [words.events(rows[0][r], rows[1][r], words.mark([0, 1])) for r in (0, 1)]
    step = told(trace_of(*roles, role_of_rank=(0, 1)))
    assert step.step_times_fs == (2 * 10**12,)


def test_messages_to_and_from_different_peers_do_not_wait_for_one_another(words):
    """Every pair of ranks has a link of its own: what goes to two at once takes as long as the larger."""
    out = [words.send(ms * MS_OF_FLOATS, peer) for peer, ms in ((1, 3), (2, 2))]
    back = [words.recv(MS_OF_FLOATS, peer) for peer in (1, 2)]
    others = [words.events(words.recv(ms * MS_OF_FLOATS, 0), words.send(MS_OF_FLOATS, 0), words.mark([0, 1])) for ms in (3, 2)]
    world = Group("world", (0, 1, 2))
    trace = trace_of(words.events(*out, *back, words.mark([0, 1, 2, 3])), *others, role_of_rank=(0, 1, 2), groups=(world,))
    laid = replayed(trace, full_mesh(3, 1e9, 0))
    assert (run_graph(laid.graph).end_fs[laid.ends[:4]] / 10**12).tolist() == [3, 2, 1, 1]


def test_groups_take_ways_of_their_own_through_a_fabric(words):
    """Sixteen groups of the same two ranks, under leaves that eight spines join: no two spines are the same way."""
    groups = [Group(str(i), (0, 2)) for i in range(16)]
    rows = [words.collective(MS_OF_FLOATS, group=i) for i in range(16)]
    roles = words.events(*rows, words.mark(range(16))), words.events(words.compute(1))
    trace = trace_of(*roles, role_of_rank=(0, 1, 0), groups=groups, group_of=(tuple(range(16)), (), tuple(range(16))))
    laid = replayed(trace, build_topology("fat-tree:pgft:down=2x2,up=1x8"))
    ways = [frozenset(piece.graph.hop_link.tolist()) for piece in laid.pieces]
    assert len(ways) == 16
    assert len(set(ways)) > 4


def test_ranks_of_one_role_mean_groups_of_their_own(words):
    groups = Group("tp", (0, 1)), Group("tp", (2, 3))
    rows = words.events(words.collective(4 * MS_OF_FLOATS), words.mark([0]))
    trace = trace_of(rows, role_of_rank=(0,) * 4, groups=groups, group_of=((0,), (0,), (1,), (1,)))
    laid = replayed(trace, every_rank=True)
    assert len(np.unique(laid.ends[laid.instance >= 0])) == 4
    assert report(trace, laid, run_graph(laid.graph)).step_times_fs == (4 * 10**12,)


def test_float32_is_computed_and_sent_as_the_dtype_asked_for(words):
    rows = words.events(words.compute(4), words.collective(4 * MS_OF_FLOATS), words.mark([1]))
    assert in_ms(told(trace_of(rows))) == (8, 4, 4, 0)
    assert in_ms(told(trace_of(rows), dtype="bfloat16")) == (4, 2, 2, 0)


def test_requests_of_other_dtypes_are_sent_as_they_are(words):
    rows = words.events(words.collective(4 * MS_OF_FLOATS, dtype="int32"), words.mark([0]))
    assert in_ms(told(trace_of(rows), dtype="bfloat16")) == (4, 0, 4, 0)


def test_elements_are_cut_whole(words):
    # 5 elements of 4 bytes between 2 ranks: 2 and 3.
    laid = replayed(trace_of(words.events(words.collective(5))))
    assert sorted(laid.pieces[0].graph.size_bytes[:4].tolist()) == [8, 8, 12, 12]


def test_bytes_that_are_no_whole_elements_are_cut_as_bytes(words):
    sizes = replayed(trace_of(words.events({**words.collective(3), "bytes": 14})), every_rank=True).graph.size_bytes
    assert sizes[sizes > 0].tolist() == [7, 7, 7, 7]


def test_a_request_of_nothing_takes_no_time(words):
    step = told(trace_of(words.events(words.compute(2), words.collective(0), words.mark([1]))))
    assert in_ms(step) == (2, 2, 0, 0)


def test_a_group_of_one_takes_no_time(words):
    rows = words.events(words.compute(2), words.collective(8), words.mark([1]))
    step = told(trace_of(rows, role_of_rank=(0,), groups=(Group("tp", (0,)),)))
    assert in_ms(step) == (2, 2, 0, 0)


def test_a_root_is_a_rank_of_the_group(words):
    rows = words.events(words.collective(MS_OF_FLOATS, name="broadcast", root=1), words.mark([0]))
    laid = replayed(trace_of(rows, role_of_rank=(0, 0), groups=(Group("dp", (1, 0)),)))
    owner = laid.graph.owner[laid.graph.size_bytes > 0]
    assert owner.tolist() == [0]


def test_tasks_say_whose_and_which_event_they_are(words):
    rows = words.events(words.compute(2), words.mark(), words.collective(8))
    graph = replayed(trace_of(rows), every_rank=True).graph
    sends = np.flatnonzero(graph.size_bytes)
    assert set(zip(graph.owner[sends].tolist(), graph.origin[sends].tolist(), strict=True)) == {(0, 2), (1, 2)}
    assert graph.owner[:4].tolist() == [0, 0, 1, 1]
    assert graph.origin[:4].tolist() == [0, 1, 0, 1]


def test_what_is_taken_for_granted_is_said(words):
    assert replayed(trace_of(words.events(words.compute(1)))).assumptions == DEVICE.assumptions


def test_what_served_is_told_once_a_different_request_and_of_collectives_only(words):
    sizes = (4, 8, 16, 8, 32)
    rows = [words.collective(n, instance=i) for i, n in enumerate(sizes)]
    messages = [words.send(8, peer=1), words.mark([5])], [words.recv(8, peer=0), words.mark([5])]
    laid = replayed(trace_of(*(words.events(*rows, *more) for more in messages), role_of_rank=(0, 1)), dtype="bfloat16")
    asked = [Request("all_reduce", (0, 1), 0, n, "float32", axis="world") for n in (4, 8, 16, 32)]
    expected = [Service(request, 2 * request.elements, AlgorithmOnDims("ring")) for request in asked]
    assert sorted(laid.services) == expected


def refused(*events, **more):
    trace = trace_of(*events, role_of_rank=tuple(range(len(events))), **more)
    with pytest.raises(InputError) as error:
        replayed(trace)
    return str(error.value)


def test_a_collective_without_a_member_is_refused(words):
    said = refused(words.events(words.collective(8)), words.events(words.compute(1)))
    assert said == "trace: all_reduce 0 on group 'world' must be requested by ranks (0, 1), got (0,)"


def test_members_that_ask_for_different_operations_are_refused(words):
    said = refused(words.events(words.collective(8)), words.events(words.collective(8, name="broadcast")))
    assert "must have one operation and one root on all members, got (('all_reduce', 0), ('broadcast', 0))" in said


def test_members_that_name_different_roots_are_refused(words):
    said = refused(*(words.events(words.collective(8, name="broadcast", root=r)) for r in (0, 1)))
    assert "must have one operation and one root on all members, got (('broadcast', 0), ('broadcast', 1))" in said


def test_members_that_name_different_sizes_are_refused(words):
    said = refused(*(words.events(words.collective(n, name="all_to_all")) for n in (8, 12)))
    assert said == (
        "trace: bytes and count of all_to_all 0 of ranks (0, 1) must be equal on all members, got ((32, 8), (48, 12)); "
        "give uneven blocks by split sizes"
    )
    said = refused(words.events(words.send(8, peer=1)), words.events(words.recv(4, peer=0)))
    assert "bytes and count of message 0 of ranks (0, 1) must be equal on all members, got ((32, 8), (16, 4))" in said


def test_a_message_that_nobody_receives_is_refused(words):
    said = refused(words.events(words.send(8, peer=1, tag=3)), words.events(words.compute(1)))
    assert said == (
        "trace: messages between ranks [0, 1] on group 'world' must be sent and received equally often, "
        "got 1 sends and 0 receives of tag 3"
    )


def test_more_ranks_than_npus_are_refused(words):
    trace = trace_of(words.events(words.compute(1)))
    with pytest.raises(InputError, match="placement: 2 ranks do not fit star with its 1 NPUs"):
        replay(trace, Choice(), star_of(1))


def test_a_trace_of_set_up_alone_is_refused(words):
    with pytest.raises(InputError, match="report: the trace must hold a step after set-up"):
        told(trace_of(words.events(words.compute(1, step=0))))


def names_of(trace):
    laid = replayed(trace, every_rank=True)
    return [event_name(trace, laid, task) for task in range(laid.graph.n_tasks)], laid


def test_every_task_is_called_by_an_event_of_its_rank(words):
    trace = trace_of(words.events(words.compute(1, step=0), words.collective(MS_OF_FLOATS, step=2), words.compute(1, step=3)))
    names, laid = names_of(trace)
    assert names[:2] == [f"event 2 of rank {rank} (mm of step 3)" for rank in (0, 1)]
    sent = np.flatnonzero(laid.graph.size_bytes)
    for task in sent:
        assert names[task] == f"a message of event 1 of rank {laid.graph.owner[task]} (all_reduce of step 2)"
    assert len(sent) == 4
    joins = set(range(2, laid.graph.n_tasks)) - set(sent.tolist())
    assert {names[task] for task in joins} == {"event 1 of rank 0 (all_reduce of step 2)"}


def test_a_message_is_called_by_its_sender_wherever_it_stands_in_the_trace(words):
    roles = words.events(words.send(10, 1), words.mark([0])), words.events(words.compute(1), words.recv(10, 0), words.mark([1]))
    names, laid = names_of(trace_of(*roles, role_of_rank=(0, 1)))
    (sent,) = np.flatnonzero(laid.graph.size_bytes)
    assert names[sent] == "a message of event 0 of rank 0 (send of step 1)"


def timed(trace):
    return time_trace(TraceLayout(trace, Choice({"all_reduce": "ring"}), star_of(trace.n_ranks), DEVICE, "float32"))


def test_ranks_that_wait_for_one_another_in_a_circle_are_refused_with_an_event(words):
    roles = (
        words.events(words.recv(10, peer), words.send(10, peer, waits=[0]), words.mark([1]))  # each sends what it has received
        for peer in (1, 0)
    )
    with pytest.raises(InputError) as error:
        timed(trace_of(*roles, role_of_rank=(0, 1)))
    assert str(error.value) == (
        "trace: a message of event 1 of rank 0 (send of step 1) waits for itself, at once or over others; remove one of these "
        "waits"
    )


def test_an_event_that_ends_beyond_the_clock_is_named(words):
    hours = [words.compute(3.6e6, step=step) for step in (1, 2, 3)]
    with pytest.raises(InputError) as error:
        timed(trace_of(words.events(*hours), words.events(words.compute(1)), role_of_rank=(0, 1)))
    assert str(error.value) == (
        "trace: event 2 of rank 0 (mm of step 3) starts at 7200 s, takes 3600 s, and so ends after 9223 s, the end of the "
        "clock (2**63 ticks of 1 fs); have it take less"
    )
    big = words.events(words.compute(1), words.collective(10**15))
    with pytest.raises(InputError, match=r"^trace: a message of event 1 of rank [01] \(all_reduce of step 1\) starts at 1 ms"):
        timed(trace_of(big))


def test_a_trace_that_cannot_have_run_is_refused_before_it_is_timed(words):
    with pytest.raises(InputError, match=r"^trace: bytes of event 0 of rank 0"):
        timed(trace_of(words.events(words.collective(-1))))
