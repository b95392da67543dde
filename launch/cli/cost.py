"""The command `emu cost`: the price and the power of networks."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.output import show
from launch.data.presets import BOOKS, DEFAULT
from launch.front.network_costs import NPU_EXAMPLE, cost


@click.command("cost")
@common.topology_option
@common.default_option(
    "--prices",
    default=DEFAULT,
    metavar="BOOK|FILE.toml",
    help=f"The price book: {', '.join(BOOKS)}, or a file of your own.",
)
@click.option("--across", is_flag=True, help="Add the global bandwidth: what half of the NPUs send to the other half.")
@click.option(
    "--all-to-all",
    is_flag=True,
    help="Add the all-to-all bandwidth: what an NPU sends while all NPUs send to all others.",
)
@common.default_option(
    "--years", metavar="NUMBER", default="0", help="The years that the network runs. They add the cost of energy."
)
@common.default_option("--kwh", metavar="NUMBER", default="0.1", help="The dollars of a kilowatt-hour, for --years.")
@click.option(
    "--npu", metavar=NPU_EXAMPLE, default="dollars=0,watts=0", help="The price and the power of an NPU, for the TCO of --model."
)
@click.option(
    "--model",
    metavar="NAME|FILE",
    help="Add tokens per second for each dollar of TCO, by an estimate of this model. It needs --plan.",
)
@click.option("--plan", metavar="tp=8,sp,dp=8", help="The plan of --model, as in `emu train`.")
@click.option("--global-batch", type=int, help="Sequences in a step.")
@click.option("--seq", type=int, help="Tokens in a sequence.")
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
