"""The command `emu cost`: the price and the power of networks."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.output import show
from launch.cli.options.question_options import QuestionOptions
from launch.data.presets import BOOKS
from launch.front.network_costs import cost

asked = QuestionOptions(cost)


@click.command("cost")
@common.topology_option
@asked("prices", metavar="BOOK|FILE.toml", help=f"The price book: {', '.join(BOOKS)}, or a file of your own.")
@asked("across", "all_to_all")
@asked("years", "kwh", metavar="NUMBER")
@asked("npu", show_default=False)
@asked("model", metavar="NAME|FILE")
@asked("plan", "global_batch", "seq")
@common.device_option
@common.stack_option
@common.answer_options
def cost_command(**options: Any) -> int:
    """Compute the price and the power of a network from its parts, for each NPU and each GB/s.

    \b
    emu cost --topology ub-mesh:pod --topology hpn:pod --topology tpuv4
    emu cost --topology infinitehbd:k=2 --topology nvl:72 --prices infinitehbd
    emu cost --topology fat-tree:radix=64,planes=36 --prices railx --across
    """
    return show(cost, options)
