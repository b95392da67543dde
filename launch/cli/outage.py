"""The command `emu outage`: a job's throughput over time while parts of the machine fail and come back."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.front.steps.outages import outage

_FAULTS = '"PART from TIME to TIME"|"PART flaps TIME every TIME from TIME to TIME"|FILE'
options_of = QuestionOptions(outage)


@click.command("outage")
@common.step_options(
    options_of,
    options_of("fault", required=True, multiple=True, metavar=_FAULTS),
    options_of("until", "detect", "checkpoint", "checkpoint_every", "restart", metavar="TIME"),
    options_of("resend", metavar="every=TIME,times=N"),
)
@click.option("--png", type=OutputFile(".png"), help="Draw the throughput over time to this file, with a mark at each event.")
@common.answer_options
def outage_command(**options: Any) -> int:
    """Compute a job's throughput over time while parts of the machine fail, flap and come back, and its goodput.

    \b
    emu outage --config scenario.toml --fault "link 0-15 from 10s to 70s" --until 120s
    emu outage --config scenario.toml --fault "link 0-15 flaps 1s every 20s from 10s to 60s" --until 90s --png flaps.png
    emu outage --config scenario.toml --fault "npu 5 at 600s" --until 3600s --checkpoint-every 900s --restart 120s
    """
    return ask_and_save(outage, options)
