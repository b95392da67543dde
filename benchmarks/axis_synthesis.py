"""All groups of an axis of a plan at once: by the catalogue, by schedules made for each group alone, and for all groups.

    python -m benchmarks.axis_synthesis

Each rank has 4 MiB (of an all_gather and a reduce_scatter, a group has them together).
"""

import sys
from functools import partial

from emu.model.generate.generate import groups_of_axis
from emu.model.plan.plan_text import parse_plan
from emu.study.choice.axis_synthesis import Served, algorithms_together, shared_topology, ticks_together
from emu.study.choice.chooser import AxisGroups
from emu.study.choice.fastest import fastest
from emu.study.choice.site import Requirement, Site, canonical_group
from emu.study.choice.synthesis_choice import made_algorithm
from emu.topology.catalogue import build_topology
from emu.topology.placement import npu_order
from emu.units import format_time, seconds

ELEMENTS = 2**20
CASES = (
    ("railx:torus:m=2,n=2,nodes=2x2", "tp=4,dp=4"),
    ("railx:torus:m=2,n=2,nodes=2x2", "tp=2,dp=8"),
    ("hammingmesh:boards=1x1,side=4", "tp=2,dp=4,pp=2"),
    ("hammingmesh:boards=1x1,side=4", "tp=2,dp=8"),
    ("fat-tree:pgft:down=4x4,up=1x2,parallel=1x1", "tp=4,dp=4"),
    ("fat-tree:pgft:down=4x4,up=1x2,parallel=1x1", "tp=2,dp=8"),
)


def line(name: str, plan: str, groups: AxisGroups, operation: str) -> str:
    """Return a row of the table, for the axis dp of a plan."""
    topology = build_topology(name)
    placed = tuple(sorted(map(tuple, npu_order(topology)[groups("dp")].tolist())))
    wanted = Requirement(operation, 0, ELEMENTS, 4)
    sites = {group: Site.of(topology, canonical_group(topology, group)) for group in placed}
    alone = {group: made for group, site in sites.items() if (made := made_algorithm(site, wanted))}
    ways: list[Served] = [
        {group: fastest(site, wanted).served for group, site in sites.items()},
        alone,
        algorithms_together(topology, placed, wanted, "synthesized"),
    ]
    best, before, after = (ticks_together(topology, served, wanted) for served in ways)
    times = " | ".join(format_time(seconds(ticks)) for ticks in (best, before, after))
    shared = "yes" if shared_topology(topology, placed)[0] is not topology else "no"
    return f"| `{name}` | `{plan}` | {operation} | {shared} | {times} | {1 - after / before:.0%} |"


def main() -> None:
    """Print the table."""
    head = "| topology | plan | operation of dp | links shared | catalogue | made alone | made together | shorter |"
    sys.stdout.write(f"{head}\n|---|---|---|---|---|---|---|---|\n")
    for name, plan in CASES:
        groups = partial(groups_of_axis, parse_plan(f"{plan},microbatch=1", global_batch=64, seq=64))
        for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
            sys.stdout.write(f"{line(name, plan, groups, operation)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
