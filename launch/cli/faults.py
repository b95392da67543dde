"""The command `emu faults`: the NPUs of a machine that groups of tensor parallelism lose to faults."""

from pathlib import Path
from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import show
from launch.data.presets import GPUS
from launch.front.machine_faults import LEAST_NPUS, faults
from launch.front.network_costs import NPU_EXAMPLE

_AT_LEAST = click.IntRange(min=1)


@click.command("faults")
@common.topology_option
@common.default_option("--tp", default="32", metavar="N,...", help="The NPUs of a group: one size or several.")
@click.option(
    "--npus", type=_AT_LEAST, help=f"The NPUs of the machine. A smaller topology is repeated. [default: at least {LEAST_NPUS}]"
)
@click.option(
    "--log",
    type=click.Path(path_type=Path),
    help="A log of faults: a CSV of server,start_day,end_day. [default: the published trace of InfiniteHBD]",
)
@click.option("--servers", type=_AT_LEAST, help="The servers of --log, including those without a fault.")
@common.default_option("--npus-per-server", type=_AT_LEAST, default=GPUS, help="The NPUs of a server of the log.")
@common.default_option("--npus-per-node", type=_AT_LEAST, default=4, help="The NPUs that fail together.")
@click.option("--rate", metavar="SHARE", help="In place of a log: the probability that a node is faulty.")
@common.default_option("--draws", type=_AT_LEAST, default=1000, help="The number of random states of the machine, for --rate.")
@click.option("--mtbf", metavar="SPAN", help="In place of a log: how long a node works on average (12h, 60d or 3y).")
@click.option("--afr", metavar="SHARE", help="In place of --mtbf, the share of the nodes that fail in a year.")
@click.option("--mttr", metavar="SPAN", help="The repair of a node takes this time on average.")
@common.default_option("--days", metavar="SPAN", default="365d", help="The time for which --mtbf or --afr draws faults.")
@click.option(
    "--domain",
    multiple=True,
    metavar="npus=64,mtbf=1y,mttr=4h",
    help="A part, such as a switch, that takes so many NPUs with it; repeat it.",
)
@click.option(
    "--checkpoint", metavar="TIME", help="The time of a checkpoint. Goodput is added, with the best interval of checkpoints."
)
@click.option("--restart", metavar="TIME", default="0s", help="The time of a restart, for --checkpoint.")
@click.option("--mfu", metavar="SHARE", help="The MFU of the job while it runs. Goodput is then a share of the machine's peak.")
@click.option("--job", type=_AT_LEAST, help="The NPUs of a job. The share of the time in which it must wait for room is added.")
@click.option(
    "--prices", metavar="BOOK|FILE.toml", help="Add the aggregate cost: the network by this price book, and lost NPUs by --npu."
)
@click.option("--npu", metavar=NPU_EXAMPLE, help="The price of an NPU, for --prices.")
@common.default_option("--seed", type=click.IntRange(min=0), default=0, help="The seed of random numbers.")
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
