"""`emu plan`: the plan by which a model trains fastest on so many NPUs, and why the next one loses."""

import importlib
import os
from contextlib import closing
from pathlib import Path

import click

from emu.model.spell import parse_plan
from emu.store import user_folder
from emu.study.choice.chooser import AUTO
from emu.study.planning.find import find_plans
from emu.study.planning.kept import Kept
from emu.study.planning.row import PlanRequest
from emu.topology.catalogue import build_topology
from launch.cli.options import (
    ALGORITHM_HELP,
    import_option,
    imported,
    json_option,
    print_json,
    stack_of,
    stack_option,
    topology_option,
)
from launch.data.devices import find_device
from launch.show.progress import bar
from launch.show.text.plans import plans_report

_PROCESSES = 2  # that time candidates, where there are cores for them


@click.command("plan")
@click.option(
    "--model", required=True, metavar="NAME|FILE", help="See `emu list models`; a FILE is .toml, with sizes of one's own."
)
@click.option("--npus", required=True, type=click.IntRange(min=1), help="How many a plan takes, all of them.")
@topology_option
@click.option("--global-batch", required=True, type=click.IntRange(min=1), help="Sequences in a step, over all ranks.")
@click.option("--seq", required=True, type=click.IntRange(min=1), help="Tokens in a sequence.")
@click.option("--device", default="h100", show_default=True, help="The device that computes; see `emu list devices`.")
@click.option("--algorithm", "algorithms", multiple=True, metavar="auto|OPERATION=NAME", help=ALGORITHM_HELP)
@click.option(
    "--plan",
    "given",
    default="",
    metavar="tp=8,sp",
    help="Search only plans with these words, as of `emu train`. [default: all]",
)
@click.option("--beside", multiple=True, metavar="tp=8,sp,dp=8", help="A plan of yours, ranked with those found; repeat it.")
@click.option("--cache", type=click.Path(path_type=Path), help="Keep results in this folder. [default: the user's cache]")
@click.option(
    "--png",
    type=click.Path(path_type=Path),
    help="Draw MFU against memory, with the Pareto front, to this file.",
)
@stack_option
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
    cache: Path | None,
    png: Path | None,
    stack: str,
    as_json: bool,
) -> None:
    """Find the plan by which a model trains fastest on so many NPUs, and tell why the next ones lose.

    Interrupt it as you like: started again, it goes on where it stopped.

    \b
    emu plan --model llama3-8b --npus 64 --global-batch 64 --seq 8192 --topology ub-mesh:rack
    """
    under = stack_of(stack)
    named = tuple(parse_plan(words, global_batch=global_batch, seq=seq) for words in beside)
    request = PlanRequest(model, npus, global_batch, seq, under, (AUTO, *algorithms), given, named)
    built, found = [build_topology(word) for word in topologies], find_device(device, under.precision.activation)
    folder = cache or (user_folder() / "plans" if imported() is None else None)  # a file of one's own has no digest
    with closing(Kept(folder)) as kept:
        planned = find_plans(request, built, found, kept, processes=min(_PROCESSES, os.cpu_count() or 1), progress=bar)
    if as_json:
        print_json(planned)
    else:
        click.echo(plans_report(planned))
    if png is not None:
        importlib.import_module("launch.show.chart.plans").draw_plans(planned, png)  # not above: it loads matplotlib
