"""The command `emu cost`: the price and the power of networks."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.output import ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.data.presets import BOOKS
from launch.front.network_costs import cost

options_of = QuestionOptions(cost)


@click.command("cost")
@common.topology_option
@options_of("prices", metavar="BOOK|FILE.toml", help=f"The price book: {', '.join(BOOKS)}, or a file of your own.")
@options_of("across", "all_to_all")
@options_of("years", "kwh", metavar="NUMBER")
@options_of("npu", show_default=False)
@options_of("model", metavar="NAME|FILE")
@options_of("plan", "global_batch", "seq")
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
    return ask_and_save(cost, options)
