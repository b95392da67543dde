"""A trace as a GOAL schedule: its collectives become messages, taken from the graph by which Emu times the trace.

A message is a send of one rank and a recv of another, and each end waits for what the message waits for at that rank. A
computation is a calc on the cpu of its stream. A calc of 0 ns joins waits of a call's messages on one rank where that saves
waits. All operations of a group's calls are on one cpu, behind those of computations: LogGOPSim lets received data wait for
their bytes on the cpu of the message alone. V tasks of the graph, X events of all ranks.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.equivalence import occurrence_numbers
from emu.errors import InputError
from emu.fabric.graph import Graph
from emu.fabric.lower import LoweredSchedule
from emu.files import write_file
from emu.trace.formats.goal.goal_ops import MOST_CPUS, GoalOps, Op
from emu.trace.formats.goal.goal_text import goal_text
from emu.trace.formats.goal.meeting_points import bypass
from emu.trace.matching.call_batch import CallBatch
from emu.trace.replay.delay import members_of
from emu.trace.replay.replay import TraceLayout
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.steps import computes
from emu.units import TICKS_PER_NS

_ENTER, _WORK, _LEAVE = range(3)  # the order of the tasks of one event


def write_goal(layout: TraceLayout, path: Path) -> None:
    """Write a trace as GOAL, with the messages of its collectives on its fabric.

    Args:
        layout: The trace on its fabric.
        path: The file.

    Raises:
        InputError: the fabric adds in its switches or turns them, which GOAL cannot say.
        WriteError: the file cannot be written.
    """
    write_file("--trace", path, goal_text(lowered(layout)).encode())


def lowered(layout: TraceLayout) -> GoalOps:
    """Return the operations of a trace on its fabric; errors as in `write_goal`."""
    replayed = layout.build_graph(None)
    tasks = _Tasks.of(layout, replayed)
    ops, ends = _operations(layout, replayed.graph, tasks)
    plain = _with_waits(ops, replayed.graph, tasks.phase, ends)
    return bypass(plain, _joins(plain)).in_order(layout.topology.name)


class _Tasks(NamedTuple):
    """The event and the cpu of each task of a graph; a message has two ends, other tasks have one."""

    event: I64  # [2, V] the event, among the X, at the sender and at the receiver
    phase: I64  # [V] when it comes among the tasks of its event
    cpu: I64  # [X] the cpu of the operations of each event

    @staticmethod
    def of(layout: TraceLayout, replayed: ReplayGraph) -> "_Tasks":
        """Return the tasks of a graph.

        Raises:
            InputError: a task belongs to no rank.
        """
        graph = replayed.graph
        count = int(replayed.firsts[0]) if len(replayed.firsts) else graph.n_tasks
        event, phase = np.full((2, graph.n_tasks), -1), np.full(graph.n_tasks, _WORK)
        event[:, :count] = layout.first_event[graph.owner[:count]] + graph.origin[:count]
        for batch, piece, first in zip(layout.batches, replayed.pieces, replayed.firsts.tolist(), strict=True):
            assert isinstance(piece, LoweredSchedule), "no delay stands for a call"
            _add_call(layout, batch, piece, (event[:, first:], phase[first:]))
        _place_meetings(graph, event)
        if (event < 0).any():
            how = "its switches turn or add" if replayed.services else "its switches turn"
            raise InputError(f"--trace: GOAL has ranks alone, and on {layout.topology.name} {how}; take another algorithm")
        return _Tasks(event, phase, _cpus(layout))


def _add_call(layout: TraceLayout, batch: CallBatch, piece: LoweredSchedule, at: tuple[I64, I64]) -> None:
    """Fill in the events and phases of a call's tasks; `at` are views of both columns from its first task on."""
    (event, phase), count = at, len(piece.receiver)
    of = np.full(piece.orbit.size, -1)
    of[members_of(piece).ravel()] = (layout.first_event[batch.ranks] + batch.rows).ravel()
    event[0, :count], event[1, :count] = of[piece.graph.owner[:count]], of[piece.receiver]
    for joins, when in ((piece.entry, _ENTER), (piece.exit, _LEAVE)):
        event[:, joins], phase[joins] = of, when


def _place_meetings(graph: Graph, event: I64) -> None:
    """Fill in the events of join tasks that belong to no call: those of their predecessors."""
    unknown = np.flatnonzero((event[0] < 0) & (np.diff(graph.pred_start) > 0))
    at = graph.pred_start[unknown]
    side, pred = np.where(graph.pred_left[at], 0, 1), graph.pred[at]
    while len(unknown):
        event[:, unknown] = event[side, pred]
        still = event[0, unknown] < 0
        if still.all():
            return
        unknown, side, pred = unknown[still], side[still], pred[still]


def _cpus(layout: TraceLayout) -> I64:
    """Return [X] the cpu of each event: the stream of a computation, and behind all streams one for the group of a request.

    Both ends of a message have it on one cpu: LogGOPSim counts its bytes at the receiver on the cpu that the sender names.

    Raises:
        InputError: there are more streams than cpus.
    """
    trace, numbers = layout.trace, np.array(layout.numbers, np.int64)
    base = 1 + max((int(events.stream[computes(events)].max(initial=0)) for events in trace.events), default=0)
    if base >= MOST_CPUS:
        raise InputError(f"--trace: GOAL has {MOST_CPUS} cpus, and the trace has {base} streams; write another format")
    cpus = [np.empty(0, np.int64)]
    for rank, groups in enumerate(trace.group_of):
        events = trace.events_of(rank)
        cpus.append(events.stream.astype(np.int64))
        asks = ~computes(events)
        cpus[-1][asks] = base + numbers[np.array(groups, np.int64)[events.group[asks]]] % (MOST_CPUS - base)
    return np.concatenate(cpus)


def _operations(layout: TraceLayout, graph: Graph, tasks: _Tasks) -> tuple[GoalOps, I64]:
    """Return the operations, without waits, and [2, V] the operation of each task at its sender and at its receiver."""
    message, none = np.flatnonzero(np.diff(graph.hop_start)), np.empty(0, np.int64)
    task = np.concatenate((np.arange(graph.n_tasks), message))
    talks, second = np.isin(task, message), np.arange(len(task)) >= graph.n_tasks
    event = tasks.event[second.astype(np.int64), task]
    rank, peer = (
        np.searchsorted(layout.first_event, tasks.event[end.astype(np.int64), task], side="right") - 1
        for end in (second, ~second)
    )
    tag = np.zeros(graph.n_tasks, np.int64)
    tag[message] = occurrence_numbers(rank[message] * layout.trace.n_ranks + peer[message])
    size = np.where(talks, graph.size_bytes[task], np.rint(graph.alpha_fs[task] / TICKS_PER_NS).astype(np.int64))
    kind = np.where(talks, np.where(second, Op.RECV, Op.SEND), Op.CALC)
    order = np.lexsort((task, tasks.phase[task], event))
    first = np.searchsorted(rank[order], np.arange(layout.trace.n_ranks + 1))
    columns = kind, size, peer * talks, tag[task], tasks.cpu[event], 0 * task, 0 * task
    kinds, sizes, peers, tags, cpus, nics, lines = (c[order] for c in columns)
    ops = GoalOps(first, kinds, sizes, peers, tags, cpus, nics, lines, none, none, none > 0)
    place = np.empty(len(task), np.int64)
    place[order] = np.arange(len(task))
    ends = np.stack((place[: graph.n_tasks], place[: graph.n_tasks]))
    ends[1, message] = place[graph.n_tasks :]
    return ops, ends


def _with_waits(ops: GoalOps, graph: Graph, phase: I64, ends: I64) -> GoalOps:
    """Return the operations with the waits that each has for others of its rank.

    Args:
        ops: The operations, without waits.
        graph: The graph of their tasks.
        phase: [V] when each task comes among those of its event.
        ends: [2, V] the operation of each task at its sender and at its receiver.

    Raises:
        InputError: a task waits for one of another rank, without a message.
    """
    count, pred = np.diff(graph.pred_start), graph.pred
    task = np.repeat(np.arange(graph.n_tasks), count)
    known = (phase[task] == _LEAVE) & (phase[pred] == _ENTER) & (count[task] > 1)  # by the messages between both
    task, pred, left = task[~known], pred[~known], graph.pred_left[~known]
    waited = ends[np.where(left, 0, 1), pred]
    here = ops.rank[waited] == ops.rank[ends[:, task]]
    if not here.any(axis=0).all():
        raise InputError(
            "--trace: a rank waits for another one without a message, which GOAL cannot say; take another algorithm"
        )
    found = np.unique(np.stack((np.where(here[0], *ends[:, task]), waited)), axis=1)
    return replace(ops, waiting=found[0], waited=found[1], at_start=np.zeros(found.shape[1], np.bool_))


def _joins(ops: GoalOps) -> Bool:
    """Return [O] whether each operation can be left out: it takes no time, and no bytes on another cpu wait for it."""
    count = len(ops.kind)
    receives = np.bincount(ops.waiting[ops.kind[ops.waited] == Op.RECV], minlength=count) > 0
    abroad = np.bincount(ops.waited[ops.cpu[ops.waiting] != ops.cpu[ops.waited]], minlength=count) > 0
    return np.asarray((ops.kind == Op.CALC) & (ops.size == 0) & ~(receives & abroad))
