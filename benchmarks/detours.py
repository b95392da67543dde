"""How much bandwidth faulty fabrics keep: the fastest of the catalogue on detours, and schedules that are synthesised.

    python -m benchmarks.detours [COUNT [OPERATION|TOPOLOGY ...]]

Half of the COUNT faults (100) are of one cable, half of two; they are drawn with a seed. A share of 1 is the better of both on
the whole fabric. Each size is 256 MiB.
"""

import sys
import time

import numpy as np

from emu.arrays import F64
from emu.study.synthesis_row import SynthesisRow, synthesis_row
from emu.study.synthesize import SynthesisRequest
from emu.synthesis.variants import SYNTHESIS_OPERATIONS
from emu.topology.catalogue import build_topology
from emu.topology.removal import remove_parts
from emu.topology.topology import Topology

SYSTEMS = ("ub-mesh:rack-full:dims=4x4", "torus:dims=4x4,bandwidth=50GB/s,latency=500ns", "railx:torus:m=2,n=2,nodes=2x2")
SIZE, SEED = 256 * 2**20, 5


def faulty(topology: Topology, cables: int, random: np.random.Generator) -> Topology:
    """Return a topology without some cables, both directions of each; those that join all NPUs are drawn until one does."""
    src, dst = topology.links.src, topology.links.dst
    failed = list[int]()
    for link in random.choice(np.flatnonzero(src < dst), cables, replace=False).tolist():
        back = np.flatnonzero((src == dst[link]) & (dst == src[link]) & ~np.isin(np.arange(len(src)), failed))
        failed += [link, int(back[0])]
    return remove_parts(topology, links=failed)


def row(topology: Topology, operation: str) -> SynthesisRow:
    """Return the synthesised schedule of an operation beside the fastest of the catalogue."""
    return synthesis_row(topology, SynthesisRequest(operation, SIZE))[0]


def shares(topology: Topology, operation: str, count: int) -> F64:
    """Return [count, 3] of the bandwidth of the whole fabric what detours keep and what is synthesised, and of_tree_bound."""
    whole, random = row(topology, operation), np.random.default_rng(SEED)
    best_s = min(whole.time_s, whole.best_time_s or np.inf)
    found = list[tuple[float, float, float]]()
    for fault in range(count):
        left = row(faulty(topology, 1 + fault % 2, random), operation)
        found.append((best_s / (left.best_time_s or np.inf), best_s / left.time_s, left.of_tree_bound))
    return np.array(found)


def main() -> None:
    """Print the table."""
    count, words = int((*sys.argv[1:], "100")[0]), sys.argv[2:]
    operations = [word for word in words if word in SYNTHESIS_OPERATIONS] or ["all_gather", "all_to_all"]
    systems = [word for word in words if word not in SYNTHESIS_OPERATIONS] or SYSTEMS
    sys.stdout.write(
        "| topology | operation | faults | detours: mean | worst | synthesised: mean | worst | of bound | wall (s) |\n"
    )
    sys.stdout.write("|---" * 9 + "|\n")
    for name in systems:
        for operation in operations:
            began = time.perf_counter()
            of = shares(build_topology(name), operation, count)
            told = [f"{value:.3f}" for each in (of[:, 0], of[:, 1]) for value in (each.mean(), each.min())]
            wall_s = time.perf_counter() - began
            sys.stdout.write(
                f"| `{name}` | {operation} | {count} | {' | '.join(told)} | {of[:, 2].mean():.3f} | {wall_s:.0f} |\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
