"""Max-min fair rates by linear programs (scipy's HiGHS), and the times that follow from them, against the engine's.

F flows, L links. The rates are the successive programs of the definition: the least rate is as great as can be; who cannot
have more keeps it; the rest go on (Bertsekas and Gallager, Data Networks, 6.5.2).
"""

from collections.abc import Iterator

import numpy as np
from scipy.optimize import linprog

from benchmarks.fidelity.row import Row, farthest
from emu.arrays import F64, I64, Bool
from emu.fabric.graph import Graph
from emu.fabric.run import run_graph
from emu.units import TICKS_PER_S

GRAPHS, SEED = 100, 0
_DUAL = 1e-9  # a multiplier above it: no optimum gives that flow more


def fair_rates(capacity: F64, crosses: F64) -> F64:
    """[F] the max-min fair rates.

    Args:
        capacity: [L] of each link.
        crosses: [L, F] 1 where a flow crosses a link.
    """
    unit = capacity.max()  # a solver's tolerances are absolute
    rate, free = np.zeros(crosses.shape[1]), np.ones(crosses.shape[1], np.bool_)
    while free.any():
        left = np.maximum(0, capacity / unit - crosses @ rate)
        least, held = _raise_least(left, crosses[:, free])
        chosen = np.flatnonzero(free)[held]
        rate[chosen], free[chosen] = least, False
    return np.asarray(rate * unit)


def _raise_least(left: F64, crosses: F64) -> tuple[float, Bool]:
    """The greatest least rate of the flows on what is left, and who can have no more than it."""
    n_links, n_flows = crosses.shape
    at_least = np.hstack((-np.eye(n_flows), np.ones((n_flows, 1))))
    within = np.hstack((crosses, np.zeros((n_links, 1))))
    goal = np.append(np.zeros(n_flows), -1)
    found = linprog(goal, np.vstack((at_least, within)), np.append(np.zeros(n_flows), left), method="highs")
    return float(found.x[-1]), found.ineqlin.marginals[:n_flows] < -_DUAL


def ends(capacity: F64, crosses: F64, size: F64, ready: F64) -> F64:
    """[F] when the last byte of each flow has left, from event to event: a start, or an end at the rates till then."""
    now, left, end = 0.0, size.copy(), np.full(len(size), np.inf)
    while np.isinf(end).any():
        here = np.isinf(end) & (ready <= now)
        rate = np.zeros(len(size))
        rate[here] = fair_rates(capacity, crosses[:, here]) if here.any() else 0
        gone = np.divide(left, rate, out=np.full(len(size), np.inf), where=here) + now
        then = min(gone.min(), ready[ready > now].min(initial=np.inf))
        left -= rate * (then - now)
        end[here & (gone <= then * (1 + 1e-13))] = then
        now = then
    return end


def _random(random: np.random.Generator) -> tuple[F64, F64, I64, I64]:
    """Capacities, who crosses which link, sizes, and starts in ticks, some of them equal."""
    n_links, n_flows = int(random.integers(2, 9)), int(random.integers(2, 13))
    capacity = random.choice([1e9, 2e9, 4e9], n_links) if random.random() < 0.5 else random.uniform(1e8, 1e10, n_links)
    crosses = (random.random((n_links, n_flows)) < 0.4).astype(np.float64)
    crosses[random.integers(n_links, size=n_flows), np.arange(n_flows)] = 1
    ready = random.choice([0, 0, 1, 2], n_flows) * random.integers(1, TICKS_PER_S // 1000)
    return capacity, crosses, random.integers(2**16, 2**24, n_flows), ready


def _graph(capacity: F64, crosses: F64, size: I64, ready: I64) -> Graph:
    """Messages without latency and predecessors."""
    n, (flow, link) = len(size), np.nonzero(crosses.T)
    none, zero = np.empty(0, np.int32), np.zeros(n, np.int64)
    start = np.searchsorted(flow, np.arange(n + 1))
    index = np.arange(n, dtype=np.int32)
    waits = (np.zeros(n + 1, np.int64), none, none != 0)
    return Graph(capacity, size, zero, ready, start, link.astype(np.int32), np.ones(len(link), np.int32), *waits, index, index)


def rows() -> Iterator[Row]:
    """The flow that is farthest off in all graphs."""
    random = np.random.default_rng(SEED)
    pairs: list[tuple[float, float]] = []
    for _ in range(GRAPHS):
        capacity, crosses, size, ready = _random(random)
        ours = run_graph(_graph(capacity, crosses, size, ready)).left_fs / TICKS_PER_S
        theirs = ends(capacity, crosses, size.astype(np.float64), ready / TICKS_PER_S)
        pairs += zip(theirs.tolist(), ours.tolist(), strict=True)
    yield farthest(f"HiGHS: max-min by linear programs, {len(pairs)} flows of {GRAPHS} random graphs", "s", pairs, 1e-9)
