"""`emu show`: what a topology is, what a timeline looks like."""

from dataclasses import asdict
from pathlib import Path

import click

from emu.errors import must_be
from emu.study.step import choice_of, time_trace
from emu.topology.catalogue import build_topology
from emu.topology.facts import summary
from emu.trace.read import load
from emu.units import format_time, seconds
from launch.cli.options import import_option, json_option, print_json, timing_options, topology_option
from launch.data.devices import find_device
from launch.show.describe import table_topology
from launch.show.draw import draw_topology
from launch.show.draw_timeline import draw_timeline
from launch.show.perfetto import write_perfetto
from launch.show.spans import Lane, lanes
from launch.show.table import table


@click.group("show")
def show_command() -> None:
    """Show a topology or a timeline, as text or as a picture.

    \b
    emu show topology ub-mesh:rack --png rack.png
    emu show timeline ddp.trace --topology ub-mesh:board --png ddp.png
    """


@show_command.command("topology")
@click.argument("name", metavar="NAME[:VARIANT][:key=value,...]")
@click.option("--png", type=click.Path(path_type=Path), help="Draw it here.")
@import_option
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


@show_command.command("timeline")
@click.argument("trace", type=click.Path(path_type=Path))
@topology_option
@timing_options
@click.option("--png", type=click.Path(path_type=Path), help="Draw it here.")
@import_option
@json_option
def _timeline(
    trace: Path,
    topologies: tuple[str, ...],
    device: str,
    dtype: str,
    algorithms: tuple[str, ...],
    timeline: Path | None,
    png: Path | None,
    as_json: bool,
) -> None:
    """When each rank computes and communicates, in a recorded trace on a topology; `--png` draws the last step.

    \b
    emu show timeline ddp.trace --topology ub-mesh:board --png ddp.png
    """
    recorded = load(trace)
    if len(topologies) != 1:
        raise must_be("show timeline", "--topology", "given once", len(topologies), "one picture shows one fabric")
    built, choice = build_topology(topologies[0]), choice_of(recorded, algorithms)
    timed = time_trace(recorded, choice, built, find_device(device, dtype), dtype)
    found = list(lanes(timed.trace, timed.replayed, timed.timeline, timed.topology))
    if png is not None:
        end = int(timed.timeline.end_fs.max())
        draw_timeline(found, png, f"the last step of {trace.name} on {built.name}", end - timed.report.step_times_fs[-1], end)
    if timeline is not None:
        write_perfetto(found, timeline)
    if as_json:
        print_json([_times(lane) for lane in found])
        return
    rows = [(lane.owner, lane.stream, str(len(lane.start)), *map(format_time, _spans(lane))) for lane in found]
    click.echo(table(("who", "what", "spans", "busy", "from", "to"), rows))


def _spans(lane: Lane) -> tuple[float, float, float]:
    """How long in all, from when, to when; seconds."""
    first, last = (int(lane.start.min()), int(lane.end.max())) if len(lane.start) else (0, 0)
    return seconds(int((lane.end - lane.start).sum())), seconds(first), seconds(last)


def _times(lane: Lane) -> dict[str, object]:
    busy_s, from_s, to_s = _spans(lane)
    count = len(lane.start)
    return {"who": lane.owner, "what": lane.stream, "spans": count, "busy_s": busy_s, "from_s": from_s, "to_s": to_s}
