"""The command `emu design`: the machines that are worth their money for a training job."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.data.presets import BOOKS
from launch.front.designs import design

options_of = QuestionOptions(design)
_AT_LEAST = click.IntRange(min=1)


@click.command("design")
@common.model_option
@options_of("npus", metavar="N,...")
@options_of("topology", multiple=True, metavar="NAME[:VARIANT][:key={a,b},...]|FILE")
@options_of("global_batch", "seq", type=_AT_LEAST)
@options_of("device", multiple=True, default=("h100",), show_default=True)
@options_of("budget", "power")
@options_of("prices", metavar="BOOK|FILE.toml", help=f"The price book: {', '.join(BOOKS)}, or a file of your own.")
@options_of("npu")
@options_of("years", "kwh", metavar="NUMBER")
@options_of("faults", "plan")
@common.algorithm_option
@common.stack_option
@common.cache_option
@click.option("--png", type=OutputFile(".png"), help="Draw tokens/s against dollars, with the front, to this file.")
@common.worker_options(options_of)
@common.answer_options
def design_command(**options: Any) -> int:
    """Find the machines for a training job that no other machine beats in speed, price, power and availability.

    Results are kept. An interrupted design goes on where it stopped when it is started again.

    \b
    emu design --model llama3-8b --npus 64 --global-batch 64 --seq 8192 --topology "rail-only:dims=8x8,planes={1,2,4,8}"
    emu design --model llama3-8b --npus 32,64 --global-batch 64 --seq 8192 --topology ub-mesh:rack --budget 3M$
    """
    return ask_and_save(design, options)
