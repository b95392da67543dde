"""What requests under way at one time cost one another: those that cross one link share it.

A request becomes one message: a body of what one flow carries over the busiest link, which takes as long as that link is busy,
then a delay for the rest. Its weight on a link says how many such flows cross it. Alone it takes what it took on the fabric.
Q different requests, L links of the topology, K kinds of requests, S links that stand for those that the same kinds cross.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64, Bool, column
from emu.fabric.graph import Graph
from emu.fabric.timeline import Timeline
from emu.units import TICKS_PER_S, seconds

_PARTS = 64  # of a flow that a weight counts, so that it can be whole
_MOST = 256  # links that are looked at, those that carry most


class Once(NamedTuple):
    """A request with the fabric to itself."""

    ticks: int  # until the last rank has left it
    tail: int  # of these, those in which a message's sender has left already; 0 of a collective
    busy_s: F64  # [L] that each link takes at full rate for what it carries
    flows_s: F64  # [L] that its messages take to cross each link, added up


class Bodies(NamedTuple):
    """The message of each request, then what of each comes after its sender has left; columns as of a `Graph`."""

    capacity_Bps: F64  # [S, then one a request that shares]
    size_bytes: I64  # [2 Q]
    alpha_fs: I64  # [2 Q]
    hop_start: I64  # [2 Q + 1]
    hop_link: I32
    hop_weight: I32

    @property
    def has_tail(self) -> Bool:
        """[Q] whether anything comes after."""
        return self.alpha_fs[len(self.alpha_fs) // 2 :] > 0

    def of(self, requests: I64) -> tuple[I64, I64, I64, I32, I32]:
        """The columns of a message for each of `requests`, any number of times."""
        hops = np.diff(self.hop_start)[requests]
        start = np.concatenate(([0], np.cumsum(hops)))
        at = np.repeat(self.hop_start[requests] - start[:-1], hops) + np.arange(start[-1])
        return self.size_bytes[requests], self.alpha_fs[requests], start, self.hop_link[at], self.hop_weight[at]


def once_of(graph: Graph, timeline: Timeline, number: I64 | None, *, message: bool) -> Once:
    """What a request took, and what of each link.

    Args:
        graph: Its messages.
        timeline: When they ran.
        number: [L] which link of the graph stands for each; None: each for itself.
        message: Whether it is one message of each group.
    """
    task = np.repeat(np.arange(graph.n_tasks), np.diff(graph.hop_start))
    lasts = (timeline.left_fs - timeline.start_fs)[task] * graph.hop_weight
    flows_s = np.bincount(graph.hop_link, lasts, graph.n_links) / TICKS_PER_S
    each = np.arange(graph.n_links) if number is None else number
    busy_s = timeline.busy_s(graph.capacity_Bps)
    end = int(timeline.end_fs.max(initial=0))
    left = int(timeline.left_fs[task].max(initial=0)) if message else end
    return Once(end, end - left, busy_s[each], flows_s[each])


def bodies_of(once: Sequence[Once], kinds: Sequence[Hashable], times: I64, capacity_Bps: F64) -> Bodies:
    """The message that stands for each request.

    Args:
        once: [Q] what each takes alone.
        kinds: [Q] of one kind are requests that come one after another: they share nothing.
        times: [Q] how often each is asked.
        capacity_Bps: [L].
    """
    stand = _standing(once, kinds, times)
    size, tail, rates = np.zeros(len(once), np.int64), np.array([each.tail for each in once], np.int64), list[float]()
    alpha = np.array([each.ticks for each in once], np.int64) - tail
    links, weights = list[I64](), list[I64]()
    for i, each in enumerate(once):
        crossed = np.flatnonzero(each.busy_s[stand] > 0)
        links.append(crossed)
        weights.append(crossed)
        if not len(crossed):
            continue
        worst = int(each.busy_s.argmax())
        body_s, n_flows = float(each.busy_s[worst]), max(1.0, float(each.flows_s[worst] / each.busy_s[worst]))
        ticks = min(max(1, round(body_s * TICKS_PER_S)), each.ticks - each.tail)
        size[i] = max(1, round(body_s * capacity_Bps[worst] / n_flows))
        alpha[i] -= ticks
        carried = each.busy_s[stand[crossed]] * capacity_Bps[stand[crossed]]
        links[-1] = np.append(crossed, len(stand) + len(rates))
        weights[-1] = np.append(np.maximum(1, np.floor(_PARTS * carried / size[i])).astype(np.int64), 1)
        rates.append(size[i] / seconds(ticks))
    start = np.cumsum([0, *map(len, links), *(0 * tail)])
    hops = (np.concatenate([np.empty(0, np.int64), *c]) for c in (links, weights))
    capacity = np.concatenate((_PARTS * capacity_Bps[stand], rates))
    size, alpha = np.concatenate((size, 0 * tail)), np.concatenate((alpha, tail))
    return Bodies(capacity, size, alpha, start, *(column(c, np.int32) for c in hops))


def _standing(once: Sequence[Once], kinds: Sequence[Hashable], times: I64) -> I64:
    """[S] of the links that the same two kinds or more cross, the one that carries most; none that another stands for too."""
    n_links = len(once[0].busy_s) if once else 0
    random = np.random.default_rng(0)
    code, n_kinds, total = np.zeros(n_links, np.uint64), np.zeros(n_links, np.int64), np.zeros(n_links)
    for kind in dict.fromkeys(kinds):
        own = [i for i, of in enumerate(kinds) if of == kind]
        crosses = np.any([once[i].busy_s > 0 for i in own], axis=0)
        code[crosses] += random.integers(1, 2**63, dtype=np.uint64)
        n_kinds += crosses
        total += np.sum([times[i] * once[i].busy_s for i in own], axis=0)
    shared = np.flatnonzero(n_kinds > 1)
    by_total = shared[np.argsort(-total[shared], kind="stable")]
    _, first = np.unique(code[by_total], return_index=True)
    found = by_total[np.sort(first)[:_MOST]]
    busy = np.array([each.busy_s[found] for each in once]).reshape(len(once), -1)
    kept = list[int]()
    for i in range(len(found)):
        if not any((busy[:, k] >= busy[:, i]).all() for k in kept):
            kept.append(i)
    return column(found[kept], np.int64)
