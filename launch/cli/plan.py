"""The command `emu plan`: the plan that trains a model fastest on a number of NPUs, and why the next ones lose."""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from emu.model.plan.plan_text import parse_plan
from emu.study.planning.find import InterruptedSearch, find_plans
from emu.study.planning.search.row import BEST, PlanRequest, PlanRow, PlanTable
from emu.study.planning.search.timer import ResultCache
from emu.study.training.estimate import EstimateRequest, estimate_moments
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from launch.cli.options import common
from launch.cli.options.files import OutputFile, write_html, write_png
from launch.cli.options.sweep import SweepOptions, SweepPoint, sweep_option, swept
from launch.cli.options.view_options import html_option
from launch.data.devices import find_device
from launch.show.progress import late_notice, progress_bar
from launch.show.text.estimate_table import plans_report

_PROCESSES = 2  # most processes that time candidates


@click.command("plan")
@common.model_option
@click.option("--npus", required=True, type=click.IntRange(min=1), help="The number of NPUs that the job uses.")
@common.topology_option
@click.option("--global-batch", required=True, type=click.IntRange(min=1), help="Sequences in a step, over all ranks.")
@click.option("--seq", required=True, type=click.IntRange(min=1), help="Tokens in a sequence.")
@common.device_option
@common.algorithm_option
@click.option(
    "--plan",
    "given",
    default="",
    metavar="tp=8,sp",
    help="Search only plans with these words of `emu train --plan`. [default: all]",
)
@click.option(
    "--beside", multiple=True, metavar="tp=8,sp,dp=8", help="A plan of your own, listed among those found; repeat it."
)
@common.default_option(
    "--top", default=BEST, type=click.IntRange(min=1), help="The number of plans to find. Fewer are found sooner."
)
@click.option(
    "--all",
    "prove_all",
    is_flag=True,
    help="Go on until all of the --top plans are proved: no other plan can be faster. [default: until the first is, and "
    "then for a fixed amount of work]",
)
@common.cache_option
@click.option(
    "--png",
    type=OutputFile(".png"),
    help="Draw MFU against memory, with the Pareto front, to this file. With --sweep: draw the step time of the best plans.",
)
@sweep_option
@click.option("--csv", type=OutputFile(), help="Write the best plans of a --sweep to this file. [default: print them]")
@common.stack_option
@html_option
@common.import_option
@common.json_option
@swept
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
    prove_all: bool,
    cache: Path | None,
    sweep: SweepOptions,
    stack: str,
    html: Path | None,
    as_json: bool,
) -> None:
    """Find the plan that trains a model fastest on a number of NPUs, and say why the next plans are slower.

    Results are kept. An interrupted search prints what it knows, and goes on where it stopped when it is started again.

    \b
    emu plan --model llama3-8b --npus 64 --global-batch 64 --seq 8192 --topology ub-mesh:rack
    emu plan --model llama3-8b --npus 64 --global-batch 64 --seq 8192 --topology ub-mesh:rack --sweep plan.tp=1,2,4,8
    """
    under = common.stack_of(stack)
    named = tuple(parse_plan(words, global_batch=global_batch, seq=seq) for words in beside)
    by = common.algorithm_choice(algorithms, under)
    request = PlanRequest(model, npus, global_batch, seq, under, by, given, named, top, prove_all)
    sweep.check("plan", {"--html": html, "--beside": beside})
    if sweep.sweeps:
        words = {"model": model, "plan": given, "stack": stack, "device": device}
        sizes = {"npus": str(npus), "seq": str(seq), "global-batch": str(global_batch)}
        with closing(ResultCache(common.cache_folder(cache))) as kept:
            rows = sweep.steps(words | sizes, topologies, partial(_best_at, request, kept))
        sweep.show(rows, f"The best plan of {model}", as_json=as_json)
        return
    built, found = [build_topology(word) for word in topologies], find_device(device, under.precision.activation)
    with closing(ResultCache(common.cache_folder(cache))) as kept:
        try:
            planned = _find(request, built, found, kept)
        except InterruptedSearch as stopped:
            if stopped.table is not None:
                _print(stopped.table, as_json=as_json)
            raise stopped.cause from None
    _print(planned, as_json=as_json)
    if html is not None:
        _write_page(planned, request, built, found, html)
    write_png(sweep.png, "chart.step_chart:plans_figure", planned)


def _find(request: PlanRequest, topologies: Sequence[Topology], device: Device, kept: ResultCache) -> PlanTable:
    """Return the result of a search, with a progress bar."""
    return find_plans(request, topologies, device, kept, processes=min(_PROCESSES, os.cpu_count() or 1), progress=progress_bar)


def _print(planned: PlanTable, *, as_json: bool) -> None:
    """Print the result of a search."""
    common.print_result(planned, lambda: plans_report(planned), as_json=as_json)


def _best_at(request: PlanRequest, kept: ResultCache, point: SweepPoint) -> PlanRow:
    """Return the fastest plan at a point of a sweep."""
    npus, global_batch, seq = map(point.whole, ("npus", "global-batch", "seq"))
    asked = replace(request, npus=npus, global_batch=global_batch, seq=seq)
    asked = replace(asked, model=point.said["model"], given=point.said["plan"], stack=point.stack, best=1)
    try:
        return _find(asked, [point.topology], point.device, kept).rows[0]
    except InterruptedSearch as stopped:  # the signal tells the exit code
        raise stopped.cause from None


def _write_page(planned: PlanTable, request: PlanRequest, topologies: Sequence[Topology], device: Device, path: Path) -> None:
    """Write the HTML page of the search, with the step of the fastest plan."""
    row = planned.fastest
    plan = parse_plan(row.plan, global_batch=request.global_batch, seq=request.seq)
    asked = EstimateRequest(request.model, plan, request.stack, request.algorithms, tuple(row.axes.split(",")))
    [topology, *_] = [each for each in topologies if each.name == row.topology]
    with late_notice("timing the fastest plan once more, for the report"):
        shown = estimate_moments(asked, topology, device)
    write_html(path, "html.plan_page:plans_page", planned, shown)
