"""The command `emu plan`: the plan that trains a model fastest on a number of NPUs, and why the next ones lose."""

from pathlib import Path
from typing import Any

import click

from emu.study.planning.find import InterruptedSearch
from emu.study.planning.search.row import BEST, PlanTable
from launch.cli.options import common
from launch.cli.options.files import OutputFile, may_fail, print_text
from launch.cli.options.output import check_sweep, show
from launch.front.steps.searches import plan
from launch.show.row_file import RowFile, json_text
from launch.show.text.estimate_table import plans_report


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
@common.sweep_option
@common.stack_option
@common.worker_options
@common.answer_options
def plan_command(**options: Any) -> int:
    """Find the plan that trains a model fastest on a number of NPUs, and say why the next plans are slower.

    Results are kept. An interrupted search prints what it knows, and goes on where it stopped when it is started again.

    \b
    emu plan --model llama3-8b --npus 64 --global-batch 64 --seq 8192 --topology ub-mesh:rack
    emu plan --model llama3-8b --npus 64 --global-batch 64 --seq 8192 --topology ub-mesh:rack --sweep plan.tp=1,2,4,8
    """
    check_sweep("plan", options, "beside")
    as_json, is_swept, out = options["as_json"], bool(options["sweep"]), options["out"]
    try:
        return show(plan, options)
    except InterruptedSearch as stopped:
        if stopped.table is not None and not is_swept:
            _print_known(stopped.table, out, as_json=as_json)
        raise stopped.cause from None


def _print_known(table: PlanTable, out: Path | None, *, as_json: bool) -> None:
    """Print the plans that an interrupted search knows; with `--out` write them there, as those of a whole search."""
    if out is not None:
        with may_fail():
            RowFile(out, print_text).finish(table.rows)
    if out is None or as_json:
        print_text(json_text(table) if as_json else plans_report(table))
