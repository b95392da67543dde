"""The command `emu bench`: the data and the time of one collective, in the terms of nccl-tests."""

from typing import Any

import click

from emu.errors import must_be
from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.front.measurements import EVERY, bench

options_of = QuestionOptions(bench)


@click.command("bench")
@click.argument("operation")
@common.topology_option
@options_of("algorithm", metavar="NAME")
@click.option("--png", type=OutputFile(".png"), help="Draw the times to this file. With --algorithm all, give one topology.")
@options_of("size", "begin -b", "end -e", metavar="SIZE")
@options_of("factor -f", "dtype -d", "reduce -o", "root -r", "ranks", "dims", "axes", "timing_only")
@common.perturb_option
@options_of("bounds", metavar="quick|all")
@options_of("send_overhead", metavar="TIME")
@options_of("fabric", "network", "check_fabric")
@common.cluster_options(options_of)
@common.workers_option
@common.overheads_option
@common.answer_options
def bench_command(**options: Any) -> int:
    """Move real data with a collective, check every element, and time the same schedule on the fabric.

    \b
    emu bench all_reduce --algorithm ring --topology switch:n=8,bandwidth=50GB/s,latency=500ns --size 64MiB
    emu bench all_to_all --topology ub-mesh:rack -b 64KiB -e 64MiB -f 4 --json
    emu bench all_reduce --algorithm all --topology ub-mesh:board -b 1KiB -e 64MiB -f 8 --png compared.png
    emu bench all_reduce --algorithm nccl --algorithm ring --topology servers:nodes=4 --size 64MiB
    emu bench all_reduce --algorithm auto --topology own.toml --topology ub-mesh:board --size 64MiB --png fabrics.png
    emu bench all_to_all --topology fat-tree:radix=8 --size 64MiB --check-fabric --network roce
    emu bench all_reduce --algorithm 2d-ring@2 --dims 8x8 --axes 0,2,1,3 --topology railx:torus:m=2,n=2,nodes=4x4 --size 3MiB
    """
    if options["png"] is not None and EVERY in options["algorithm"] and len(options["topology"]) != 1:
        raise must_be("bench", "--topology", "given once where --algorithm all is drawn", len(options["topology"]))
    return ask_and_save(bench, options)
