"""The sweep: a fast method that times a graph as if messages shared no link, and then verifies that this is exact.

A message's nominal rate is the least bandwidth that a link of its route gives it without other messages. If at every instant
every link can carry its messages at their nominal rates, then no message limits another, and the result equals the solver's to
the bit; else the sweep has no result. Letters: V tasks, L links, H hops, B messages on one link.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64, Bool
from emu.compiled.function import BOOL_OUT, F64_OUT, I64_OUT, compiled, compiled_making_arrays
from emu.fabric.engine.solver.event_loop import link_bytes
from emu.fabric.engine.state_layout import Columns, columns
from emu.fabric.graph import Graph, Timeline
from emu.units import MAX_TICKS, TICKS_PER_S

MAX_RATES = 8  # up to this many different rates on one link are verified exactly; with more, a margin must stay free
MARGIN = 2.0**-20  # far above the rounding of any running sum of rates


class _Pass(NamedTuple):
    """The times that a sweep computes, and the state of each link during the sweep.

    For each link it has the message that leaves last so far, and whether messages may be on the link at the same time.
    """

    start: I64_OUT  # [V]
    left: I64_OUT  # [V]
    end: I64_OUT  # [V]
    met: BOOL_OUT  # [L] whether messages may be on the link at the same time
    since: I64_OUT  # [L] start of the message that leaves last so far; `until`: when it leaves; `load`: its load
    until: I64_OUT  # [L]
    load: F64_OUT  # [L]


def sweep(graph: Graph, order: I32) -> Timeline | None:
    """Return the timeline of a checked graph; None if messages may share a link.

    The argument `order` has the tasks with predecessors first; empty: the order of their numbers.
    """
    g, capacity, n, n_links = columns(graph), graph.capacity_Bps / TICKS_PER_S, graph.n_tasks, graph.n_links
    start, left, end, since, until = (np.zeros(m, np.int64) for m in (n, n, n, n_links, n_links))
    s = _Pass(start, left, end, np.zeros(n_links, np.bool_), since, until, np.zeros(n_links))
    if not _time(g, capacity, order, s) or (s.met.any() and not _links_carry_all(g, capacity, s.start, s.left, s.met)):
        return None
    return Timeline(s.start, s.left, s.end, link_bytes(g, n_links), "sweep")


@compiled
def _rate(g: Columns, capacity: F64, v: int) -> float:
    """Return the nominal rate of message `v`: the least bandwidth on its route, without other messages."""
    rate = np.inf
    for h in range(g.hop_start[v], g.hop_start[v + 1]):
        rate = min(rate, capacity[g.hop_link[h]] / g.hop_weight[h])
    return float(rate)


@compiled
def _flow_ticks(g: Columns, rate: float, v: int) -> int:
    """Return the ticks that a message flows at rate `rate`: 0 if it has no bytes, -1 if beyond the clock."""
    if g.size[v] == 0:
        return 0
    ticks = max(1.0, np.rint(g.size[v] / rate)) if rate > 0 else np.inf
    return int(ticks) if ticks < float(MAX_TICKS) else -1


@compiled
def _occupy_links(g: Columns, capacity: F64, s: _Pass, v: int, rate: float) -> bool:
    """Add a message to its links; return False if a link certainly cannot carry it beside another message."""
    for h in range(g.hop_start[v], g.hop_start[v + 1]):
        k, load = g.hop_link[h], g.hop_weight[h] * rate
        if s.start[v] < s.until[k]:
            s.met[k] = True
            if s.left[v] > s.since[k] and load + s.load[k] > capacity[k] * (1 + MARGIN):
                return False
        if s.left[v] > s.until[k]:
            s.since[k], s.until[k], s.load[k] = s.start[v], s.left[v], load
    return True


@compiled
def _time(g: Columns, capacity: F64, order: I32, s: _Pass) -> bool:
    """Compute the times of all tasks; return False if two messages certainly limit each other, or the clock ends."""
    for i in range(len(s.start)):
        v = order[i] if len(order) > 0 else i
        rate = _rate(g, capacity, v)
        start, ticks = g.ready[v], _flow_ticks(g, rate, v)
        for j in range(g.pred_start[v], g.pred_start[v + 1]):
            start = max(start, s.left[g.pred[j]] if g.pred_left[j] else s.end[g.pred[j]])
        if ticks < 0 or ticks >= MAX_TICKS - start or g.alpha[v] >= MAX_TICKS - start - ticks:
            return False
        s.start[v], s.left[v], s.end[v] = start, start + ticks, start + ticks + g.alpha[v]
        if g.hop_start[v] == g.hop_start[v + 1]:
            s.left[v] = s.end[v]
        elif ticks > 0 and not _occupy_links(g, capacity, s, v, rate):
            return False
    return True


@compiled_making_arrays
def _consistent(capacity: float, rates: F64, weights: I64) -> bool:
    """Return whether a link can carry some flows at these rates, computed with the solver's own arithmetic.

    Args:
        capacity: The bandwidth of the link.
        rates: The rates, ascending.
        weights: The number of flows at each rate.
    """
    n_unfrozen, used, level = weights.sum(), 0.0, 0.0
    for i in range(len(rates)):
        if weights[i] == 0:
            continue
        level = max(level, (capacity - used) / n_unfrozen)
        if rates[i] > level:
            return False
        n_unfrozen -= weights[i]
        if rates[i] == level:
            return bool(n_unfrozen == 0)
        used += rates[i] * weights[i]
    return True


@compiled_making_arrays
def _carries(capacity: float, start: I64, left: I64, rate: F64, weight: I64) -> bool:
    """Return whether a link can carry its B messages at every instant; where one leaves as another starts, it leaves first."""
    rates = np.unique(rate)
    kind, flowing = np.searchsorted(rates, rate), np.zeros(len(rates), np.int64)
    by_start, by_left = np.argsort(start), np.argsort(left)
    i = j = n = 0
    load = 0.0
    while i < len(start):
        now = min(start[by_start[i]], left[by_left[j]])
        while left[by_left[j]] == now:
            b = by_left[j]
            flowing[kind[b]] -= weight[b]
            load, n, j = load - weight[b] * rate[b], n - 1, j + 1
        load = load if n > 0 else 0.0
        while i < len(start) and start[by_start[i]] == now:
            b = by_start[i]
            flowing[kind[b]] += weight[b]
            load, n, i = load + weight[b] * rate[b], n + 1, i + 1
        exact = len(rates) <= MAX_RATES
        if n > 1 and not (_consistent(capacity, rates, flowing) if exact else load <= capacity * (1 - MARGIN)):
            return False
    return True


@compiled_making_arrays
def _links_carry_all(g: Columns, capacity: F64, start: I64, left: I64, met: Bool) -> bool:
    """Return whether every link that may carry several messages at one time can carry them at their nominal rates."""
    room = np.zeros(len(met) + 1, np.int64)
    for v in range(len(start)):
        for h in range(g.hop_start[v], g.hop_start[v + 1]):
            room[g.hop_link[h] + 1] += met[g.hop_link[h]] and g.size[v] > 0
    first = np.cumsum(room)
    at = first.copy()
    task, weight, rate = np.empty(first[-1], np.int64), np.empty(first[-1], np.int64), np.empty(first[-1])
    for v in range(len(start)):
        for h in range(g.hop_start[v], g.hop_start[v + 1]):
            k = g.hop_link[h]
            if met[k] and g.size[v] > 0:
                task[at[k]], weight[at[k]], rate[at[k]] = v, g.hop_weight[h], _rate(g, capacity, v)
                at[k] += 1
    for k in range(len(met)):
        of_link = slice(first[k], first[k + 1])
        mine = task[of_link]
        if not _carries(capacity[k], start[mine], left[mine], rate[of_link], weight[of_link]):
            return False
    return True
