"""`emu show`: what a topology is, what a timeline looks like."""

from dataclasses import asdict
from pathlib import Path

import click

from emu.topology.catalogue import build_topology
from emu.topology.facts import summary
from launch.cli.options import json_option, print_json
from launch.show.describe import table_topology
from launch.show.draw import draw_topology


@click.group("show")
def show_command() -> None:
    """Show a topology or a timeline, as text or as a picture.

    \b
    emu show topology ub-mesh:rack --png rack.png
    """


@show_command.command("topology")
@click.argument("name", metavar="NAME[:VARIANT][:key=value,...]")
@click.option("--png", type=click.Path(path_type=Path), help="Draw it here.")
@json_option
def _topology(name: str, png: Path | None, as_json: bool) -> None:
    """Counts, degree, diameter, bisection and assumptions of a topology; `--png` draws it.

    \b
    emu show topology torus:dims=4x4,bandwidth=50GB/s,latency=500ns
    emu show topology ub-mesh:rack --png rack.png
    """
    built = build_topology(name)
    if png is not None:
        draw_topology(built, png)
    if as_json:
        print_json({"name": name, **asdict(summary(built)), "bill": built.bill, "assumptions": built.assumptions})
        return
    for label, value in table_topology(built):
        click.echo(f"{label:<14}{value}")
