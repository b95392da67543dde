"""The command `emu show`: a topology, a collective or a timeline as text or picture."""

from dataclasses import asdict
from pathlib import Path

import click

from emu.collective.algorithm import algorithm as find_algorithm
from emu.collective.msccl.xml_format import to_xml
from emu.collective.operation import operation as find_operation
from emu.collective.shape import Shape, ranks_of, show_shape
from emu.errors import must_be
from emu.files import write_file
from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import summary
from emu.trace.trace_file import load
from emu.units import format_time, seconds
from launch.cli.options import common
from launch.cli.options.files import OutputFile, print_text, write_output, write_png
from launch.cli.options.output import print_json, print_result
from launch.cli.options.view_options import timeline_options
from launch.front.inputs import calls_of, topologies_of
from launch.front.replays import timed_replays
from launch.front.steps import write_timeline
from launch.front.trace_timing import TraceTiming, algorithms_of_replay
from launch.show.lanes import Lane, lanes
from launch.show.text.proof_table import MOST_RANKS, round_lines
from launch.show.text.table import table
from launch.show.text.topology_facts import find_node, link_classes, routes_as_json, routes_table, topology_rows

_SHOWN_RANKS = 8
_DIMS_HELP = "The shape of the grid, for an algorithm on a grid. 4x4:0-7 takes its ranks 0 to 7."


@click.group("show")
def show_command() -> None:
    """Show a topology, a collective or a timeline, as text or as a picture.

    \b
    emu show topology ub-mesh:rack --png rack.png
    emu show collective all_reduce ring --ranks 4 --png ring.png
    emu show timeline ddp.trace --topology ub-mesh:board --png ddp.png
    """


@show_command.command("topology")
@click.argument("name", metavar="NAME[:VARIANT][:key=value,...]|FILE")
@click.option("--png", type=OutputFile(".png"), help="Draw the topology to this file.")
@click.option(
    "--route", nargs=2, metavar="NODE NODE", help="Show only the routes between two nodes. A node is a number or a name."
)
@common.import_option
@common.json_option
def _topology(name: str, png: Path | None, route: tuple[str, str] | None, as_json: bool) -> None:
    """Show the figures of a topology.

    These are its counts, degree, diameter, bisection and assumptions. With --png, a topology of more than 400 nodes is drawn
    as groups of nodes.

    \b
    emu show topology torus:dims=4x4,bandwidth=50GB/s,latency=500ns
    emu show topology ub-mesh:rack --png rack.png
    emu show topology own.toml --route 0 9
    """
    built = build_topology(name)
    if route is not None:
        if png is not None:
            raise must_be("show topology", "--png", "left out where --route is given", str(png), "routes are shown as text")
        ends = [find_node(built, word) for word in route]
        print_result(routes_as_json(built, *ends), lambda: routes_table(built, *ends), as_json=as_json)
        return
    facts = summary(built)
    shown = ("dimension", "name", "links", "bandwidth_Bps", "latency_s")
    tiers = [{key: getattr(each, key) for key in shown} for each in link_classes(built)]
    told = {"name": name, **asdict(facts), "tiers": tiers, "bill": built.bill, "assumptions": built.assumptions}
    rows = topology_rows(built, facts)
    print_result(told, lambda: "\n".join(f"{label:<14}{value}" for label, value in rows), as_json=as_json)
    write_png(png, "topology_picture:picture", built, facts)


@show_command.command("collective")
@click.argument("operation")
@click.argument("algorithm")
@click.option("--ranks", type=int, help="The number of ranks. [default: 8, or the product of --dims]")
@click.option("--dims", "grid", type=common.GRID, default="", help=_DIMS_HELP)
@common.default_option("--root", default=0, help="The root rank, for an operation that has one.")
@click.option("--png", type=OutputFile(".png"), help="Draw the schedule to this file.")
@click.option("--xml", type=OutputFile(".xml"), help="Write the schedule to this file as MSCCL XML, to run it on GPUs.")
@common.import_option
@common.json_option
def _collective(
    operation: str, algorithm: str, ranks: int | None, grid: Shape, root: int, png: Path | None, xml: Path | None, as_json: bool
) -> None:
    """Show what each rank sends in each round.

    `0>1 +3` means that rank 0 sends slot 3 to rank 1, which adds it.

    \b
    emu show collective all_reduce ring --ranks 4
    emu show collective all_reduce direct --ranks 8 --png direct.png
    """
    n = ranks if ranks is not None else ranks_of(grid) if grid else _SHOWN_RANKS
    found = find_algorithm(operation, algorithm)
    shape = grid or found.fit(n)  # the schedule refuses a grid that does not fit
    built = found.schedule(shape, root)
    title = f"{operation} {algorithm} on {show_shape(shape)} ranks: {built.n_rounds} rounds, {built.n_rows} slots sent"
    text = "" if xml is None else to_xml(built, find_operation(operation, n, root), algorithm)
    if as_json:
        columns = (built.round_column(), built.src, built.dst, built.slot, built.written_slot, built.reduce, built.channel)
        names = ("round", "src", "dst", "slot", "written_slot", "reduce", "channel")
        print_json([dict(zip(names, row, strict=True)) for row in zip(*(c.tolist() for c in columns), strict=True)])
    else:
        print_text("\n".join([title, *(round_lines(built) if n <= MOST_RANKS else ())]))
    write_png(png, "chart.algorithm_chart:round_figure", built, title)
    write_output(xml, lambda path: write_file("--xml", path, text.encode()))


@show_command.command("timeline")
@click.argument("trace", type=click.Path(path_type=Path))
@common.timing_options
@timeline_options
@click.option("--png", type=OutputFile(".png"), help="Draw the timeline to this file.")
@common.import_option
@common.json_option
def _timeline(
    trace: Path,
    topology: tuple[str, ...],
    device: str,
    dtype: str | None,
    algorithm: tuple[str, ...],
    stack: str,
    png: Path | None,
    timeline: Path | None,
    every_rank: bool,
    as_json: bool,
) -> None:
    """Show when ranks compute and communicate.

    The recorded trace is timed on a topology. `--png` draws the step that `emu replay` reports.

    \b
    emu show timeline ddp.trace --topology ub-mesh:board --png ddp.png
    """
    if len(topology) != 1:
        raise must_be("show timeline", "--topology", "given once", len(topology), "one picture shows one fabric")
    calls = calls_of(stack)
    timing = TraceTiming(tuple(topologies_of(topology)), device, dtype, algorithms_of_replay(algorithm, calls), calls)
    (timed,) = timed_replays(load(trace), timing)
    found = list(lanes(timed.trace, timed.replayed, timed.timeline, timed.topology))
    step = timed.report
    title = f"step {step.step} of {trace.name} on {timed.topology.name}"
    # Before anything is printed, because it refuses too many ranks.
    write_png(png, "chart.time_chart:timeline_figure", found, title, step.began_fs, step.ended_fs)
    rows = [(lane.owner, lane.stream, str(len(lane.start)), *map(format_time, _spans(lane))) for lane in found]
    text = table(("who", "what", "spans", "busy", "from", "to"), rows)
    print_result([_times(lane) for lane in found], lambda: text, as_json=as_json)
    write_output(timeline, lambda path: write_timeline(timed, path, every_rank=every_rank))


def _spans(lane: Lane) -> tuple[float, float, float]:
    """Return the total time of a lane's spans, the begin of the first and the end of the last, in seconds."""
    first, last = (int(lane.start.min()), int(lane.end.max())) if len(lane.start) else (0, 0)
    return seconds(int((lane.end - lane.start).sum())), seconds(first), seconds(last)


def _times(lane: Lane) -> dict[str, object]:
    """Return a lane as JSON fields."""
    times = dict(zip(("busy_s", "from_s", "to_s"), _spans(lane), strict=True))
    return {"who": lane.owner, "what": lane.stream, "spans": len(lane.start), **times}
