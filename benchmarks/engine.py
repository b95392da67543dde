"""How fast the engine is, on graphs made with numpy alone: `python benchmarks/engine.py [RANKS]`.

N ranks on one switch with a link up and a link down each. Each case is timed by the sweep where it accepts, and by the solver.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from emu.arrays import F64, I32, I64, Bool
from emu.fabric.engine.check import check, order
from emu.fabric.engine.solver import State
from emu.fabric.engine.sweep import sweep
from emu.fabric.graph import Graph
from emu.fabric.run import run

CAPACITY_BPS, ALPHA_FS = 50e9, 10**9


def graph(capacity: F64, size: I64, hops: I64, preds: I64, left: Bool, ready: I64 | None = None) -> Graph:
    """Messages with `hops` [V, h] and `preds` [V, p] each; a predecessor of -1 is none."""
    n, known = len(size), preds >= 0
    return Graph(
        capacity_Bps=capacity,
        size_bytes=size.astype(np.int64),
        alpha_fs=np.full(n, ALPHA_FS),
        ready_fs=np.zeros(n, np.int64) if ready is None else ready,
        hop_start=np.arange(n + 1, dtype=np.int64) * hops.shape[1],
        hop_link=hops.astype(np.int32).ravel(),
        hop_weight=np.ones(hops.size, np.int32),
        pred_start=np.append(0, np.cumsum(known.sum(axis=1))).astype(np.int64),
        pred=preds[known].astype(np.int32),
        pred_left=np.broadcast_to(left, preds.shape)[known],
        owner=np.zeros(n, np.int32),
        origin=np.arange(n, dtype=np.int32),
    )


def ring(n: int) -> Graph:
    """All-reduce in 2 (n - 1) rounds: each message waits for the one before it on either side."""
    t, r = (a.ravel() for a in np.mgrid[0 : 2 * (n - 1), 0:n])
    hops = np.stack([r, n + (r + 1) % n], axis=1)
    preds = np.stack([(t - 1) * n + (r - 1) % n, (t - 1) * n + r], axis=1)
    size = np.full(len(t), 2**20)
    return graph(np.full(2 * n, CAPACITY_BPS), size, hops, np.where(t[:, None] > 0, preds, -1), np.array([False, True]))


def at_once(n: int) -> Graph:
    """All-to-all in one round: every link is shared by n - 1 bodies."""
    src, dst = (a.ravel() for a in np.mgrid[0:n, 0:n])
    src, dst = src[src != dst], dst[src != dst]
    hops = np.stack([src, n + dst], axis=1)
    return graph(np.full(2 * n, CAPACITY_BPS), np.full(len(src), 2**16), hops, np.empty((len(src), 0)), np.array(False))


def irregular(n: int) -> Graph:
    """100 messages a rank of random size, place and start, which keep the links busy for 0.7 of the time."""
    random, m = np.random.default_rng(0), 100 * n
    src = random.integers(n, size=m)
    hops = np.stack([src, n + (src + random.integers(1, n, size=m)) % n], axis=1)
    size = random.integers(1, 2**21, size=m)
    horizon = size.sum() / n / CAPACITY_BPS / 0.7 * 1e15
    ready = random.integers(int(horizon), size=m)
    return graph(np.full(2 * n, CAPACITY_BPS), size, hops, np.empty((m, 0)), np.array(False), ready)


def two_tier(n: int) -> Graph:
    """The irregular messages on leaves of 16 ranks whose links up and down carry half of what they could send."""
    flat, leaves = irregular(n), n // 16
    src, dst = flat.hop_link.reshape(-1, 2).T
    hops = np.stack([src, 2 * n + src // 16, 2 * n + leaves + (dst - n) // 16, dst], axis=1)
    capacity = np.append(flat.capacity_Bps, np.full(2 * leaves, 16 * CAPACITY_BPS))
    return graph(capacity, flat.size_bytes, hops, np.empty((len(src), 0)), np.array(False), flat.ready_fs)


def seconds(call: Callable[[], object]) -> float:
    """The least of three wall-clock times."""
    times = []
    for _ in range(3):
        since = time.perf_counter()
        call()
        times.append(time.perf_counter() - since)
    return min(times)


def checked(case: Graph) -> I32:
    """Check a graph; its tasks in order."""
    check(case)
    return order(case)


def solve(case: Graph) -> State:
    """Time a graph by the solver alone."""
    state = State(case.capacity_Bps)
    state.admit(case)
    state.advance()
    state.timeline()
    return state


def main() -> None:
    """Print one line a case."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    sys.stdout.write(f"{'case':12}{'messages':>10}{'check s':>10}{'sweep s':>10}{'solver s':>10}{'run s':>10}  how\n")
    for make in (ring, at_once, irregular, two_tier):
        case = make(n)
        calls = (partial(checked, case), partial(sweep, case, checked(case)), partial(solve, case), partial(run, case))
        times = "".join(f"{seconds(call):10.3f}" for call in calls)
        sys.stdout.write(f"{make.__name__:12}{case.n_tasks:10,}{times}  {run(case).how}\n")


if __name__ == "__main__":
    main()
