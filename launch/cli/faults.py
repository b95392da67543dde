"""The command `emu faults`: the NPUs of a machine that groups of tensor parallelism lose to faults."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.front.machine_faults import faults

options_of = QuestionOptions(faults)
_AT_LEAST = click.IntRange(min=1)


@click.command("faults")
@common.topology_option
@options_of("tp", metavar="N,...")
@options_of("npus", type=_AT_LEAST)
@options_of("log")
@options_of("servers", "npus_per_server", "npus_per_node", type=_AT_LEAST)
@options_of("rate", metavar="SHARE")
@options_of("draws", type=_AT_LEAST)
@options_of("mtbf", metavar="SPAN")
@options_of("afr", metavar="SHARE")
@options_of("mttr", "days", metavar="SPAN")
@options_of("domain")
@options_of("checkpoint", metavar="TIME")
@options_of("restart", metavar="TIME", show_default=False)
@options_of("mfu", metavar="SHARE")
@options_of("job", type=_AT_LEAST)
@options_of("prices", metavar="BOOK|FILE.toml")
@options_of("npu")
@options_of("seed", type=click.IntRange(min=0))
@click.option("--png", type=OutputFile(".png"), help="Draw the waste over time, and its distribution, to this file.")
@common.answer_options
def faults_command(**options: Any) -> int:
    """Compute what faults leave of a machine: NPUs that work but find no group, the largest job, and goodput.

    \b
    emu faults --topology infinitehbd:k=3 --topology nvl:72 --tp 32
    emu faults --topology big-switch:n=2880 --tp 8,16,32 --rate 1.17%
    emu faults --topology ub-mesh:rack-full --tp 16 --mtbf 1y --mttr 2d --npus-per-node 1
    """
    return ask_and_save(faults, options)
