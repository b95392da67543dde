"""From a schedule on a placement to tasks: messages with routes, and what each waits for.

S rows, K slots, M messages, Q of them in queues (not local), P participants, R distinct (src, dst, channel).
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64, column
from emu.collective.schedule import Schedule
from emu.errors import InputError, must_be
from emu.fabric.graph import Graph
from emu.fabric.lowering.circuits import Turns, turns_of
from emu.fabric.lowering.edges import Edges, Predecessors, columns_of
from emu.fabric.lowering.heads import heads
from emu.fabric.lowering.messages import Accesses, Messages, Queues, Rows, accesses_of, messages_of, queues_of, rows_of
from emu.fabric.lowering.sort import FIRST, LAST, MEETS, gather_hops
from emu.fabric.lowering.waits import Out, wait_for_others, wait_for_overwrites, wait_for_queue
from emu.topology.topology import CHANNELS, Routes, Topology

_MOST_BYTES = 2**62  # of all slots, so that those of a message can be added


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """A schedule as tasks, its M messages (and the joins that stand for local rows) first."""

    graph: Graph
    entry: I32  # [P] the join that all messages of a participant wait for; [0] where not gated
    exit: I32  # [P] ends when all that comes to the participant is delivered and all it sends has left
    receiver: I32  # [M] the participant that each message goes to

    def messages_of(self, participant: int) -> I64:
        """The messages that a participant sends or receives."""
        sender = self.graph.owner[: len(self.receiver)]
        return np.flatnonzero((sender == participant) | (self.receiver == participant))


class _Tasks(NamedTuple):
    """The tasks of each kind, in this order; messages come before them, joins after."""

    delays: I32  # [Q] or [0]
    turns: I32  # of optical switches
    entries: I32  # [P] or [0]
    exits: I32  # [P]


def lower(
    schedule: Schedule,
    slot_bytes: I64,
    topology: Topology,
    placement: I32,
    *,
    key: int = 0,
    send_overhead_fs: int = 0,
    gated: bool = False,
) -> Piece:
    """Turn a schedule on a placement into tasks.

    Args:
        schedule: Any; declared translations are expanded.
        slot_bytes: [K] bytes of each slot; a slot of 0 bytes is not sent.
        topology: Its links are the graph's.
        placement: [P] the node of each participant, helpers after the ranks.
        key: Tells equal groups apart where a topology spreads routes.
        send_overhead_fs: Ticks that a sender spends on each message of a queue (src, channel) before it may leave, one
            message after another in order of rows: the o of LogGP (Alexandrov et al. 1995).
        gated: Whether a message waits until both its ends have entered.

    Raises:
        InputError: sizes or places that are not the schedule's, a pair that no route joins, or a round that needs an
            optical switch in two states.
    """
    full = schedule.expand()
    check_lowered(full, slot_bytes, placement)
    sizes = np.concatenate((slot_bytes, slot_bytes[list(full.temps)])).astype(np.int64)
    rows = rows_of(full, sizes)
    messages = messages_of(rows, sizes)
    queues = queues_of(messages, full.n_participants)
    turns = _turns(messages, queues, topology, placement, key)
    counts = len(queues.message) * (send_overhead_fs > 0), turns.total
    tasks = _number(len(messages.src), *counts, full.n_participants, gated)
    accesses = accesses_of(rows, messages, len(sizes), full.n_participants)
    pred = _predecessors(messages, queues, accesses, tasks, turns)
    routes, head_fs = _routes(messages, queues, topology, placement, key)
    turn_fs = topology.circuits.turn_fs if topology.circuits else 0
    costs = topology.links.bandwidth_Bps, head_fs, send_overhead_fs, turn_fs
    graph = _graph(rows, messages, queues, tasks, pred, routes, costs)
    return Piece(graph, tasks.entries, tasks.exits, messages.dst)


def check_lowered(schedule: Schedule, slot_bytes: I64, placement: I32) -> None:
    """Refuse sizes and places that are not the schedule's.

    Raises:
        InputError: as it says.
    """
    if len(slot_bytes) != schedule.n_slots:
        raise must_be("lower", "slot_bytes", f"of {schedule.n_slots} slots", len(slot_bytes))
    if slot_bytes.min(initial=0) < 0:
        raise must_be("lower", "slot_bytes", "0 or more", slot_bytes.min())
    most = int(slot_bytes.max(initial=0)) * len(slot_bytes)
    if most > _MOST_BYTES and slot_bytes.sum(dtype=np.float64) > _MOST_BYTES:
        raise InputError(f"schedule: its {len(slot_bytes)} slots hold more than 2**62 B (4 EiB) together; take a smaller size")
    if len(placement) != schedule.n_participants:
        what = f"a node for each of {schedule.n_ranks} ranks and {schedule.helpers} helpers"
        raise must_be("lower", "placement", what, len(placement))


def _number(n_messages: int, n_delays: int, n_turns: int, n_participants: int, gated: bool) -> _Tasks:
    ends = list(accumulate((n_messages, n_delays, n_turns, n_participants * gated, n_participants)))
    return _Tasks(*(column(np.arange(*span), np.int32) for span in pairwise(ends)))


def _turns(messages: Messages, queues: Queues, topology: Topology, placement: I32, key: int) -> Turns:
    """The turns of the topology's optical switches, where it has any."""
    message, none = queues.message, np.zeros((0, 0), np.int64)
    if topology.circuits is None:
        return turns_of(message[:0], message[:0], none, none)
    nodes = placement.astype(np.int64)
    src, dst, channel = (c[message].astype(np.int64) for c in (messages.src, messages.dst, messages.channel))
    needs = topology.circuits.needs(nodes[src], nodes[dst], key * CHANNELS + channel)
    return turns_of(message, messages.when[message], *needs)


def _predecessors(messages: Messages, queues: Queues, accesses: Accesses, tasks: _Tasks, turns: Turns) -> Predecessors:
    """Of all tasks; what a message waits for but its queue is for its delay to wait for, where there is one."""
    head = np.arange(len(messages.src), dtype=np.int32)
    if len(tasks.delays):
        head[queues.message] = tasks.delays
    read, write = accesses.message
    read_head, write_head = (column(head[m], np.int32) if len(tasks.delays) else m for m in accesses.message)
    (turn, earlier), (later, awaited) = turns.before, turns.after
    turning = [Edges.of(tasks.turns[turn], earlier), Edges.of(head[later], tasks.turns[awaited])]
    given = Edges.joined([_given(messages, queues, tasks, head), *turning])
    reversed_places = np.roll(accesses.places, 2, axis=1)

    def emit_all(out: Out) -> None:
        wait_for_others(accesses.places, accesses.when, (read_head, write), False, out)
        wait_for_others(reversed_places, accesses.when[::-1], (write_head, read), True, out)
        wait_for_overwrites(accesses.places, accesses.when, accesses.reduce, (write_head, write), out)
        wait_for_queue(queues.keys, queues.message, out)
        given.write(out)

    return columns_of(emit_all, int(tasks.exits[-1]) + 1, len(read) + len(queues.message))


def _given(messages: Messages, queues: Queues, tasks: _Tasks, head: I32) -> Edges:
    """The edges of delays, entries and exits."""
    local, message = np.flatnonzero(messages.src == messages.dst), queues.message
    leads, meets, last = (message[queues.mark & bit != 0] for bit in (FIRST, MEETS, LAST))
    tail = message[queues.tail]
    edges = [
        Edges.of(tasks.exits[messages.src[last]], last, left=True),
        Edges.of(tasks.exits[messages.dst[tail]], tail),
        Edges.of(tasks.exits[messages.dst[local]], local),
    ]
    if len(tasks.delays):
        src, channel, _ = queues.keys
        chained = np.flatnonzero((src[1:] == src[:-1]) & (channel[1:] == channel[:-1]))
        edges += [Edges.of(message, tasks.delays), Edges.of(tasks.delays[chained + 1], tasks.delays[chained])]
    if len(tasks.entries):
        leads = np.concatenate((leads, local))
        edges += [Edges.of(head[leads], tasks.entries[messages.src[leads]]), Edges.of(tasks.exits, tasks.entries)]
        edges += [Edges.of(head[meets], tasks.entries[messages.dst[meets]])]
    return Edges.joined(edges)


def _routes(messages: Messages, queues: Queues, topology: Topology, placement: I32, key: int) -> tuple[Routes, I64]:
    """The routes of the pairs, each asked once, and what the head of a message takes on each."""
    last = queues.message[queues.tail]
    src, dst, channel = (c[last].astype(np.int64) for c in (messages.src, messages.dst, messages.channel))
    nodes = placement.astype(np.int64)
    asked = nodes[src], nodes[dst], key * CHANNELS + channel
    routes = topology.routes(*asked)
    return routes, heads(topology, asked, routes)


def _graph(
    rows: Rows,
    messages: Messages,
    queues: Queues,
    tasks: _Tasks,
    pred: Predecessors,
    routes: Routes,
    costs: tuple[F64, I64, int, int],
) -> Graph:
    """All columns; costs are the links' rates, and what the head of a message, a delay and a turn take."""
    capacity_Bps, head_fs, overhead_fs, turn_fs = costs
    n_tasks, end, queue = len(pred[0]) - 1, len(messages.src), queues.message
    size, alpha, pair = np.zeros(n_tasks, np.int64), np.zeros(n_tasks, np.int64), np.full(n_tasks, -1, np.int32)
    owner, origin = np.full(n_tasks, -1, np.int32), np.full(n_tasks, -1, np.int32)
    size[:end], owner[:end], origin[:end], pair[queue] = (
        messages.size_bytes,
        messages.src,
        rows.number[messages.first],
        queues.pair,
    )
    alpha[queue] = head_fs[queues.pair]
    if len(tasks.delays):
        alpha[tasks.delays], owner[tasks.delays], origin[tasks.delays] = overhead_fs, owner[queue], origin[queue]
    alpha[tasks.turns] = turn_fs
    hop_start, hop_link = gather_hops(column(pair, np.int32), column(routes.start, np.int64), column(routes.link, np.int32))
    weight, ready = np.ones(len(hop_link), np.int32), np.zeros(n_tasks, np.int64)
    return Graph(capacity_Bps, size, alpha, ready, hop_start, hop_link, weight, *pred, owner, origin)
