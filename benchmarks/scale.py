"""How fast and how small timing is at scale: `python -m benchmarks.scale [CASE ...]`, those whose names begin so, or all.

A case is timed end to end: the schedule, the topology, what waits for what, the routes, then the time of every message. Each
has a process of its own, so that its peak of memory is known; libraries and the engine are loaded before the clock starts.
"""

import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import algorithm
from emu.errors import InputError
from emu.fabric.graph import Graph, Timeline
from emu.fabric.lower import FabricJob, lower
from emu.fabric.lowering.message_routes import head_times
from emu.fabric.run import run_graph, time_alone
from emu.topology.builders.clos import Tier, clos
from emu.topology.catalogue import build_topology
from emu.topology.placement import by_axes, place
from emu.topology.topology import Links, Routes, Topology
from emu.units import TICKS_PER_S, format_time

REPEATS, GB = 3, 10**9
SLOT_BYTES = 2**16
LINK = "bandwidth=50GB/s,latency=500ns"
TWO_TIER, THREE_TIER = "fat-tree:pgft:down=32x32,up=1x32", "fat-tree:radix=16,tiers=3"  # 1,024 NPUs, no taper
SMALL = "fat-tree:pgft:down=8x8x4,up=1x8x8"  # 256 NPUs, no taper
FASTER_UP = (Tier(16, 1, 50e9, 500 * 10**6), Tier(16, 4, 200e9, 500 * 10**6))  # 256 NPUs, no taper; an uplink is 4 ports
ONE_UP = (Tier(32, 1, 50e9, 500 * 10**6), Tier(32, 1, 1600e9, 500 * 10**6))  # 1,024 NPUs, as Leiserson's: a fatter link up
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Collective:
    """An algorithm on all NPUs of an idle topology."""

    topology: str
    operation: str
    algorithm: str
    dims: tuple[int, ...] = ()
    declared: bool = True  # False: every message is timed, whatever symmetry is declared
    irregular: bool = False  # slots of 1 byte to 2 MiB, at random
    axes: tuple[int, ...] = ()  # of the topology's dims, in which order ranks count them; () = its own order of NPUs

    def time(self) -> Timeline:
        """Build the schedule and the topology and time all messages; return the timeline."""
        topology, found = build_topology(self.topology), algorithm(self.operation, self.algorithm)
        plan = found.compact_schedule(found.fit(topology.n_npus, self.dims))
        random = np.random.default_rng(0)
        sizes = random.integers(1, 2**21, plan.n_slots) if self.irregular else np.broadcast_to(SLOT_BYTES, plan.n_slots)
        places = by_axes(topology, self.axes) if self.axes else place(topology, topology.n_npus)
        arguments = plan, sizes.astype(np.int64, copy=False), topology, places
        return time_alone(FabricJob(*arguments)) if self.declared else run_graph(lower(FabricJob(*arguments)).graph)


def built(topology: str | tuple[Tier, ...]) -> Topology:
    """The topology of a line, or a tree of those tiers."""
    return build_topology(topology) if isinstance(topology, str) else clos("tree", topology)


@dataclass(frozen=True, slots=True)
class Flows:
    """Messages of random size, place and start, that keep the links of NPUs busy for a part of the time."""

    topology: str | tuple[Tier, ...]  # a line, or the tiers of a tree
    count: int
    load: float

    def time(self) -> Timeline:
        """Build the topology and the routes and time all messages; return the timeline."""
        topology = built(self.topology)
        random = np.random.default_rng(0)
        src = random.integers(topology.n_npus, size=self.count)
        dst = (src + random.integers(1, topology.n_npus, size=self.count)) % topology.n_npus
        asked = src, dst, np.arange(self.count)
        routes = topology.routes(*asked)
        size = random.integers(1, 2**21, size=self.count)
        out = topology.links.bandwidth_Bps[topology.links.src < topology.n_npus].sum()
        ready = random.integers(int(size.sum() / out / self.load * TICKS_PER_S), size=self.count)
        return run_graph(_free(topology.links, routes, head_times(topology, asked, routes), size, ready))


def _free(links: Links, routes: Routes, alpha: I64, size_bytes: I64, ready_fs: I64) -> Graph:
    """Messages that wait for nothing but their time."""
    n, none = len(size_bytes), np.empty(0, np.int32)
    hops = routes.start, routes.link, np.ones(len(routes.link), np.int32)
    pred = np.zeros(n + 1, np.int64), none, none != 0
    origin = np.arange(n, dtype=np.int32)
    return Graph(links.bandwidth_Bps, size_bytes, alpha, ready_fs, *hops, *pred, np.full(n, -1, np.int32), origin)


@dataclass(frozen=True, slots=True)
class Case:
    """A case that is timed, and the targets that it must meet."""

    words: str
    what: Collective | Flows
    target_s: float
    target_gb: float | None = None

    @property
    def target(self) -> str:
        """Return the targets in words."""
        return f"{self.target_s:g} s" + (f", {self.target_gb:g} GB" if self.target_gb else "")


_RING = partial(Collective, operation="all_reduce", algorithm="ring")
_AT_ONCE = partial(Collective, operation="all_to_all", algorithm="at-once")
_DIRECT = partial(Collective, f"switch:n=1024,{LINK}", "all_reduce", "direct")
_RING_2D = partial(Collective, operation="all_reduce", algorithm="2d-ring", dims=(448, 448))
CASES = {
    "ring-1024": Case("ring, 1,024 ranks, one switch, every message", _RING(f"switch:n=1024,{LINK}", declared=False), 0.6),
    "ring-1024-declared": Case("the same, declared translation", _RING(f"switch:n=1024,{LINK}"), 0.6),
    "ring-2048": Case("ring, 2,048 ranks, one switch, every message", _RING(f"switch:n=2048,{LINK}", declared=False), 4, 3),
    "ring-4096": Case("ring, 4,096 ranks, one switch, declared translation", _RING(f"switch:n=4096,{LINK}"), 1, 1),
    "ring-torus-4096": Case("ring, 4,096 ranks, row by row on a torus 64 x 64", _RING(f"torus:dims=64x64,{LINK}"), 1, 1),
    "direct-1024": Case("direct all_reduce, 1,024 ranks, one switch, every message", _DIRECT(declared=False), 1),
    "direct-1024-declared": Case("the same, declared translation", _DIRECT(), 1),
    "at-once-torus-1024": Case(
        "all_to_all at once, torus 32 x 32, every message", _AT_ONCE(f"torus:dims=32x32,{LINK}", declared=False), 1
    ),
    "at-once-torus-1024-declared": Case("the same, declared translation", _AT_ONCE(f"torus:dims=32x32,{LINK}"), 1),
    "at-once-two-tier-1024": Case("all_to_all at once, ECMP fat tree of two tiers, 1,024 ranks", _AT_ONCE(TWO_TIER), 3),
    "at-once-three-tier-1024": Case("all_to_all at once, ECMP fat tree of three tiers, 1,024 ranks", _AT_ONCE(THREE_TIER), 3),
    "at-once-torus-8192": Case(
        "all_to_all at once, torus 128 x 64, declared translation", _AT_ONCE(f"torus:dims=128x64,{LINK}"), 1
    ),
    "at-once-superpod-8192": Case("all_to_all at once, UB-Mesh SuperPod of 8,192 NPUs", _AT_ONCE("ub-mesh:superpod"), 1),
    "flows-fat-256": Case(
        "100,000 random flows, load 0.7, fat tree, 256 NPUs, 4 uplinks a leaf of 4 ports' rate",
        Flows(FASTER_UP, 100_000, 0.7),
        1.5,
    ),
    "flows-fattest-1024": Case("the same, 1,024 NPUs, an uplink a leaf of 32 ports' rate", Flows(ONE_UP, 100_000, 0.7), 1.5),
    "flows-256": Case("the same, uplinks of a port's rate, three tiers, 256 NPUs", Flows(SMALL, 100_000, 0.7), 1.5),
    "flows-two-tier-1024": Case(
        "the same, uplinks of a port's rate, two tiers, 1,024 NPUs", Flows(TWO_TIER, 100_000, 0.7), 1.5
    ),
    "flows-three-tier-1024": Case(
        "the same, uplinks of a port's rate, three tiers, 1,024 NPUs", Flows(THREE_TIER, 100_000, 0.7), 1.5
    ),
    "irregular-128": Case(
        "all_to_all at once of irregular sizes, 128 ranks, one switch", _AT_ONCE(f"switch:n=128,{LINK}", irregular=True), 17
    ),
    "hierarchical-15360": Case(
        "hierarchical ring all_reduce 15 x 128 x 8, one switch",
        Collective(f"switch:n=15360,{LINK}", "all_reduce", "hierarchical-ring", (15, 128, 8)),
        10,
    ),
    "hierarchical-hpn-15360": Case(
        "the same, HPN pod with ECMP", Collective("hpn:pod", "all_reduce", "hierarchical-ring", (15, 128, 8)), 10
    ),
    "2d-ring-torus-200704": Case("2D ring all_reduce, torus 448 x 448", _RING_2D(f"torus:dims=448x448,{LINK}"), 10),
    "2d-ring-railx-200704": Case(
        "the same, RailX of 64 x 64 nodes of 7 x 7 chips, row by row of chips",
        _RING_2D("railx:torus:m=7,n=9,nodes=64x64", axes=(0, 2, 1, 3)),
        10,
    ),
    "2d-ring@9-railx-200704": Case(
        "the same on 9 channels, one a rail",
        _RING_2D("railx:torus:m=7,n=9,nodes=64x64", axes=(0, 2, 1, 3), algorithm="2d-ring@9"),
        10,
    ),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a case that ran in a process of its own."""

    wall_s: tuple[float, ...]
    tasks: int
    how: str
    end_s: float
    peak_gb: float
    refused: str = ""


def apart(call: Callable[[], R]) -> R:
    """Return what a call gives in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(call).result()


def measure(what: Collective | Flows, repeats: int = REPEATS) -> Measured:
    """Time something end to end, several times; of something refused, say why."""
    build_topology(f"switch:n=2,{LINK}")  # so that loading the catalogue is not what is timed
    times = []
    for _ in range(repeats):
        since = time.perf_counter()
        try:
            timeline = what.time()
        except InputError as error:
            return Measured((), 0, "", 0, 0, str(error))
        times.append(time.perf_counter() - since)
        tasks, how, end_s = len(timeline.end_fs), timeline.how, timeline.end_s
        del timeline  # so that the peak is that of one
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB
    return Measured(tuple(times), tasks, how, end_s, peak_gb)


def row(name: str, case: Case, found: Measured) -> str:
    """Return one row of the table."""
    said = f"| `{name}` | {case.words} | {case.target} |"
    if found.refused:
        return f"{said} | | | | refused: {found.refused} | no |"
    least = min(found.wall_s)
    met = least <= case.target_s and found.peak_gb <= (case.target_gb or found.peak_gb)
    measured = (
        f"{least:.3g} s (first {found.wall_s[0]:.3g} s) | {found.peak_gb:.2f} | {found.tasks:,} | {format_time(found.end_s)}"
    )
    return f"{said} {measured} | {found.how} | {'yes' if met else 'no'} |"


def chosen(beginnings: list[str]) -> list[str]:
    """The names that begin with one of `beginnings`, or all."""
    return [name for name in CASES if not beginnings or name.startswith(tuple(beginnings))]


def main() -> int:
    """Print the table, ready for the README, and how busy the machine was before it."""
    names, before = chosen(sys.argv[1:]), os.getloadavg()[0]
    if not names:
        sys.stderr.write(f"scale: no case begins with {' or '.join(sys.argv[1:])}; there are {', '.join(CASES)}\n")
        return 2
    columns = ("name", "case", "target", "wall", "GB", "tasks", "virtual time", "how", "met")
    sys.stdout.write(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    for name in names:
        sys.stdout.write(row(name, CASES[name], apart(partial(measure, CASES[name].what))) + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"\nLoad before: {before:.1f}, after: {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
