"""A lower bound of the time that each rank spends in a request, whatever the other ranks do and whatever shares links.

No message leaves before both its ends have entered the request. A participant leaves after all that it sends and gets has
passed.
So a task starts no sooner than its predecessors have left: each of them takes at least the time of its slowest link, and those
that cross one link take at least the sum of their times on that link. Messages outside of the request are not counted, because
they only make the request slower.
G groups, P participants of each, V tasks, L links, R pairs, D copies, U participants of all groups.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64, Bool, column
from emu.compiled.function import F64_OUT, I64_OUT, compiled
from emu.fabric.engine.graph_check import order_tasks
from emu.fabric.engine.state_layout import Columns, columns
from emu.fabric.graph import Graph
from emu.fabric.lower import LoweredSchedule, delay_entries, lower_placed
from emu.fabric.lowering.message_routes import sure_routes
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.rounds import group_message_count
from emu.units import TICKS_PER_S

MOST = 2**15  # messages of all groups, up to which each is looked at; of more, what each participant sends and gets in all


class _Moments(NamedTuple):
    """The earliest possible start, leave and end of each task, and working arrays for the load of links."""

    capacity: F64  # [L] bytes a tick
    start: F64_OUT  # [V]
    left: F64_OUT  # [V]
    end: F64_OUT  # [V]
    first: F64_OUT  # [L] the first start of the tasks in question that cross the link
    size: F64_OUT  # [L] their bytes
    head: F64_OUT  # [L] the least time from when one of them has left until it counts
    crossed: I64_OUT  # [L] the links that they cross

    @staticmethod
    def of(graph: Graph) -> "_Moments":
        """Return moments for the tasks of a graph, with all times still 0."""
        start, left, end = (np.zeros(graph.n_tasks) for _ in range(3))
        first, size, head = (np.zeros(graph.n_links) for _ in range(3))
        crossed = np.zeros(graph.n_links, np.int64)
        return _Moments(graph.capacity_Bps / TICKS_PER_S, start, left, end, first, size, head, crossed)


def least_fs(placed: PlacedSchedule, launch_fs: int = 0) -> F64:
    """Return [G, P] a lower bound of the ticks from the moment that the first rank enters until each participant leaves.

    Args:
        placed: The placed schedule, with entries and exits.
        launch_fs: The ticks that each rank takes to enter.

    Raises:
        InputError: See `lower_placed`.
    """
    if group_message_count([placed]) > MOST or placed.topology.chooses:
        least = launch_fs + _own_fs(placed)
    else:
        least = _exits_fs(delay_entries(lower_placed(placed), launch_fs))
    return least.reshape(placed.nodes.shape)


def _exits_fs(piece: LoweredSchedule) -> F64:
    """Return [U] a lower bound of the tick at which each participant leaves."""
    graph, moments = piece.graph, _Moments.of(piece.graph)
    _time(columns(graph), order_tasks(graph), moments)
    found = moments.end[piece.exit]
    _leave(columns(graph), *_own_messages(piece), moments, found)
    return found


def _own_messages(piece: LoweredSchedule) -> tuple[I64, I32, Bool]:
    """Return the messages that each participant sends or receives, for `_leave`.

    Returns:
        [U + 1] the index at which the messages of each participant begin; the messages of all participants one after another;
        and for each message True, because it counts when it leaves.
    """
    receiver = piece.receiver.ravel()
    message = np.arange(len(receiver))
    who = np.concatenate((piece.graph.owner[message], receiver))
    start = np.searchsorted(np.sort(who), np.arange(len(piece.exit) + 1))
    own = np.tile(message, 2)[np.argsort(who, kind="stable")]
    return column(start, np.int64), column(own, np.int32), column(np.ones(len(own)), np.bool_)


@compiled
def _time(g: Columns, order: I32, s: _Moments) -> None:
    """Compute the earliest times of all tasks; `order` lists them, and is empty for the order of their numbers."""
    for i in range(len(s.start)):
        v = order[i] if len(order) > 0 else i
        first, end = g.pred_start[v], g.pred_start[v + 1]
        start = float(g.ready[v])
        for j in range(first, end):
            start = max(start, s.left[g.pred[j]] if g.pred_left[j] else s.end[g.pred[j]])
        if end > first + 1:
            start = max(start, _last_fs(g, s, g.pred, g.pred_left, first, end))
        ticks = 0.0
        for h in range(g.hop_start[v], g.hop_start[v + 1]):
            ticks = max(ticks, float(g.size[v]) * g.hop_weight[h] / s.capacity[g.hop_link[h]])
        s.start[v], s.left[v], s.end[v] = start, start + ticks, start + ticks + g.alpha[v]
        if g.hop_start[v] == g.hop_start[v + 1]:
            s.left[v] = s.end[v]


@compiled
def _last_fs(g: Columns, s: _Moments, tasks: I32, left: Bool, low: int, high: int) -> float:
    """Return a lower bound of the tick at which the last of several tasks leaves or ends, from their bytes on links.

    Args:
        g: The columns of the graph.
        s: The earliest moments of the tasks that were computed so far, and columns for the sums of links.
        tasks: Numbers of tasks; those from index `low` up to `high` - 1 count.
        left: Whether a task counts when it leaves (true) or when it ends (false); one mark for each of `tasks`.
        low: The first index.
        high: One past the last index.
    """
    n, latest = 0, 0.0
    for j in range(low, high):
        v = tasks[j]
        for h in range(g.hop_start[v], g.hop_start[v + 1] if g.size[v] > 0 else g.hop_start[v]):
            k = g.hop_link[h]
            if s.size[k] == 0:
                s.first[k], s.head[k], s.crossed[n], n = s.start[v], g.alpha[v], k, n + 1
            s.first[k] = min(s.first[k], s.start[v])
            s.head[k] = min(s.head[k], 0 if left[j] else g.alpha[v])
            s.size[k] += float(g.size[v]) * g.hop_weight[h]
    for i in range(n):
        k = s.crossed[i]
        latest = max(latest, s.first[k] + s.size[k] / s.capacity[k] + s.head[k])
        s.size[k] = 0.0
    return float(latest)


@compiled
def _leave(g: Columns, start: I64, own: I32, left: Bool, s: _Moments, found: F64_OUT) -> None:
    """Raise each participant's time of leaving to the time at which all its own messages have left, if that is later."""
    for who in range(len(found)):
        found[who] = max(found[who], _last_fs(g, s, own, left, start[who], start[who + 1]))


def _own_fs(placed: PlacedSchedule) -> F64:
    """Return [G P] a lower bound of each participant's ticks, from the busiest link for its sent or received messages.

    The larger of the two is returned. Each is the time of the busiest link that these messages cross.
    """
    copies = np.arange(len(placed.copies(None).first))
    ways, (src, dst, _) = sure_routes(placed.topology, placed.route_pairs(copies)), placed.classes.pairs
    sent = np.repeat(placed.classes.pair_bytes, len(copies))
    crossing = np.repeat(sent, np.diff(ways.start)) * ways.weight / ways.capacity_Bps[ways.link]
    found = np.zeros(placed.nodes.size)
    for end, waits in ((src, 0), (dst, 1)):
        who = placed.participants_in(end, copies).ravel()
        head = np.full(len(found), np.inf)
        np.minimum.at(head, who, waits * ways.head_fs.astype(np.float64))
        own = np.repeat(who, np.diff(ways.start)) * len(ways.capacity_Bps) + ways.link
        of_link, number = np.unique(own, return_inverse=True)
        busy_fs = np.bincount(number, crossing, len(of_link)) * TICKS_PER_S
        busiest = np.zeros(len(found))
        np.maximum.at(busiest, of_link // len(ways.capacity_Bps), busy_fs)
        found = np.maximum(found, busiest + np.where(np.isfinite(head), head, 0.0))
    return found
