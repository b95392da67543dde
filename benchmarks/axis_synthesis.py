"""All groups of an axis of a plan at once: by the catalogue, by schedules made for each group alone, and for all groups.

    python -m benchmarks.axis_synthesis [steps]

Each rank has 4 MiB (of an all_gather and a reduce_scatter, a group has them together). `steps` compares steps of `llama-tiny`
with shards of its weights, so that dp communicates beside tp: by schedules for the groups of each axis, and by those that are
made for what the other axes leave of the links.
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
from emu.study.training.composed.links_left import LinksLeft
from emu.study.training.estimate import EstimateRequest, prepare
from emu.study.training.step_choice.beside import time_made
from emu.topology.catalogue import build_topology
from emu.topology.placement import npu_order
from emu.trace.device.device import Device
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


DEVICE = Device("a-device", {"bfloat16": 1e15, "float32": 1e15}, hbm_Bps=1e13)
STEPS = tuple((name, f"{plan},sharding=fsdp,microbatch=1") for name, plan in CASES if "pp" not in plan)


def step_line(name: str, text: str) -> str:
    """Return a row of the table of steps."""
    plan = parse_plan(text, global_batch=16, seq=32)
    request = EstimateRequest("llama-tiny", plan, algorithms=("synthesized",))
    step = prepare(request, build_topology(name), DEVICE).on_fabric(DEVICE)
    taken = " | ".join(f"{LinksLeft(step).taken(axis).max():.0%}" for axis in ("tp", "dp"))
    before, after = (each.report.step_time_s for each in (step.timed(), time_made(step)))
    return f"| `{name}` | `{text}` | {taken} | {format_time(before)} | {format_time(after)} | {1 - after / before:.1%} |"


def print_steps() -> None:
    """Print the table of steps."""
    head = "| topology | plan | others take of a link of tp | of dp | made for the axis | made for what is left | shorter |"
    sys.stdout.write(f"{head}\n|---|---|---|---|---|---|---|\n")
    for name, plan in STEPS:
        sys.stdout.write(f"{step_line(name, plan)}\n")
        sys.stdout.flush()


def main() -> None:
    """Print the table that is asked for."""
    if sys.argv[1:] == ["steps"]:
        print_steps()
        return
    head = "| topology | plan | operation of dp | links shared | catalogue | made alone | made together | shorter |"
    sys.stdout.write(f"{head}\n|---|---|---|---|---|---|---|---|\n")
    for name, plan in CASES:
        groups = partial(groups_of_axis, parse_plan(f"{plan},microbatch=1", global_batch=64, seq=64))
        for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
            sys.stdout.write(f"{line(name, plan, groups, operation)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
