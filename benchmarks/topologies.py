"""How fast topologies of full size are built and routed: `python -m benchmarks.topologies [NAME ...]`.

Every size that a source of the catalogue speaks of, each in a process of its own, so that its peak of memory is known: the
value with all its links, then the routes of 100,000 pairs of NPUs drawn at random.
"""

import resource
import subprocess
import sys
import time

import numpy as np

from emu.topology.catalogue import TOPOLOGIES, build_topology

PAIRS = 100_000


def lines(names: list[str]) -> list[str]:
    """The full sizes of the topologies whose names begin with one of `names`, or of all."""
    full = [f"{name}:{settings}".rstrip(":") for name, blueprint in TOPOLOGIES for settings in blueprint.full]
    return [line for line in full if not names or line.startswith(tuple(names))]


def measure(line: str) -> str:
    """One row of the table."""
    build_topology("switch:n=2,bandwidth=1GB/s,latency=1us")  # so that loading the catalogue is not what is timed
    since = time.perf_counter()
    topology = build_topology(line)
    built_s = time.perf_counter() - since
    ends = np.random.default_rng(0).integers(0, topology.n_npus, (2, PAIRS))
    src, dst = ends[:, ends[0] != ends[1]]
    since = time.perf_counter()
    routes = topology.routes(src, dst, np.arange(len(src)))
    routed_s = time.perf_counter() - since
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    counts = f"{topology.n_npus:,} | {topology.n_nodes - topology.n_npus:,} | {len(topology.links):,}"
    return f"| `{line}` | {counts} | {built_s:.2f} | {routed_s:.2f} | {routes.hops.mean():.2f} | {peak_gb:.2f} |"


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--one"]:
        sys.stdout.write(measure(sys.argv[2]) + "\n")
        return
    head = "| topology | NPUs | switches | links | build (s) | 100,000 routes (s) | hops | peak (GB) |"
    sys.stdout.write(head + "\n|---|---|---|---|---|---|---|---|\n")
    sys.stdout.flush()
    for line in lines(sys.argv[1:]):
        subprocess.run([sys.executable, "-m", "benchmarks.topologies", "--one", line], check=True)


if __name__ == "__main__":
    main()
