"""The command `emu faults`: the NPUs of a machine that groups of tensor parallelism lose to faults."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import show
from launch.cli.options.question_options import QuestionOptions
from launch.front.machine_faults import faults

asked = QuestionOptions(faults)
_AT_LEAST = click.IntRange(min=1)


@click.command("faults")
@common.topology_option
@asked("tp", metavar="N,...")
@asked("npus", type=_AT_LEAST)
@asked("log")
@asked("servers", "npus_per_server", "npus_per_node", type=_AT_LEAST)
@asked("rate", metavar="SHARE")
@asked("draws", type=_AT_LEAST)
@asked("mtbf", metavar="SPAN")
@asked("afr", metavar="SHARE")
@asked("mttr", "days", metavar="SPAN")
@asked("domain")
@asked("checkpoint", metavar="TIME")
@asked("restart", metavar="TIME", show_default=False)
@asked("mfu", metavar="SHARE")
@asked("job", type=_AT_LEAST)
@asked("prices", metavar="BOOK|FILE.toml")
@asked("npu")
@asked("seed", type=click.IntRange(min=0))
@click.option("--png", type=OutputFile(".png"), help="Draw the waste over time, and its distribution, to this file.")
@common.answer_options
def faults_command(**options: Any) -> int:
    """Compute what faults leave of a machine: NPUs that work but find no group, the largest job, and goodput.

    \b
    emu faults --topology infinitehbd:k=3 --topology nvl:72 --tp 32
    emu faults --topology big-switch:n=2880 --tp 8,16,32 --rate 1.17%
    emu faults --topology ub-mesh:rack-full --tp 16 --mtbf 1y --mttr 2d --npus-per-node 1
    """
    return show(faults, options)
