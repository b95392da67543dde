"""Synthesised schedules beside the fastest of the catalogue on every topology of `emu list topologies`, at its example size.

    python -m benchmarks.synthesis [OPERATION|TOPOLOGY ...]

Each size is 256 MiB. Topologies of one NPU and of more than 64 are left out, unless they are named. *Of trees* of an all_to_all
is its share of the bound of paths. *Of routes* is the share of the bound over the ways that the router offers. The last column
marks rows far from the best trees: "routes" where that bound says that the router's ways allow little more, else "below".
"""

import sys
import time

from emu.errors import EmuError
from emu.study.synthesis_row import synthesis_row
from emu.study.synthesize import SynthesisRequest
from emu.synthesis.variants import SYNTHESIS_OPERATIONS
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.placement import npu_order

MOST, SIZE, LIMIT_S, ENOUGH = 64, 256 * 2**20, 120.0, 0.95
OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce")


def examples() -> list[str]:
    """Return the example of every topology of at most 64 NPUs."""
    names = [blueprint.example for _, blueprint in TOPOLOGIES]
    return [name for name in names if 1 < len(npu_order(build_topology(name))) <= MOST]


def line(name: str, operation: str) -> str:
    """Return a row of the table."""
    topology, began = build_topology(name), time.perf_counter()
    try:
        row, _ = synthesis_row(topology, SynthesisRequest(operation, SIZE, limit_s=LIMIT_S))
    except EmuError as error:
        return f"| `{name}` | {operation} | {error} |"
    gain = "-" if row.best_time_s is None else f"{row.best_time_s / row.time_s:.2f}"
    before = "-" if row.best_time_s is None else f"{row.tree_bound_s / row.best_time_s:.3f}"
    routes = "-" if row.of_routes_bound is None else f"{row.of_routes_bound:.3f}"
    near = "" if row.of_tree_bound >= ENOUGH else "routes" if (row.of_routes_bound or 0.0) >= ENOUGH else "below"
    made = f"{row.order}, {row.trees} x {row.pieces}{', cut short' if row.cut_short else ''}"
    wall_s = time.perf_counter() - began
    return (
        f"| `{name}` | {row.ranks} | {operation} | {row.best or '-'} | {before} | {made} | {row.of_tree_bound:.3f} | {routes} "
        f"| {gain} | {row.tree_bound} | {wall_s:.1f} | {near} |"
    )


def main() -> None:
    """Print the table."""
    head = "| topology | NPUs | operation | best of the catalogue | of trees | synthesised | of trees | of routes "
    sys.stdout.write(f"{head}| times faster | trees by | wall (s) | |\n{'|---' * 12}|\n")
    operations = [word for word in sys.argv[1:] if word in SYNTHESIS_OPERATIONS] or OPERATIONS
    for name in [word for word in sys.argv[1:] if word not in SYNTHESIS_OPERATIONS] or examples():
        for operation in operations:
            sys.stdout.write(line(name, operation) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
