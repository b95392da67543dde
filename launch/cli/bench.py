"""The command `emu bench`: the data and the time of one collective, in the terms of nccl-tests."""

from typing import Any

import click

from emu.errors import must_be
from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import show
from launch.front.measurements import EVERY, bench


@click.command("bench")
@click.argument("operation")
@common.topology_option
@click.option(
    "--algorithm",
    metavar="NAME",
    help="The algorithm. `auto` takes the fastest at each size, `nccl` takes what NCCL takes, `all` compares all. NAME@4 uses "
    "4 channels.  [default: auto, or the choice of the library of --stack]",
)
@click.option("--png", type=OutputFile(".png"), help="Draw the times to this file. With --algorithm all, give one topology.")
@click.option("--size", metavar="SIZE", help="The bytes of one rank's buffer (of all ranks for all_gather and reduce_scatter).")
@click.option("-b", "--begin", metavar="SIZE", help="The smallest of several sizes.")
@click.option("-e", "--end", metavar="SIZE", help="The largest of several sizes.")
@common.default_option("-f", "--factor", type=float, default=2.0, help="The ratio of each size to the one before.")
@common.default_option("-d", "--dtype", default="float32", help="The data type of the elements.")
@common.default_option(
    "-o", "--reduce", default="sum", help="How elements are combined: sum, avg, min, max, product, and, or, xor."
)
@common.default_option("-r", "--root", default=0, help="The root rank, for an operation that has one.")
@click.option("--ranks", type=int, help="The number of ranks. [default: all NPUs of the topology]")
@click.option(
    "--dims",
    metavar="4x4",
    default="",
    help=f"{common.GRID_HELP} [default: the topology's]",
)
@click.option(
    "--axes",
    metavar="0,2,1,3",
    default="",
    help="The order of the topology's dimensions in which ranks are numbered; the last one changes fastest.",
)
@click.option("--timing-only", is_flag=True, help="Move no data. Use it for sizes beyond the memory of this machine.")
@common.perturb_option
@common.default_option(
    "--bounds",
    metavar="quick|all",
    default="quick",
    help="quick, or `all`: also compute the bounds that take long.",
)
@common.default_option(
    "--send-overhead",
    metavar="TIME",
    default="0s",
    help="The time between two sends of a rank (o in LogGP).",
)
@common.cluster_options
@common.workers_option
@common.calls_option
@common.answer_options
def bench_command(**options: Any) -> int:
    """Move real data with a collective, check every element, and time the same schedule on the fabric.

    \b
    emu bench all_reduce --algorithm ring --topology switch:n=8,bandwidth=50GB/s,latency=500ns --size 64MiB
    emu bench all_to_all --topology ub-mesh:rack -b 64KiB -e 64MiB -f 4 --json
    emu bench all_reduce --algorithm all --topology ub-mesh:board -b 1KiB -e 64MiB -f 8 --png compared.png
    emu bench all_reduce --algorithm auto --topology own.toml --topology ub-mesh:board --size 64MiB --png fabrics.png
    emu bench all_reduce --algorithm 2d-ring@2 --dims 8x8 --axes 0,2,1,3 --topology railx:torus:m=2,n=2,nodes=4x4 --size 3MiB
    """
    if options["png"] is not None and options["algorithm"] == EVERY and len(options["topology"]) != 1:
        raise must_be("bench", "--topology", "given once where --algorithm all is drawn", len(options["topology"]))
    return show(bench, options)
