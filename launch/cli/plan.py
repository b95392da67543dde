"""The command `emu plan`: the plan that trains a model fastest on a number of NPUs, and why the next ones lose."""

from pathlib import Path
from typing import Any

import click

from emu.study.planning.find import InterruptedSearch
from emu.study.planning.plan_row import PlanTable
from launch.cli.options import common
from launch.cli.options.files import OutputFile, may_fail, print_text
from launch.cli.options.output import ask_and_save, check_sweep
from launch.cli.options.question_options import QuestionOptions
from launch.front.steps.searches import plan
from launch.show.row_file import RowFile, json_text
from launch.show.text.estimate_table import plans_report

options_of = QuestionOptions(plan)
_AT_LEAST = click.IntRange(min=1)


@click.command("plan")
@common.model_option
@options_of("npus", type=_AT_LEAST)
@common.topology_option
@options_of("global_batch", "seq", type=_AT_LEAST)
@common.device_option
@common.algorithm_option
@options_of("plan", "beside")
@options_of("top", type=_AT_LEAST)
@options_of("prove_all --all")
@common.cache_option
@click.option(
    "--png",
    type=OutputFile(".png"),
    help="Draw MFU against memory, with the Pareto front, to this file. With --sweep: draw the step time of the best plans.",
)
@common.sweep_option
@common.stack_option
@common.worker_options(options_of)
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
        return ask_and_save(plan, options)
    except InterruptedSearch as stopped:
        if stopped.table is not None and not is_swept:
            _print_known(stopped.table, out, as_json=as_json)
        raise stopped.cause from None


def _print_known(table: PlanTable, out: Path | None, *, as_json: bool) -> None:
    """Print the plans that an interrupted search has found, and write them to `--out` if given."""
    if out is not None:
        with may_fail():
            RowFile(out, print_text).finish(table.rows)
    if out is None or as_json:
        print_text(json_text(table) if as_json else plans_report(table))
