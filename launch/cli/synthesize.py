"""The command `emu synthesize`: a schedule of a collective that is made for a topology."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.front.syntheses import check_written, synthesize

options_of = QuestionOptions(synthesize)


@click.command("synthesize")
@click.argument("operation")
@common.topology_option
@options_of("ranks", "size", "dtype -d", "root -r")
@options_of("time", metavar="TIME")
@click.option("--xml", type=OutputFile(".xml"), help="Write the schedule to this file as MSCCL XML. Give one topology.")
@click.option("--npz", type=OutputFile(".npz"), help="Write the columns of the schedule to this file. Give one topology.")
@click.option("--png", type=OutputFile(".png"), help="Draw the schedule to this file. Give one topology.")
@common.answer_options
def synthesize_command(**options: Any) -> int:
    """Make the fastest schedule of a collective that is found for a topology, and prove it.

    Trees are packed into the capacities of all links, or the blocks of an all_to_all are divided among paths, and the sends are
    ordered; what is fastest on the fabric is kept. It is told beside of_bound, the best trees and the fastest algorithm of the
    catalogue. `emu bench --import FILE.xml` runs it.

    \b
    emu synthesize all_gather --topology torus:dims=4x4,bandwidth=50GB/s,latency=500ns --size 16MiB
    emu synthesize all_reduce --topology hammingmesh:boards=1x2 --size 256MiB --time 60s
    emu synthesize reduce_scatter --topology ub-mesh:board --xml board.xml
    """
    if any(options[name] is not None for name in ("xml", "npz", "png")):
        check_written(options["operation"], len(options["topology"]), as_xml=options["xml"] is not None)
    return ask_and_save(synthesize, options)
