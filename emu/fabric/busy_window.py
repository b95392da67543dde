"""The window of a timed graph in which its fabric has most to do, as a graph of its own, cut to a budget of packet hops.

The busiest request is the one whose time, times the time for which it keeps one link busy, is the largest. The window begins
with its first message and ends with its last. It has all tasks that run in this time, those under way at its beginning with
what is left of them. If that is more than the budget, the window has the tasks that start first. If those that start with the
first message are too many, packets become cells, and then messages smaller, as long as the largest has 128 packets or cells:
with fewer, the time of one on each link would count too much.

V tasks, L links, H hops, W tasks of the window.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool, column, ramps
from emu.errors import InputError
from emu.fabric.engine.packets.packet_network import PacketNetwork
from emu.fabric.graph import Graph, Timeline
from emu.units import TICKS_PER_S

MOST_HOPS = 2**21  # of a window
LEAST_UNITS = 128  # packets or cells of the largest message where packets become cells, or messages smaller
LARGEST_CELL = 2**14


class TimedGraph(NamedTuple):
    """A graph with its times in the fluid fabric, the routes of its messages, and the request that each belongs to."""

    graph: Graph
    timeline: Timeline
    key: I64  # [V] the key of each message's route
    request: I64  # [V] the number of its request; -1: none, or one that is not looked at


@dataclass(frozen=True, eq=False, slots=True)
class Window:
    """The tasks of a graph that run between two ticks, as a graph of their own that begins at tick 0.

    Messages may be divided by `divisor`, and packets joined to cells of `cell_bytes`, so that packets can run it. `share` is
    its share of the bytes times links of all messages.
    """

    graph: Graph
    task: I64  # [W] the number of each task in the whole graph
    of_request: Bool  # [W] whether it is a message of the busiest request
    cell_bytes: int  # payload that is one packet in it; 0: packets are as the network has them
    divisor: int  # by which the sizes of messages are divided
    share: float  # of the bytes times links of all messages of the graph, what it has


class WindowError(InputError):
    """The error that even the shortest window of a graph has more packets than the budget allows."""


def busiest_request(source: TimedGraph) -> int | None:
    """Return the number of the request with the largest product of its time and of the time that it needs of one link.

    None: no request sends a byte.
    """
    graph, timeline = source.graph, source.timeline
    task = graph.hop_task
    of_hop = source.request[task]
    hop = np.flatnonzero(of_hop >= 0)
    if not len(hop):
        return None
    task, of_hop, link = task[hop], of_hop[hop], graph.hop_link[hop]
    code, number = np.unique(of_hop * graph.n_links + link, return_inverse=True)
    busy_s = np.bincount(number, graph.size_bytes[task] / graph.capacity_Bps[link])
    first, last = np.full(of_hop.max() + 1, np.iinfo(np.int64).max), np.zeros(of_hop.max() + 1, np.int64)
    np.minimum.at(first, of_hop, timeline.start_fs[task])
    np.maximum.at(last, of_hop, timeline.end_fs[task])
    request = code // graph.n_links
    weight = busy_s * (last - first)[request]
    return int(request[np.argmax(weight)]) if weight.max() > 0 else None


def busiest_window(source: TimedGraph, network: PacketNetwork, most_hops: int = MOST_HOPS) -> Window | None:
    """Return the window of the busiest request; None: nothing is sent.

    Args:
        source: The graph and its times in the fluid fabric.
        network: The settings of the packet network, such as the payload of a packet.
        most_hops: The budget: the most packets or cells with payload, each counted once for each link that it crosses.

    Raises:
        WindowError: The messages that start at one tick alone are more than the budget.
    """
    request = busiest_request(source)
    if request is None:
        return None
    graph, timeline = source.graph, source.timeline
    all_hops = np.diff(graph.hop_start)
    own = np.flatnonzero((source.request == request) & (all_hops > 0))
    since, until = int(timeline.start_fs[own].min()), int(timeline.end_fs[own].max())
    inside = np.flatnonzero((timeline.end_fs > since) & (timeline.start_fs < until))
    inside = inside[np.argsort(timeline.start_fs[inside], kind="stable")]
    rest = _remaining_bytes(graph, timeline, inside, since)
    hops = all_hops[inside]
    start = np.maximum(timeline.start_fs[inside], since)
    cell, divisor = _cell_and_divisor(np.where(start == since, rest, 0), hops, network, most_hops)
    unit = cell or network.payload_bytes
    passed = np.cumsum(_packet_counts(rest, divisor, unit) * hops)
    ends = np.flatnonzero(np.append(start[1:] != start[:-1], True))  # of those that start at one tick, the last
    taken = int(ends[max(0, int(np.searchsorted(passed[ends], most_hops, side="right")) - 1)]) + 1
    every = float((graph.size_bytes * all_hops).sum())
    made = _window_graph(source, inside[:taken], -(-rest[:taken] // divisor), since)
    left = np.diff(made.hop_start)
    is_own = (source.request[inside[:taken]] == request) & (left > 0)
    return Window(made, inside[:taken], is_own, cell, divisor, float((made.size_bytes * left).sum()) / every)


def _remaining_bytes(graph: Graph, timeline: Timeline, task: I64, since: int) -> I64:
    """Return the bytes of tasks that have not yet left at a tick, if the bytes of each task leave at an even rate.

    Args:
        graph: The whole graph.
        timeline: Its times.
        task: [W] the numbers of the tasks.
        since: The tick.
    """
    start, left = timeline.start_fs[task], timeline.left_fs[task]
    share = np.clip((left - since) / np.maximum(left - start, 1), 0.0, 1.0)
    return column(np.where(start >= since, graph.size_bytes[task], np.ceil(graph.size_bytes[task] * share)), np.int64)


def _packet_counts(size: I64, divisor: int, unit: int) -> I64:
    """Return the number of packets (or cells) of each message after its size is divided by `divisor`.

    Args:
        size: The bytes of each message.
        divisor: The divisor.
        unit: The payload of a packet or cell, in bytes.
    """
    smaller = -(-size // divisor)
    return np.asarray(-(-smaller // unit))


def _cell_and_divisor(size: I64, hops: I64, network: PacketNetwork, most_hops: int) -> tuple[int, int]:
    """Return the payload of a cell in bytes (0: packets of the network) and the divisor of message sizes that fit a budget.

    Args:
        size: The bytes of each message.
        hops: The number of links that each message crosses.
        network: The settings of the packet network.
        most_hops: The budget, as `busiest_window` has it.

    Raises:
        WindowError: No cell and no divisor fits.
    """
    packet, largest = network.payload_bytes, int(size.max(initial=0))
    cells = [packet, *_cells(network, min(LARGEST_CELL, largest // LEAST_UNITS))]
    for cell in cells:
        needed = int((_packet_counts(size, 1, cell) * hops).sum())
        if needed <= most_hops:
            return cell * (cell > packet), 1
    divisor = -(-needed // most_hops)
    while divisor * LEAST_UNITS * cells[-1] <= largest:
        if int((_packet_counts(size, divisor, cells[-1]) * hops).sum()) <= most_hops:
            return cells[-1] * (cells[-1] > packet), divisor
        divisor += 1
    packets = int((_packet_counts(size, 1, packet) * hops).sum())
    raise WindowError(f"messages that start at one moment have {packets} packet hops, more than the budget of {most_hops}")


def _cells(network: PacketNetwork, most_bytes: int) -> list[int]:
    """Return the payloads of cells of 2, 4, 8, ... packets, up to a number of bytes, for which a link's credits suffice."""
    cells = [network.payload_bytes * 2**i for i in range(1, 9)]
    room = network.credit_bytes if network.lossless == "credits" else most_bytes + network.wire_bytes(most_bytes)
    return [cell for cell in cells if cell <= most_bytes and network.wire_bytes(cell) <= room]


def _window_graph(source: TimedGraph, task: I64, size: I64, since: int) -> Graph:
    """Return a graph of some tasks of a larger graph from a tick on; that tick is its tick 0.

    Args:
        source: The whole graph with its times.
        task: [W] the tasks, with all tasks that they wait for and that end after the tick.
        size: [W] the bytes of each task that have not left at the tick.
        since: The tick.
    """
    graph, timeline = source.graph, source.timeline
    under_way = timeline.start_fs[task] < since
    gone = under_way & (size == 0)  # it has left, or has no bytes: what is left of it is a delay
    hops = np.where(gone, 0, np.diff(graph.hop_start)[task])
    hop = ramps(graph.hop_start[task], hops)
    start, pred, early = _window_waits(source, task, under_way, since)
    return Graph(
        capacity_Bps=graph.capacity_Bps,
        size_bytes=column(size, np.int64),
        alpha_fs=column(np.where(gone, timeline.end_fs[task] - since, graph.alpha_fs[task]), np.int64),
        ready_fs=column(np.where(under_way, 0, np.maximum(graph.ready_fs[task] - since, 0)), np.int64),
        hop_start=column(np.cumsum([0, *hops]), np.int64),
        hop_link=column(graph.hop_link[hop], np.int32),
        hop_weight=column(graph.hop_weight[hop], np.int32),
        pred_start=start, pred=pred, pred_left=early,
        owner=graph.owner[task], origin=graph.origin[task],
    )  # fmt: skip


def _window_waits(source: TimedGraph, task: I64, under_way: Bool, since: int) -> tuple[I64, I32, Bool]:
    """Return the predecessors of the tasks of a window, as `Graph` has them, without those that are over before it begins.

    Args:
        source: The whole graph with its times.
        task: [W] the tasks of the window.
        under_way: [W] whether a task has started before the window; such a task waits for nothing.
        since: The tick at which the window begins.
    """
    graph = source.graph
    place = np.full(graph.n_tasks, -1)
    place[task] = np.arange(len(task))
    preds = np.where(under_way, 0, np.diff(graph.pred_start)[task])
    edge = ramps(graph.pred_start[task], preds)
    waits, pred, early = np.repeat(np.arange(len(task)), preds), graph.pred[edge], graph.pred_left[edge]
    inner = (place[pred] >= 0) & ~(early & (source.timeline.left_fs[pred] <= since))
    start = np.cumsum([0, *np.bincount(waits[inner], minlength=len(task))])
    return column(start, np.int64), column(place[pred[inner]], np.int32), column(early[inner], np.bool_)


def packet_ticks(graph: Graph, network: PacketNetwork) -> int:
    """Return the ticks that a packet takes on the fastest link that the graph crosses."""
    fastest_Bps = float(graph.capacity_Bps[graph.hop_link].max(initial=1.0))
    return int(network.wire_bytes(network.payload_bytes) * TICKS_PER_S / fastest_Bps)


def late_starts(graph: Graph, seed: int, most_fs: int) -> Graph:
    """Return a graph in which each task without predecessors starts later, by a random time.

    Args:
        graph: The graph.
        seed: The seed of the times.
        most_fs: The longest time, in ticks.
    """
    first = np.diff(graph.pred_start) == 0
    late = np.random.default_rng(seed).integers(most_fs + 1, size=graph.n_tasks)
    return replace(graph, ready_fs=column(graph.ready_fs + np.where(first, late, 0), np.int64))
