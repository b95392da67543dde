"""What each different request of a step takes with the fabric to itself, all groups of its axis in one place at the same time.

Q different requests, L links that a request crosses.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.collective.algorithm import Choice, Request, Served
from emu.collective.operation import operation
from emu.fabric.graph import Graph
from emu.fabric.lower import launched, lowered
from emu.fabric.run import run
from emu.fabric.symmetric import domain_of
from emu.fabric.timeline import Timeline
from emu.study.training.asked import Different
from emu.topology.topology import Topology
from emu.trace.batch import What
from emu.trace.replay import lay_request
from emu.trace.requests import MESSAGE
from emu.trace.split import packed_blocks
from emu.units import TICKS_PER_S

LIGHT = 2**15  # tasks up to which a request of each size is timed


class Once(NamedTuple):
    """A request by itself."""

    ticks: int  # until the last rank has left it
    tail: int  # of these, those in which a message's sender has left already; 0 of a collective
    link: I64  # [L] ascending
    busy_s: F64  # [L] that each takes at full rate for what it carries
    flows: float  # messages that cross the busiest of them at one time, 1 or more
    tasks: int

    def between(self, other: "Once", part: float) -> "Once":
        """So far on the way to another of the same links."""
        ticks = round(self.ticks + part * (other.ticks - self.ticks))
        busy_s = self.busy_s + part * (other.busy_s - self.busy_s)
        return Once(ticks, 0, self.link, busy_s, self.flows + part * (other.flows - self.flows), self.tasks)


def request_of(asked: Different) -> Request:
    """What its first group asks."""
    return Request(asked.name, tuple(asked.ranks[0].tolist()), asked.root, asked.elements, asked.dtype)


def whats_of(requests: Sequence[Different], choice: Choice) -> list[What]:
    """[Q] each as a replay has it; all groups of an axis are served alike, by what serves the first group that asks."""
    found: dict[Hashable, Served] = {}
    whats = []
    for asked in requests:
        n = asked.ranks.shape[1]
        if asked.name == MESSAGE:
            whats.append(What(asked.axis, None, MESSAGE, n, 0, asked.size_bytes, 0, b""))
            continue
        key = (asked.axis, asked.name, asked.dtype, asked.root, asked.elements, n)
        served = found.get(key) or found.setdefault(key, choice.served(request_of(asked)))
        whats.append(What(asked.axis, served, asked.name, n, asked.root, asked.size_bytes, asked.elements, _blocks(asked)))
    return whats


def _blocks(asked: Different) -> bytes:
    """Each member gives what the first gives."""
    if not asked.splits:
        return b""
    n = asked.ranks.shape[1]
    return packed_blocks(asked.name, operation(asked.name, n, asked.root), [np.array(asked.splits)] * n, asked.elements)


def time_each(
    requests: Sequence[Different], whats: Sequence[What], topology: Topology, placement: I64, launch_fs: int = 0
) -> list[Once]:
    """[Q] what each takes.

    Of large ones that differ in nothing but their size, the smallest and the largest are timed; between them time is taken to
    grow evenly, as it does where it is latency and bytes over a bandwidth.

    Args:
        requests: [Q].
        whats: [Q] the same as a replay has them.
        topology: Where they run.
        placement: The NPU of each rank.
        launch_fs: As of `time_once`.

    Raises:
        InputError: as `time_once`.
    """
    found: dict[int, Once] = {}

    def timed(i: int) -> Once:
        if i not in found:
            found[i] = time_once(whats[i], topology, placement[requests[i].ranks], launch_fs)
        return found[i]

    for alike in _but_for_size(requests, whats):
        least, most = timed(alike[0]), timed(alike[-1])
        for i in alike[1:-1]:
            if min(least.tasks, most.tasks) > LIGHT and np.array_equal(least.link, most.link):
                low, size, high = (whats[j].size_bytes for j in (alike[0], i, alike[-1]))
                found[i] = least.between(most, (size - low) / (high - low))
            timed(i)
    return [found[i] for i in range(len(requests))]


def _but_for_size(requests: Sequence[Different], whats: Sequence[What]) -> Iterator[list[int]]:
    """Those that are alike, by size; each by itself where members give blocks of their own, or only one size is asked."""

    def alike(i: int) -> str:
        what, own = whats[i], i if whats[i].blocks else -1
        return repr((requests[i].kind, what.name, what.served, what.root, own))

    in_turn = sorted(range(len(whats)), key=lambda i: (alike(i), whats[i].size_bytes))
    for _, several in groupby(in_turn, alike):
        yield list(several)


def time_once(what: What, topology: Topology, nodes: I64, launch_fs: int = 0) -> Once:
    """Time a request of all its groups at once.

    Args:
        what: The request.
        topology: Where it runs.
        nodes: [groups, members].
        launch_fs: Ticks that each rank takes to enter it.

    Raises:
        InputError: as `lay_request` and `lowered`.
    """
    laid = lay_request(what, topology, nodes)
    domain = domain_of(topology, nodes.ravel(), [laid])
    graph = launched(lowered(laid, domain), launch_fs).graph
    number = np.arange(len(topology.links)) if domain is None else domain.links.number
    return once_of(graph, run(graph), number, message=what.served is None)


def once_of(graph: Graph, timeline: Timeline, number: I64, *, message: bool) -> Once:
    """What a request took, and what of each link.

    Args:
        graph: Its messages.
        timeline: When they ran.
        number: [links of the topology] which link of the graph stands for each.
        message: Whether it is one message of each group.
    """
    busy_s = timeline.busy_s(graph.capacity_Bps)
    link = np.flatnonzero(busy_s[number])
    end = int(timeline.end_fs.max(initial=0))
    if not len(link):
        return Once(end, 0, link, busy_s[:0], 1.0, graph.n_tasks)
    task = np.repeat(np.arange(graph.n_tasks), np.diff(graph.hop_start))
    on_worst = graph.hop_link == busy_s.argmax()
    crossing = ((timeline.left_fs - timeline.start_fs)[task] * graph.hop_weight)[on_worst].sum() / TICKS_PER_S
    left = int(timeline.left_fs[task].max()) if message else end
    return Once(end, end - left, link, busy_s[number[link]], max(1.0, float(crossing / busy_s.max())), graph.n_tasks)
