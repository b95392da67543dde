"""A step's time is told where it went: against a walk over every instant, on traces drawn at random and on cases by hand."""

from dataclasses import replace

import numpy as np
import pytest

from emu.fabric.run import run_graph
from emu.trace.report.report import report
from emu.trace.report.request_times import Arrivals, requests_of
from emu.trace.trace import Group, Kind
from tests.trace.laid import DEVICE, MS_OF_FLOATS, in_ms, replayed, star_of, told, trace_of
from tests.trace.walked import walked
from topologies.simple import full_mesh

MS = 10**12
GROUPS = (
    Group("world", (0, 1, 2, 3)), Group("tp", (0, 1)), Group("tp", (2, 3)), Group("dp", (0, 2)), Group("dp", (1, 3)),
    Group("pp", (0, 3)),
)  # fmt: skip
MESH = full_mesh(4, 1e9, 0)


def computes_s(step):
    """The least and the most that a rank computes."""
    return tuple(step.figures()[f"compute_{which}_s"] for which in ("least", "most"))


def groups_of(seed):
    """Return the groups of a drawn trace."""
    return GROUPS if seed < 40 or seed % 2 else (*GROUPS[:-1], Group("ep", (0, 3)))


def drawn(words, seed):
    """Two steps of four ranks: computations of any length, collectives of any group, some waited for at once, some later.

    Of every other seed the second step ends as it happens to, with a request or without. From the 40th on there are messages
    and a second stream, too, and every other one of these has no pipeline.
    """
    rng = np.random.default_rng(seed)
    rows, owed, calls = [[] for _ in range(4)], [[] for _ in range(4)], [0] * len(GROUPS)

    def add(rank, row, all_of=False):
        due = [w for w in owed[rank] if all_of or rng.random() < 0.4]
        owed[rank] = [w for w in owed[rank] if w not in due]
        rows[rank].append({**row, "waits": due})

    for step in (1, 2):
        for _ in range(int(rng.integers(4, 12))):
            rank, group = int(rng.integers(4)), int(rng.integers(len(GROUPS)))
            stream = int(rng.random() < 0.3) if seed >= 40 else 0
            if rng.random() < 0.5:
                add(rank, words.compute(int(rng.integers(1, 6)), step=step, stream=stream))
                continue
            if seed >= 40 and rng.random() < 0.5:
                peer = int(rng.choice([r for r in range(4) if r != rank]))
                more = {"group": 0, "step": step, "stream": stream}
                for end, way in (
                    (rank, words.send(MS_OF_FLOATS, peer, **more)),
                    (peer, words.recv(MS_OF_FLOATS, rank, **more)),
                ):
                    add(end, way)
                    owed[end].append(len(rows[end]) - 1)
                continue
            ranks, ms, name = GROUPS[group].ranks, int(rng.integers(1, 6)), str(rng.choice(["all_reduce", "broadcast"]))
            root = int(rng.integers(len(ranks))) if name == "broadcast" else 0
            for member in ranks:
                more = {"name": name, "root": root, "group": group, "instance": calls[group], "step": step, "stream": stream}
                add(member, words.collective(ms * MS_OF_FLOATS, **more))
                owed[member].append(len(rows[member]) - 1)
            calls[group] += 1
        for rank in range(4 if step == 1 or seed % 2 else 0):
            add(rank, words.mark(step=step), all_of=bool(rng.random() < 0.5))
    groups, group_of = groups_of(seed), (tuple(range(len(GROUPS))),) * 4
    return trace_of(*(words.events(*r) for r in rows), role_of_rank=range(4), groups=groups, group_of=group_of)


def computed_of(trace, laid, timeline, rank, step):
    """Ticks in which a rank computes something of a step, whenever."""
    events, spent, until = trace.events_of(rank), 0, 0
    rows = laid.first_event[rank] + np.flatnonzero((events.kind == Kind.COMPUTE) & (events.step == step))
    tasks = laid.begins[rows]
    for start, end in sorted(zip(timeline.start_fs[tasks].tolist(), timeline.end_fs[tasks].tolist(), strict=True)):
        spent += max(0, end - max(start, until))
        until = max(until, end)
    return spent


@pytest.mark.parametrize("seed", range(60))
def test_every_instant_of_the_step_is_told_once(words, seed):
    trace = drawn(words, seed)
    laid = replayed(trace, MESH)
    timeline = run_graph(laid.graph)
    told_of = report(trace, laid, timeline)
    rank, step, found, total, waited = walked(
        trace, laid, timeline, told_of.step, {0: 0, 3: 1} if groups_of(seed) == GROUPS else {}
    )
    assert (told_of.rank, told_of.step_time_fs, told_of.total_comm_fs) == (rank, step, total)
    assert (told_of.compute_fs, told_of.idle_fs) == (found.pop("compute"), found.pop("idle"))
    assert told_of.bubble_fs == waited.pop(None, 0)
    assert told_of.straggling_by_rank_fs == waited
    computed = [computed_of(trace, laid, timeline, rank, told_of.step) for rank in range(4)]
    assert told_of.computes_fs.tolist() == computed
    assert computes_s(told_of) == (min(computed) / 1e15, max(computed) / 1e15)
    assert told_of.compute_fs + told_of.early_compute_fs - told_of.other_compute_fs == computed[rank]
    assert dict(told_of.exposed_comm_by_axis_fs) == found


def test_what_two_requests_share_is_that_ones_which_began_first_though_before_the_step(words):
    """Rank 3 is slow in step 1; the others begin their requests of step 2 meanwhile, at 1 and 2 ms, to 10 and 8 ms."""
    groups, group_of = (Group("tp", (0, 1)), Group("dp", (0, 2))), ((0, 1), (0,), (1,), ())
    tp, dp = 9 * MS_OF_FLOATS, 6 * MS_OF_FLOATS
    both = (
        words.compute(1), words.collective(tp, step=2), words.compute(1, step=2), words.collective(dp, group=1, step=2),
        words.mark([1, 3], step=2),
    )  # fmt: skip
    of_tp = words.compute(1), words.collective(tp, step=2), words.mark([1], step=2)
    of_dp = words.compute(1), words.collective(dp, step=2), words.mark([1], step=2)
    slow = words.compute(5), words.mark(step=2)
    roles = (words.events(*rows) for rows in (both, of_tp, of_dp, slow))
    step = told(trace_of(*roles, role_of_rank=range(4), groups=groups, group_of=group_of), MESH)
    assert (step.rank, in_ms(step)) == (0, (5, 0, 5, 0))
    assert step.exposed_comm_by_axis_fs == {"tp": 5 * MS, "dp": 0}
    assert step.total_comm_fs == (5 + 3) * MS
    assert (step.figures()["early_compute_s"], computes_s(step)) == (1e-3, (0, 1e-3))  # from 1 to 2 ms


def test_of_requests_that_began_together_the_instants_are_the_one_asked_for_first(words):
    groups, group_of = (Group("tp", (0, 1)), Group("dp", (0, 2))), ((0, 1), (0,), (1,))
    long, short = 6 * MS_OF_FLOATS, 4 * MS_OF_FLOATS
    both = words.collective(long), words.collective(short, group=1), words.mark([0, 1])
    alone = [words.events(words.collective(size), words.mark([0])) for size in (long, short)]
    step = told(trace_of(words.events(*both), *alone, role_of_rank=range(3), groups=groups, group_of=group_of), MESH)
    assert step.exposed_comm_by_axis_fs == {"tp": 6 * MS, "dp": 0}


def test_a_rank_talks_from_when_all_members_have_come(words):
    """A broadcast of 4 ms goes to rank 1 or 2 first and to rank 3 after, which communicates all the while."""
    rows = words.events(words.collective(4 * MS_OF_FLOATS, name="broadcast"), words.mark([0]))
    late = words.events(words.collective(4 * MS_OF_FLOATS, name="broadcast"), words.compute(1, waits=[0]), words.mark([0]))
    step = told(trace_of(rows, late, role_of_rank=(0, 0, 0, 1), groups=(Group("world", (0, 1, 2, 3)),)), MESH)
    assert (step.rank, in_ms(step)) == (3, (4 + 4 + 1, 1, 8, 0))


def arriving(words, *arrivals_ms, name="all_reduce", ms=3, after_ms=0, **more):
    """Ranks that come to a collective one after another, and compute after it."""
    asked = words.collective(ms * MS_OF_FLOATS, name=name, **more)
    rows = [(words.compute(came), asked, words.compute(after_ms, waits=[1]), words.mark([1])) for came in arrivals_ms]
    n = len(rows)
    return trace_of(*(words.events(*r) for r in rows), role_of_rank=range(n), groups=(Group("dp", tuple(range(n))),))


def test_waiting_for_a_member_is_idle_and_told_by_its_rank_even_while_others_send(words):
    """Ranks 0 and 1 of a ring exchange what they can from 2 ms on, but rank 2 comes at 9."""
    trace = arriving(words, 1, 2, 9)
    laid = replayed(trace, MESH)
    timeline = run_graph(laid.graph)
    step = report(trace, laid, timeline)
    assert timeline.start_fs[np.diff(laid.graph.hop_start) > 0].min() == 2 * MS
    assert (step.rank, step.straggling_by_rank_fs, step.bubble_fs) == (0, {2: 8 * MS}, 0)
    assert (step.compute_fs, step.idle_fs) == (1 * MS, 8 * MS)
    assert step.exposed_comm_by_axis_fs == {"dp": step.total_comm_fs} == {"dp": step.step_time_fs - 9 * MS}


def test_of_members_that_come_last_together_the_first_is_told(words):
    step = told(arriving(words, 1, 9, 9), MESH)
    assert (step.rank, step.straggling_by_rank_fs) == (0, {1: 8 * MS})


def test_of_an_operation_that_a_rank_leaves_early_it_waits_for_those_that_came_before(words):
    """The root comes at 2 ms and rank 2 at 30; rank 1 has what it needs long before, and computes on."""
    rows = [
        (
            words.compute(came),
            words.collective(4 * MS_OF_FLOATS, name="broadcast"),
            words.compute(after, waits=[1]),
            words.mark([1]),
        )
        for came, after in ((2, 0), (1, 90), (30, 0))
    ]
    group = (Group("world", (0, 1, 2)),)
    step = told(trace_of(*(words.events(*r) for r in rows), role_of_rank=range(3), groups=group), MESH)
    assert (step.rank, in_ms(step), step.straggling_by_rank_fs) == (1, (2 + 4 + 90, 91, 4, 1), {0: 1 * MS})


@pytest.mark.parametrize("receives", [True, False])
def test_an_end_of_a_message_is_idle_until_the_other_has_come(words, receives):
    """There are two stages, and the later one comes after 7 ms."""
    ways = (words.recv, words.send) if receives else (words.send, words.recv)
    rows = [
        (words.compute(came), way(2 * MS_OF_FLOATS, peer), words.compute(after, waits=[1]), words.mark())
        for came, way, peer, after in ((1, ways[0], 1, 5), (7, ways[1], 0, 0))
    ]
    step = told(trace_of(*(words.events(*r) for r in rows), role_of_rank=range(2), groups=(Group("pp", (0, 1)),)), MESH)
    assert (step.rank, in_ms(step)) == (0, (7 + 2 + 5, 1 + 5, 2, 6))
    assert (step.bubble_fs, step.straggling_by_rank_fs, step.exposed_comm_by_axis_fs) == (6 * MS, {}, {"pp": 2 * MS})


def test_communication_that_nothing_waits_for_is_no_reason_to_stand_still(words):
    """From 1 to 9 ms rank 0 waits for rank 1's message; what it reduces meanwhile, to 6 ms, is waited for only after 12 ms."""
    groups, group_of = (Group("pp", (0, 1)), Group("dp", (0, 2))), ((0, 1), (0,), (1,))
    reduced = words.collective(5 * MS_OF_FLOATS, group=1)
    first = words.compute(1), reduced, words.recv(MS_OF_FLOATS, 1), words.compute(2, waits=[2]), words.mark([1])
    other = words.compute(9), words.send(MS_OF_FLOATS, 0), words.mark([1])
    third = words.compute(1), {**reduced, "group": 0}, words.mark([1])
    roles = (words.events(*rows) for rows in (first, other, third))
    step = told(trace_of(*roles, role_of_rank=range(3), groups=groups, group_of=group_of), MESH)
    assert (step.rank, in_ms(step), step.bubble_fs) == (0, (12, 3, 1, 8), 8 * MS)
    assert (step.exposed_comm_by_axis_fs, step.total_comm_fs) == ({"dp": 0, "pp": 1 * MS}, (5 + 1) * MS)


def test_who_waits_for_a_rank_that_communicates_stands_still_for_that_too(words):
    """Rank 0 waits from 1 ms for rank 1, which exchanges with rank 2 from 2 to 6 ms, as rank 2 comes at 2."""
    groups, group_of = (Group("tp", (0, 1)), Group("dp", (1, 2))), ((0,), (1, 0), (1,))
    tp, dp = words.collective(2 * MS_OF_FLOATS), words.collective(4 * MS_OF_FLOATS)
    first = words.compute(1), tp, words.compute(9, waits=[1]), words.mark()
    second = words.compute(1), dp, words.compute(0.5, waits=[1]), {**tp, "group": 1}, words.mark([3])
    third = words.compute(2), dp, words.mark([1])
    roles = (words.events(*rows) for rows in (first, second, third))
    step = told(trace_of(*roles, role_of_rank=range(3), groups=groups, group_of=group_of), MESH)
    assert (step.rank, in_ms(step)) == (0, (6.5 + 2 + 9, 10, 4 + 2, 1 + 0.5))
    assert step.exposed_comm_by_axis_fs == {"dp": 4 * MS, "tp": 2 * MS}
    assert step.straggling_by_rank_fs == {2: 1 * MS, 1: MS // 2}


def test_who_waits_for_a_rank_that_waits_for_another_stage_is_in_the_bubble_too(words):
    """Rank 0 waits for rank 1, which computes until 2 ms, then waits until 7 ms for rank 2's message."""
    groups = (Group("tp", (0, 1)), Group("pp", (1, 2)), Group("pp", (0, 3)))
    tp = words.collective(2 * MS_OF_FLOATS)
    first = words.compute(1), tp, words.compute(9, waits=[1]), words.mark()
    second = words.compute(2), words.recv(MS_OF_FLOATS, 1, group=1), words.compute(1, waits=[1]), tp, words.mark([3])
    third = words.compute(7), words.send(MS_OF_FLOATS, 0), words.mark([1])
    roles = (words.events(*rows) for rows in (first, second, third, [words.mark()]))
    step = told(trace_of(*roles, role_of_rank=range(4), groups=groups, group_of=((0, 2), (0, 1), (1,), (2,))), MESH)
    assert (step.rank, in_ms(step)) == (0, (7 + 1 + 1 + 2 + 9, 10, 1 + 2, 1 + 5 + 1))
    assert (step.bubble_fs, step.straggling_by_rank_fs) == (5 * MS, {1: 2 * MS})
    assert step.exposed_comm_by_axis_fs == {"pp": 1 * MS, "tp": 2 * MS}


def test_a_request_behind_another_in_its_queue_stands_still_for_both(words):
    """Nothing waits for the first of two gathers but the second, which a computation waits for."""
    rows = words.compute(1), words.collective(2 * MS_OF_FLOATS), words.collective(3 * MS_OF_FLOATS, instance=1)
    step = told(trace_of(words.events(*rows, words.compute(4, waits=[2]), words.mark())))
    assert in_ms(step) == (1 + 2 + 3 + 4, 5, 5, 0)


def test_streams_of_a_rank_run_side_by_side_and_an_instant_is_computed_once(words):
    rows = (
        words.compute(4),
        words.compute(3, stream=1),
        words.compute(3, waits=[1]),
        words.compute(5, stream=1),
        words.mark([3]),
    )
    step = told(trace_of(words.events(*rows)))
    assert in_ms(step) == (8, 8, 0, 0)  # 4 + 3 beside 3 + 5
    assert (computes_s(step), step.early_compute_fs) == ((8e-3, 8e-3), 0)


def test_a_request_waits_for_its_own_stream_alone(words):
    rows = words.compute(9), words.compute(1, stream=1), words.collective(2 * MS_OF_FLOATS, stream=1), words.mark([2])
    step = told(trace_of(words.events(*rows)))
    assert (in_ms(step), step.total_comm_fs) == ((9, 9, 0, 0), 2 * MS)
    late = words.compute(9), words.compute(1, stream=1), words.collective(2 * MS_OF_FLOATS), words.mark([2])
    assert in_ms(told(trace_of(words.events(*late)))) == (11, 9, 2, 0)


def test_for_a_request_of_a_step_that_computes_nothing_a_rank_stands_still_from_its_beginning(words):
    """The end of what the step before computes, until 9 ms on another stream, does not count."""
    rows = words.compute(1), words.mark(), words.compute(9, stream=1), words.collective(2 * MS_OF_FLOATS, step=2)
    trace = trace_of(words.events(*rows))
    laid = replayed(trace)
    timeline = run_graph(laid.graph)
    [request] = zip(*requests_of(trace, laid, timeline, Arrivals.of(laid, timeline), 0), strict=True)
    assert (request[1] / MS, request[2] / MS, request[3]) == (1, 3, 0)  # met, left, since


def test_what_is_computed_of_the_next_step_meanwhile_is_said(words):
    """The message of step 1 takes until 9 ms, and nothing waits for it: rank 0 goes on to step 2 at 2 ms, rank 1 at 8."""
    rows = words.send(9 * MS_OF_FLOATS, 1), words.compute(2), words.mark(), words.compute(3, step=2), words.mark(step=2)
    other = words.recv(9 * MS_OF_FLOATS, 0), words.compute(8), words.mark(), words.compute(3, step=2), words.mark(step=2)
    step = told(trace_of(words.events(*rows), words.events(*other), role_of_rank=(0, 1)))
    assert (step.step, step.rank, in_ms(step)) == (1, 0, (9, 5, 4, 0))
    assert (step.figures()["other_compute_s"], step.early_compute_fs, computes_s(step)) == (3e-3, 0, (2e-3, 8e-3))


def test_what_was_computed_before_the_step_began_is_said_once(words):
    """Rank 0 begins step 2 at 1 ms on two streams; rank 1 ends step 1 at 3 ms."""
    fast = (
        words.compute(1),
        words.mark(),
        words.compute(4, step=2),
        words.compute(4, step=2, stream=1, waits=[1]),
        words.mark(step=2),
    )
    slow = words.compute(3), words.mark(), words.mark(step=2)
    step = told(trace_of(words.events(*fast), words.events(*slow), role_of_rank=(0, 1)))
    assert (step.rank, in_ms(step), step.early_compute_fs, computes_s(step)) == (0, (2, 2, 0, 0), 2 * MS, (0, 4e-3))


def test_a_step_that_ends_within_a_request_of_the_one_before_takes_no_time(words):
    rows = words.collective(9 * MS_OF_FLOATS), words.compute(1), words.mark(), words.compute(2, step=2), words.mark(step=2)
    late = words.compute(11, step=3), words.mark(step=3)
    step = told(trace_of(words.events(*rows, *late)))
    assert [t / MS for t in step.step_times_fs] == [9, 0, 1 + 2 + 11 - 9]


def test_a_rank_spends_launch_and_alpha_on_each_request_and_both_are_communication(words):
    """Two messages one after another each way in a ring of two: 2 (alpha + 1/2 MS), after one launch."""
    trace = trace_of(words.events(words.compute(3), words.collective(MS_OF_FLOATS), words.mark(waits=[1])))
    launch_s, alpha_fs = 2e-3, MS // 4
    slow = replace(star_of(2), message_fs=alpha_fs)
    laid = replayed(trace, slow, device=replace(DEVICE, request_overhead_s=launch_s))
    found = report(trace, laid, run_graph(laid.graph))
    assert found.step_time_fs == (3 + 2) * MS + 2 * (alpha_fs + MS // 2)
    assert (found.compute_fs, found.idle_fs) == (3 * MS, 0)
    assert found.total_comm_fs == found.exposed_comm_fs == 2 * MS + 2 * (alpha_fs + MS // 2)
    assert found.exposed_comm_by_axis_fs == {"world": found.exposed_comm_fs}
    assert slow.digest() != star_of(2).digest()
