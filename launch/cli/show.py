"""The command `emu show`: a topology, a collective, a timeline or a run by packets, as text or picture."""

import importlib
from typing import Any

import click

from emu.errors import must_be
from launch.cli.options import common
from launch.cli.options.files import INPUT, OutputFile
from launch.cli.options.output import ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.front.exhibits import show_collective, show_topology


@click.group("show")
def show_command() -> None:
    """Show a topology, a collective, a timeline or a run by packets, as text or as a picture.

    \b
    emu show topology ub-mesh:rack --png rack.png
    emu show collective all_reduce ring --ranks 4 --png ring.png
    emu show timeline ddp.trace --topology ub-mesh:board --png ddp.png
    emu show fabric-run all_to_all --topology fat-tree:radix=8 --network roce --size 8MiB --html run.html
    """


@show_command.command("topology")
@click.argument("name", metavar="NAME[:VARIANT][:key=value,...]|FILE")
@click.option("--png", type=OutputFile(".png"), help="Draw the topology to this file.")
@click.option(
    "--route", nargs=2, metavar="NODE NODE", help="Show only the routes between two nodes. A node is a number or a name."
)
@common.answer_options
def _topology(**options: Any) -> int:
    """Show the figures of a topology.

    These are its counts, degree, diameter, bisection and assumptions. With --png, a topology of more than 400 nodes is drawn
    as groups of nodes.

    \b
    emu show topology torus:dims=4x4,bandwidth=50GB/s,latency=500ns
    emu show topology ub-mesh:rack --png rack.png
    emu show topology own.toml --route 0 9
    """
    if options["route"] is not None and options["png"] is not None:
        shown = str(options["png"])
        raise must_be("show topology", "--png", "left out where --route is given", shown, "routes are shown as text")
    return ask_and_save(show_topology, options)


@show_command.command("collective")
@click.argument("operation")
@click.argument("algorithm")
@QuestionOptions(show_collective)("ranks", "dims", "root")
@click.option("--png", type=OutputFile(".png"), help="Draw the schedule to this file.")
@click.option("--xml", type=OutputFile(".xml"), help="Write the schedule to this file as MSCCL XML, to run it on GPUs.")
@common.answer_options
def _collective(**options: Any) -> int:
    """Show what each rank sends in each round.

    `0>1 +3` means that rank 0 sends slot 3 to rank 1, which adds it.

    \b
    emu show collective all_reduce ring --ranks 4
    emu show collective all_reduce direct --ranks 8 --png direct.png
    """
    return ask_and_save(show_collective, options)


@show_command.command("timeline")
@click.argument("trace", type=INPUT)
@common.shown_options
@common.timeline_options
@click.option("--png", type=OutputFile(".png"), help="Draw the timeline to this file.")
@common.answer_options
def _timeline(**options: Any) -> int:
    """Show when ranks compute and communicate.

    The recorded trace is timed on a topology. `--png` draws the step that `emu replay` reports.

    \b
    emu show timeline ddp.trace --topology ub-mesh:board --png ddp.png
    """
    timelines = importlib.import_module("launch.front.timelines")  # only here, as it loads what times a step
    return ask_and_save(timelines.show_timeline, options)


@show_command.command("fabric-run")
@click.argument("what", metavar="COLLECTIVE|TRACE")
@common.shown_options
@click.option(
    "--network",
    default="",
    metavar="KIND[:SETTING=VALUE,...]",
    help="The network of packets, as in `emu bench`. [default: roce]",
)
@click.option("--fabric", default="packets", metavar="packets[:cell=8KiB,...]", help="Packets: cell, seed, events.")
@click.option("--size", metavar="SIZE", help="The bytes of one rank's buffer of a collective, such as 8MiB.")
@click.option("--ranks", type=int, help="The ranks of a collective. [default: all NPUs of the topology]")
@click.option("--dims", default="", metavar="4x4", help="The shape of the grid, for a collective's algorithm on a grid.")
@click.option("--png", type=OutputFile(".png"), help="Draw queues over time, pauses, and who blocks whom to this file.")
@common.answer_options
def _fabric_run(**options: Any) -> int:
    """Show where packets wait, which links pause, and who blocks whom.

    COLLECTIVE is an operation, whose --size is given. TRACE is a file, as `emu replay` takes it. With --html the page has the
    queues and pauses on the drawing of the topology, over time.

    \b
    emu show fabric-run all_to_all --topology fat-tree:radix=8,taper=3 --network roce --size 8MiB --png run.png
    emu show fabric-run ddp.trace --topology fat-tree:radix=8 --network roce --html run.html
    """
    fabric_runs = importlib.import_module("launch.front.fabric_runs")  # only here, as it loads what times a step
    return ask_and_save(fabric_runs.show_fabric_run, options)
