"""Maximum flows on small dense networks, many of which the synthesis of one schedule needs.

Source: Dinic, Algorithm for solution of a problem of maximum flow in networks with power estimation, Soviet Math. Dokl. 11
(1970). A matrix holds the capacity from every node to every other. Letters: V nodes, K sinks.
"""

from typing import Annotated

import numpy as np

from emu.arrays import I64, Bool
from emu.compiled.function import I64_2D, I64_OUT, Numbers, compiled

I64_2D_OUT = Annotated[I64, Numbers(written=True, n_dims=2)]
ENDLESS = 2**61  # the capacity of an arc that no cut may take; sums of a few stay below 2**63


@compiled
def _reach(left: I64_2D_OUT, source: int, sink: int, level: I64_OUT, order: I64_OUT) -> bool:
    """Set the number of arcs from the source to each node that residual arcs reach, else -1; return whether the sink is one."""
    n = len(level)
    for v in range(n):
        level[v] = -1
    level[source], order[0], seen, done = 0, source, 1, 0
    while done < seen:
        a = order[done]
        done += 1
        for b in range(n):
            if level[b] < 0 and left[a, b] > 0:
                level[b], order[seen] = level[a] + 1, b
                seen += 1
    return bool(level[sink] >= 0)


@compiled
def _advance(left: I64_2D_OUT, sink: int, level: I64_OUT, ahead: I64_OUT, way: I64_OUT) -> int:
    """Extend the path in `way`, which begins at the source, by levels to the sink; return its arcs, 0 where there is none."""
    n, d = len(level), 0
    while way[d] != sink:
        a = way[d]
        while ahead[a] < n and not (left[a, ahead[a]] > 0 and level[ahead[a]] == level[a] + 1):
            ahead[a] += 1
        if ahead[a] < n:
            d += 1
            way[d] = ahead[a]
        elif d == 0:
            return 0
        else:
            d -= 1
            ahead[way[d]] += 1
    return d


@compiled
def _send(left: I64_2D_OUT, way: I64_OUT, d: int, most: int) -> int:
    """Send as much as a path of d arcs still takes, `most` at most, and return that amount."""
    for i in range(d):
        most = min(most, left[way[i], way[i + 1]])
    for i in range(d):
        left[way[i], way[i + 1]] -= most
        left[way[i + 1], way[i]] += most
    return most


@compiled
def _flow(left: I64_2D_OUT, ends: I64, most: int, work: I64_2D_OUT) -> int:
    """Send flow from `ends[0]` to `ends[1]`, `most` at most, and return the amount.

    `left` becomes the residual capacities. The first row of `work` is then -1 for nodes that these do not reach.
    """
    level, order, ahead, way = work[0], work[1], work[2], work[3]
    sent = 0
    while sent < most and _reach(left, ends[0], ends[1], level, order):
        for v in range(len(level)):
            ahead[v] = 0
        way[0] = ends[0]
        d = _advance(left, ends[1], level, ahead, way)
        while d > 0 and sent < most:
            sent += _send(left, way, d, most - sent)
            d = _advance(left, ends[1], level, ahead, way)
    return sent


@compiled
def _first_short(capacity: I64_2D, left: I64_2D_OUT, sinks: I64, source: int, need: int, work: I64_2D_OUT) -> int:
    """Return the index of the first sink to which less than `need` can flow from the source; -1: there is none."""
    ends = work[4]
    for i in range(len(sinks)):
        ends[0], ends[1] = source, sinks[i]
        for a in range(len(left)):
            for b in range(len(left)):
                left[a, b] = capacity[a, b]
        if _flow(left, ends[:2], need, work) < need:
            return i
    return -1


def _work(n: int) -> I64:
    """Return the arrays in which flows among n nodes are searched."""
    return np.zeros((5, n), np.int64)


def max_flow(capacity: I64, source: int, sink: int, most: int = ENDLESS) -> int:
    """Return how much can flow from the source to the sink, `most` at most.

    Args:
        capacity: [V, V] the capacity from each node to each other.
        source: The node that flow leaves.
        sink: Another node.
        most: The amount from which the rest does not matter.
    """
    return int(_flow(capacity.copy(), np.array((source, sink)), most, _work(len(capacity))))


def first_short(capacity: I64, sinks: I64, source: int, need: int) -> int:
    """Return the index of the first sink to which less than `need` can flow from the source; -1: all get as much.

    Args:
        capacity: [V, V] the capacity from each node to each other.
        sinks: [K] nodes other than the source.
        source: The node that flow leaves.
        need: The amount that each sink must get for itself.
    """
    return int(_first_short(capacity, np.empty_like(capacity), sinks, source, need, _work(len(capacity))))


def source_side(capacity: I64, source: int, sink: int, need: int) -> Bool | None:
    """Return [V] the side of the source of a least cut, or None if `need` or more can flow to the sink."""
    left, work = capacity.copy(), _work(len(capacity))
    if _flow(left, np.array((source, sink)), need, work) >= need:
        return None
    return np.asarray(work[0] >= 0)
