"""How fast the engine is, on graphs made with numpy alone: `python benchmarks/engine.py [RANKS [CASE ...]]`.

N ranks on one switch with a link up and a link down each, under leaves of 16 ranks, in a fat tree, or on a torus. Each case is
timed by every way that the engine has: by the sweep and the quotient where they accept, and by the solver. A star marks what
refuses: its time is wasted.

`python -m benchmarks.engine packets [RANKS [CELL_BYTES]]` times the packet engine beside the fluid one, on a fat tree of two
tiers without taper: packets (or cells) times links a second of this process, and the largest memory so far.
"""

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import isqrt

import numpy as np

from emu.arrays import F64, I32, I64, Bool
from emu.fabric.engine.graph_check import check_graph, order_tasks
from emu.fabric.engine.packets.packet_network import NETWORKS
from emu.fabric.engine.packets.packet_run import run_packets
from emu.fabric.engine.quotient import Quotient, merge, quotient
from emu.fabric.engine.refine import refine
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.state_layout import columns
from emu.fabric.engine.sweep import sweep
from emu.fabric.graph import Graph
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology

CAPACITY_BPS, ALPHA_FS = 50e9, 10**9

Fabric = Callable[[int, I64, I64], tuple[F64, I64]]  # ranks, src [V], dst [V]: capacities [L], routes [V, h] with -1 for none


def graph(capacity: F64, size: I64, hops: I64, preds: I64 | F64, left: Bool, ready: I64 | None = None) -> Graph:
    """Messages with up to `hops` [V, h] and `preds` [V, p] each; -1 is none."""
    n, crossed, known = len(size), hops >= 0, preds >= 0
    return Graph(
        capacity_Bps=capacity,
        size_bytes=size.astype(np.int64),
        alpha_fs=np.full(n, ALPHA_FS),
        ready_fs=np.zeros(n, np.int64) if ready is None else ready,
        hop_start=np.append(0, np.cumsum(crossed.sum(axis=1))).astype(np.int64),
        hop_link=hops[crossed].astype(np.int32),
        hop_weight=np.ones(crossed.sum(), np.int32),
        pred_start=np.append(0, np.cumsum(known.sum(axis=1))).astype(np.int64),
        pred=preds[known].astype(np.int32),
        pred_left=np.broadcast_to(left, preds.shape)[known],
        owner=np.zeros(n, np.int32),
        origin=np.arange(n, dtype=np.int32),
    )


def switch(n: int, src: I64, dst: I64) -> tuple[F64, I64]:
    """Capacities, and routes [V, 2] over one switch."""
    return np.full(2 * n, CAPACITY_BPS), np.stack([src, n + dst], axis=1)


def clos(n: int, src: I64, dst: I64) -> tuple[F64, I64]:
    """Capacities, and routes [V, 4] over leaves of 16 ranks and one of 16 spines, which a hash takes."""
    up, down = 2 * n + src // 16 * 16, 3 * n + dst // 16 * 16
    spine, away = (src * 40503 + dst * 30011 >> 7) % 16, src // 16 != dst // 16
    hops = [src, np.where(away, up + spine, -1), np.where(away, down + spine, -1), n + dst]
    return np.full(4 * n, CAPACITY_BPS), np.stack(hops, axis=1)


def fat_tree(n: int, src: I64, dst: I64) -> tuple[F64, I64]:
    """Capacities, and routes [V, 6] over leaves of 8 ranks, pods of 4 leaves and 8 spines, and cores, which a hash takes."""
    way, far, away = (src * 40503 + dst * 30011 >> 7) % 32, src // 8 != dst // 8, src // 32 != dst // 32
    leaf = [np.where(far, (2 + i) * n + end // 8 * 8 + way % 8, -1) for i, end in enumerate((src, dst))]
    core = [np.where(away, (4 + i) * n + end // 32 * 32 + way, -1) for i, end in enumerate((src, dst))]
    return np.full(6 * n, CAPACITY_BPS), np.stack([src, leaf[0], core[0], core[1], leaf[1], n + dst], axis=1)


def torus(n: int, src: I64, dst: I64) -> tuple[F64, I64]:
    """Capacities, and routes [V, side] on a square torus, the last dimension first and the shorter way round."""
    side, hops = isqrt(n), []
    at, to = src, src // side * side + dst % side
    for unit, links in ((1, 0), (side, 2 * n)):
        far = (to // unit - at // unit + side // 2) % side - side // 2
        for step in range(side // 2):
            place = (at // unit + np.sign(far) * step) % side * unit + at - at // unit % side * unit
            hops.append(np.where(step < abs(far), links + (far < 0) * n + place, -1))
        at, to = to, dst
    return np.full(4 * n, CAPACITY_BPS), np.stack(hops, axis=1)


def ring(n: int, fabric: Fabric = switch) -> Graph:
    """All-reduce in 2 (n - 1) rounds: each message waits for the one before it on either side."""
    t, r = (a.ravel() for a in np.mgrid[0 : 2 * (n - 1), 0:n])
    preds = np.where(t[:, None] > 0, np.stack([(t - 1) * n + (r - 1) % n, (t - 1) * n + r], axis=1), -1)
    capacity, hops = fabric(n, r, (r + 1) % n)
    return graph(capacity, np.full(len(t), 2**20), hops, preds, np.array([False, True]))


def at_once(n: int, fabric: Fabric = switch) -> Graph:
    """All-to-all in one round: every link is shared by n - 1 bodies or more."""
    src, dst = (a.ravel() for a in np.mgrid[0:n, 0:n])
    src, dst = src[src != dst], dst[src != dst]
    capacity, hops = fabric(n, src, dst)
    return graph(capacity, np.full(len(src), 2**16), hops, np.empty((len(src), 0)), np.array(False))


def by_rounds(n: int, fabric: Fabric = switch) -> Graph:
    """All-to-all in n - 1 rounds: a rank's body leaves before the next one starts."""
    t, r = (a.ravel() for a in np.mgrid[0 : n - 1, 0:n])
    capacity, hops = fabric(n, r, (r + 1 + t) % n)
    preds = np.where(t > 0, (t - 1) * n + r, -1)[:, None]
    return graph(capacity, np.full(len(t), 2**16), hops, preds, np.array(True))


def at_random(n: int, m: int, fabric: Fabric = switch, load: float = 0.7) -> Graph:
    """`m` messages of random size, place and start, which keep the links busy for `load` of the time."""
    random = np.random.default_rng(0)
    src = random.integers(n, size=m)
    dst = (src + random.integers(1, n, size=m)) % n
    size, (capacity, hops) = random.integers(1, 2**21, size=m), fabric(n, src, dst)
    horizon = size @ (hops >= 0).sum(axis=1) / capacity.sum() / load * 1e15
    return graph(capacity, size, hops, np.empty((m, 0)), np.array(False), random.integers(int(horizon), size=m))


def random_256(n: int, fabric: Fabric, m: int = 100_000, load: float = 0.7) -> Graph:
    """Random messages between 256 ranks at most: so many on more links would take minutes."""
    return at_random(min(n, 256), m, fabric, load)


def irregular(n: int) -> Graph:
    """100 random messages a rank on one switch."""
    return at_random(n, 100 * n)


def uneven(n: int) -> Graph:
    """All-to-all in one round between 128 ranks at most, of random sizes."""
    whole = at_once(min(n, 128))
    return replace(whole, size_bytes=np.random.default_rng(0).integers(1, 2**21, size=whole.n_tasks))


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
    check_graph(case)
    return order_tasks(case)


def merged(case: Graph, in_order: I32) -> Quotient | None:
    """The quotient of a graph."""
    colours = refine(columns(case), case.capacity_Bps, in_order)
    return merge(case, in_order, *colours) if colours else None


def solve(case: Graph) -> State:
    """Time a graph by the solver alone."""
    state = State(case.capacity_Bps)
    state.admit(case)
    state.advance()
    state.timeline()
    return state


CASES: dict[str, Callable[[int], Graph]] = {
    "ring": ring,
    "ring, clos": partial(ring, fabric=clos),
    "at once": at_once,
    "at once, torus": partial(at_once, fabric=torus),
    "at once, clos": partial(at_once, fabric=clos),
    "rounds, torus": partial(by_rounds, fabric=torus),
    "irregular": irregular,
    "two-tier": two_tier,
    "random, star": partial(random_256, fabric=switch),
    "random, torus": partial(random_256, fabric=torus),
    "random, fat tree": partial(random_256, fabric=fat_tree),
    "3 x, torus": partial(random_256, fabric=torus, m=10_000, load=3.0),
    "3 x, fat tree": partial(random_256, fabric=fat_tree, m=10_000, load=3.0),
    "uneven at once": uneven,
}


def timed(way: Callable[[], object]) -> str:
    """The seconds of a way, with a star where it refuses."""
    return f"{seconds(way):9.3f}{'*' if way() is None else ' '}"


def random_flows(n: int) -> tuple[I64, I64, I64]:
    """Source, destination and bytes of 4 random messages of up to 1 MiB for each rank, all at once."""
    random = np.random.default_rng(0)
    src = np.repeat(np.arange(n), 4)
    return src, (src + random.integers(1, n, size=len(src))) % n, random.integers(1, 2**20, size=len(src))


def all_pairs(n: int) -> tuple[I64, I64, I64]:
    """Source, destination and bytes of an all-to-all of 64 KiB a pair, at once."""
    src, dst = (a.ravel() for a in np.mgrid[0:n, 0:n])
    away = src != dst
    return src[away], dst[away], np.full(int(away.sum()), 2**16)


def by_packets(n: int, cell_bytes: int) -> None:
    """Print a line for each traffic and kind of network."""
    half = isqrt(n)
    word = f"down={half}x{half},up=1x{half},parallel=1x1,bandwidth=400Gb/s,latency=500ns"
    topology = build_topology(f"fat-tree:pgft:{word}")
    heads = ("traffic", "network", "packet hops", "fluid s", "packets s", "hops/s", "events/s", "packets/fluid", "GB so far")
    sys.stdout.write("".join(f"{head:>16}" for head in heads) + "\n")
    for traffic in (random_flows, all_pairs):
        src, dst, size = traffic(half * half)
        routes = topology.routes(src, dst, np.zeros_like(src))
        hops = np.diff(routes.start)
        crossed = np.full((len(src), int(hops.max())), -1)
        crossed[np.arange(crossed.shape[1]) < hops[:, None]] = routes.link
        case = graph(topology.links.bandwidth_Bps, size, crossed, np.empty((len(src), 0)), np.array(False))
        case = replace(case, alpha_fs=hops * int(topology.links.latency_fs[0]))
        for name in ("roce", "ultra-ethernet", "infiniband"):
            network = replace(NETWORKS[name], cell_bytes=cell_bytes)
            began = time.process_time()
            fluid = run_graph(case)
            between = time.process_time()
            run = run_packets(case, topology, network)
            took = time.process_time() - between
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
            cells = (traffic.__name__, name, f"{run.n_packet_hops:,}", f"{between - began:.2f}", f"{took:.2f}")
            rates = (f"{run.n_packet_hops / took / 1e6:.2f} M", f"{run.n_events / took / 1e6:.2f} M")
            ratio = f"{run.timeline.end_s / fluid.end_s:.3f}"
            sys.stdout.write("".join(f"{cell:>16}" for cell in (*cells, *rates, ratio, f"{memory:.2f}")) + "\n")
            sys.stdout.flush()


def main() -> None:
    """Print one line a case."""
    if sys.argv[1:2] == ["packets"]:
        by_packets(*map(int, (sys.argv[2:] + ["64", "0"][len(sys.argv[2:]) :])))
        return
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    sys.stdout.write(f"{'case':18}{'messages':>10}{'classes':>10}")
    sys.stdout.write("".join(f"{f'{way} s':>9} " for way in ("check", "sweep", "quotient", "solver", "run")) + " how\n")
    for name in sys.argv[2:] or CASES:
        case = CASES[name](n)
        in_order = checked(case)
        small = merged(case, in_order)
        ways = (checked, partial(sweep, order=in_order), partial(quotient, order=in_order), solve, run_graph)
        times = "".join(timed(partial(way, case)) for way in ways)
        classes = f"{small.graph.n_tasks:,}" if small else "-"
        sys.stdout.write(f"{name:18}{case.n_tasks:10,}{classes:>10}{times}  {run_graph(case).how}\n")


if __name__ == "__main__":
    main()
