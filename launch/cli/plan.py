"""`emu plan`: the plan by which a model trains fastest on so many NPUs, and why the next one loses."""

import importlib
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from emu.model.plan.spell import parse_plan
from emu.study.planning.find import find_plans
from emu.study.planning.search.kept import Kept
from emu.study.planning.search.row import BEST, Planned, PlanRequest, PlanRow
from emu.study.training.estimate import EstimateRequest, estimate_moments
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from launch.cli.options.common import (
    ALGORITHM_HELP,
    ALGORITHM_WORDS,
    DEVICE_HELP,
    chosen_by,
    import_option,
    json_option,
    kept_in,
    print_json,
    stack_of,
    stack_option,
    topology_option,
)
from launch.cli.options.looks import html_option
from launch.cli.options.outputs import OutputFile, OutputFolder, may_fail, print_text
from launch.cli.options.sweep import parse_sweeps, sweep_option
from launch.cli.swept import Files, Point, check_not_swept, check_swept, show_swept, sweep_steps
from launch.data.devices import find_device
from launch.show.progress import late_notice, progress_bar
from launch.show.text.plan_table import plans_report

_PROCESSES = 2  # that time candidates, where there are cores for them


@click.command("plan")
@click.option(
    "--model", required=True, metavar="NAME|FILE", help="See `emu list models`; a FILE is .toml, with sizes of one's own."
)
@click.option("--npus", required=True, type=click.IntRange(min=1), help="How many a plan takes, all of them.")
@topology_option
@click.option("--global-batch", required=True, type=click.IntRange(min=1), help="Sequences in a step, over all ranks.")
@click.option("--seq", required=True, type=click.IntRange(min=1), help="Tokens in a sequence.")
@click.option("--device", default="h100", show_default=True, help=DEVICE_HELP)
@click.option("--algorithm", "algorithms", multiple=True, metavar=ALGORITHM_WORDS, help=ALGORITHM_HELP)
@click.option("--plan", "given", default="", metavar="tp=8,sp", help="Search only plans with these words. [default: all]")
@click.option("--beside", multiple=True, metavar="tp=8,sp,dp=8", help="A plan of yours, ranked with those found; repeat it.")
@click.option("--top", default=BEST, show_default=True, type=click.IntRange(min=1), help="Plans found; fewer are found sooner.")
@click.option("--cache", type=OutputFolder(), help="Keep results in this folder. [default: the user's cache]")
@click.option(
    "--png",
    type=OutputFile(".png"),
    help="Draw MFU against memory, with the Pareto front, to this file; of a --sweep the step time of the best plans.",
)
@sweep_option
@click.option("--csv", type=OutputFile(), help="Write the best plans of a --sweep to this file. [default: print them]")
@stack_option
@html_option
@import_option
@json_option
def plan_command(
    model: str,
    npus: int,
    topologies: tuple[str, ...],
    global_batch: int,
    seq: int,
    device: str,
    algorithms: tuple[str, ...],
    given: str,
    beside: tuple[str, ...],
    top: int,
    cache: Path | None,
    png: Path | None,
    sweeps: tuple[str, ...],
    csv: Path | None,
    stack: str,
    html: Path | None,
    as_json: bool,
) -> None:
    """Find the plan by which a model trains fastest on so many NPUs, and tell why the next ones lose.

    Interrupt it as you like: started again, it goes on where it stopped.

    \b
    emu plan --model llama3-8b --npus 64 --global-batch 64 --seq 8192 --topology ub-mesh:rack
    emu plan --model llama3-8b --npus 64 --global-batch 64 --seq 8192 --topology ub-mesh:rack --sweep plan.tp=1,2,4,8
    """
    under = stack_of(stack)
    named = tuple(parse_plan(words, global_batch=global_batch, seq=seq) for words in beside)
    request = PlanRequest(model, npus, global_batch, seq, under, chosen_by(algorithms, under), given, named, top)
    if sweeps:
        check_swept("plan", {"--html": html, "--beside": beside})
        words = {"model": model, "plan": given, "stack": stack, "device": device}
        sizes = {"npus": str(npus), "seq": str(seq), "global-batch": str(global_batch)}
        with closing(Kept(kept_in(cache))) as kept:
            rows = sweep_steps(words | sizes, topologies, parse_sweeps(sweeps, "npus"), partial(_best, request, kept))
        show_swept(rows, f"The best plan of {model}", Files(csv, png), as_json=as_json)
        return
    check_not_swept("plan", csv)
    built, found = [build_topology(word) for word in topologies], find_device(device, under.precision.activation)
    with closing(Kept(kept_in(cache))) as kept:
        planned = _find(request, built, found, kept)
    if as_json:
        print_json(planned)
    else:
        print_text(plans_report(planned))
    if html is not None:
        _write_page(planned, request, built, found, html)
    if png is not None:
        draw = importlib.import_module("launch.show.chart.plan_chart")  # not above: it loads matplotlib
        with may_fail():
            draw.draw_plans(planned, png)


def _find(request: PlanRequest, topologies: Sequence[Topology], device: Device, kept: Kept) -> Planned:
    return find_plans(request, topologies, device, kept, processes=min(_PROCESSES, os.cpu_count() or 1), progress=progress_bar)


def _best(request: PlanRequest, kept: Kept, point: Point) -> PlanRow:
    """The fastest plan at a point of a sweep."""
    npus, global_batch, seq = map(point.whole, ("npus", "global-batch", "seq"))
    asked = replace(request, npus=npus, global_batch=global_batch, seq=seq)
    asked = replace(asked, model=point.said["model"], given=point.said["plan"], stack=point.stack, best=1)
    return _find(asked, [point.topology], point.device, kept).rows[0]


def _write_page(planned: Planned, request: PlanRequest, topologies: Sequence[Topology], device: Device, path: Path) -> None:
    """The report, with all that is told of a step for the fastest plan."""
    row = planned.fastest
    plan = parse_plan(row.plan, global_batch=request.global_batch, seq=request.seq)
    asked = EstimateRequest(request.model, plan, request.stack, request.algorithms, tuple(row.axes.split(",")))
    [topology, *_] = [each for each in topologies if each.name == row.topology]
    with late_notice("timing the fastest plan once more, for the report"):
        shown = estimate_moments(asked, topology, device)
    page, plans = (importlib.import_module(f"launch.show.html.{name}") for name in ("page", "plan_page"))  # loads matplotlib
    with may_fail():
        page.write_page(plans.plans_page(planned, shown), path)
