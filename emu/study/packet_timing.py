"""The time of one collective by the packet engine, with the fluid time and the statistics of queues."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emu.arrays import I64, column
from emu.collective.schedule import Schedule
from emu.fabric.engine.packets.packet_run import PacketRun
from emu.fabric.graph import Graph, Timeline, name_tasks
from emu.fabric.lower import lower, store_rows
from emu.fabric.lowering.classes import Joins
from emu.fabric.lowering.graph_columns import message_name
from emu.fabric.packet_fabric import PacketFabric
from emu.fabric.run import Spread, perturb, run_graph
from emu.study.timing import CollectiveJob
from emu.topology.topology import CHANNELS, Topology
from emu.units import seconds

_PORTS = 3  # that are told


@dataclass(frozen=True, slots=True)
class FullPort:
    """A port and the largest number of bytes that waited in it."""

    port: str
    most_bytes: int


@dataclass(frozen=True, slots=True)
class PacketFigures:
    """The figures of a run by packets beside its time."""

    network: str
    lanes: int  # of a link
    fluid_s: float  # the time in the fluid fabric
    packet_hops: int
    events: int
    pauses: int
    paused_s: float  # of the link that was paused longest
    fullest: tuple[FullPort, ...]
    trimmed: int  # packets that found a queue full and were sent again
    disordered: int  # packets that came before one that was sent earlier
    over: int  # packets beyond the room of a queue that should not overflow; 0 where packets are trimmed


def time_packets(job: CollectiveJob, fabric: PacketFabric, launch_s: float = 0.0) -> tuple[Timeline, PacketFigures]:
    """Return the timeline of a collective by packets, and its packet figures; both times include the launch.

    Raises:
        InputError: As `time_collective`; or the network does not fit.
        RunError: Packets wait for one another in a circle, or the budget is spent.
    """
    (graph, key, schedule), topology = _graph(job), job.topology
    with name_tasks(job.name, partial(message_name, schedule, graph)):
        run = fabric.run(graph, topology, fabric.ways(graph, topology, key))
        fluid = run_graph(graph)
    return run.timeline, figures_of(run, fabric, topology, launch_s + fluid.end_s)


def spread_packets(job: CollectiveJob, fabric: PacketFabric, seeds: int) -> Spread | None:
    """Return the spread of the time by packets over perturbed starts, each with a seed of its own.

    None stands for times that differ by at most one tick for each task, as much as starts are moved.
    """
    (graph, key, _), topology = _graph(job), job.topology
    ways = fabric.ways(graph, topology, key)
    ends = [fabric.run(perturb(graph, seed), topology, ways, fabric.seed + seed).timeline.end_s for seed in range(seeds)]
    return Spread(seeds, min(ends), max(ends)) if max(ends) - min(ends) > seconds(graph.n_tasks) else None


def _graph(job: CollectiveJob) -> tuple[Graph, I64, Schedule]:
    """Return the graph of a collective, a task for each message, with [V] the keys of their routes, and its schedule."""
    placed = job.on_fabric()
    with job.name_even_sizes():
        full = store_rows(placed)
        graph = lower(replace(placed, schedule=full), Joins.NONE).graph
    return graph, column(placed.key * CHANNELS + full.channel[graph.origin], np.int64), full


def figures_of(run: PacketRun, fabric: PacketFabric, topology: Topology, fluid_s: float) -> PacketFigures:
    """Return the figures of a packet run, such as its fullest ports and its pauses."""
    lanes, links = run.lanes, topology.links
    full = [
        FullPort(
            f"{topology.call(int(links.src[q // lanes]))} to {topology.call(int(links.dst[q // lanes]))}"
            + (f" (lane {q % lanes})" if lanes > 1 else ""),
            int(run.queue_bytes[:, q].max(initial=0)),
        )
        for q in run.fullest(_PORTS).tolist()
    ]
    return PacketFigures(
        network=fabric.network.kind,
        lanes=run.lanes,
        fluid_s=fluid_s,
        packet_hops=run.n_packet_hops,
        events=run.n_events,
        pauses=run.n_pauses,
        paused_s=seconds(int(run.paused_fs.max(initial=0))),
        fullest=tuple(port for port in full if port.most_bytes),
        trimmed=run.n_trimmed,
        disordered=run.n_disordered,
        over=0 if fabric.network.lossless == "trim" else run.n_over,
    )
