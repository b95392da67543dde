"""The HTML page of `emu show fabric-run`: queues and pauses over time on the topology, who blocks whom, and all ports."""

from collections.abc import Iterator, Sequence

from emu.study.fabric_run import FabricRun, PortUse
from emu.units import format_size, format_time
from launch.show.blocks import Block, KeyFigure, Page, Section, sentences, table_block
from launch.show.chart.queue_chart import queue_figure
from launch.show.html.page import picture_block
from launch.show.html.queue_map import queue_map
from launch.show.text.packet_lines import beside_fluid, waits_of_packets
from launch.show.text.queue_report import chosen_lines, pause_lines, port_columns, unpaused
from launch.show.topology_picture import MOST_NODES

_OVER_TIME = "The slider moves through the run; an end of a cable is the port of the node beside it."
_PICTURE = "The bytes that wait in the fullest ports, the pauses of links, and the trees of these."


def queue_page(found: FabricRun, ports: Sequence[PortUse]) -> Page:
    """Return the page of a run by packets.

    Args:
        found: The run.
        ports: Its ports in which something waited.
    """
    title = f"{found.name} by packets of {found.fabric.network.kind}"
    return Page(title, found.topology.name, list(_figures(found)), list(_sections(found, ports)))


def _figures(found: FabricRun) -> Iterator[KeyFigure]:
    """Yield the key figures: times, the fullest port and the pauses."""
    figures, time_s = found.figures, found.time_s
    ratio = time_s / figures.fluid_s if figures.fluid_s else 1.0
    yield KeyFigure("time_s", "by packets", format_time(time_s), time_s, f"{ratio:.3f} of the fluid fabric's")
    yield KeyFigure("fluid_s", "fluid", format_time(figures.fluid_s), figures.fluid_s)
    for port in figures.fullest[:1]:
        yield KeyFigure("most_bytes", "fullest port", format_size(port.most_bytes), port.most_bytes, port.port)
    yield KeyFigure("pauses", "pauses", f"{figures.pauses:,}", figures.pauses, unpaused(found))
    if figures.pauses:
        yield KeyFigure("paused_s", "longest paused", format_time(figures.paused_s), figures.paused_s, "all pauses of one link")


def _sections(found: FabricRun, ports: Sequence[PortUse]) -> Iterator[Section]:
    """Yield all sections of the page."""
    if found.topology.n_nodes <= MOST_NODES:
        yield Section("Over time", (queue_map(found),), _OVER_TIME)
    else:
        n = found.topology.n_nodes
        yield Section("Over time", (sentences((f"{n:,} nodes are too many to draw: at most {MOST_NODES} are drawn",)),))
    yield Section("Queues, pauses, and who blocks whom", (picture_block(queue_figure(found), _PICTURE), *_words(found)))
    yield Section("Ports", (table_block(port_columns(), ports),), "Those in which the most bytes waited come first.")
    yield Section("Assumed", (sentences(found.assumptions),))


def _words(found: FabricRun) -> tuple[Block, ...]:
    """Return the time beside the fluid one, where packets waited and the trees of pauses as text, to be copied."""
    first = (beside_fluid(found.time_s, found.figures), *chosen_lines(found))
    lines = [*first, *waits_of_packets(found.figures), "", *pause_lines(found)]
    return (Block(template="verbatim.html", text="\n".join(lines)),)
