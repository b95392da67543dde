"""The time of one collective by the packet engine, with the fluid time and the statistics of queues."""

from dataclasses import replace
from functools import partial

import numpy as np

from emu.collective.schedule import RowsError
from emu.fabric.busy_window import TimedGraph
from emu.fabric.graph import Timeline, name_tasks
from emu.fabric.lowering.graph_columns import message_name
from emu.fabric.packet_fabric import PacketFabric
from emu.fabric.run import Spread, perturb, run_graph, spread_of
from emu.study.fabric_check import FabricCheck, check_fabric, unchecked
from emu.study.fabric_run import collective_graph, collective_run
from emu.study.packet_figures import PacketFigures
from emu.study.timing import CollectiveJob


def time_packets(job: CollectiveJob, fabric: PacketFabric, launch_s: float = 0.0) -> tuple[Timeline, PacketFigures]:
    """Return the timeline of a collective by packets, which begins after the launch, and its packet figures, which include it.

    Raises:
        InputError: As `time_collective`; or the network does not fit.
        RunError: Packets wait for one another in a circle, or the budget is spent.
    """
    found = replace(collective_run(job, fabric), launch_s=launch_s)
    return found.run.timeline, found.figures


def spread_packets(job: CollectiveJob, fabric: PacketFabric, seeds: int) -> Spread | None:
    """Return the spread of the time by packets over perturbed starts, each with a seed of its own; None as in `spread_of`."""
    (graph, key, _), topology = collective_graph(job), job.topology
    ways = fabric.ways(graph, topology, key)
    ends = [fabric.run(perturb(graph, seed), topology, ways, fabric.seed + seed).timeline.end_s for seed in range(seeds)]
    return spread_of(ends, graph.n_tasks)


def check_collective(job: CollectiveJob, fabric: PacketFabric) -> FabricCheck:
    """Return the check of a collective's fluid time by packets, as `check_fabric` returns it."""
    try:
        graph, key, schedule = collective_graph(job)
    except RowsError as error:
        return unchecked(fabric.network.kind, str(error))
    with name_tasks(job.name, partial(message_name, schedule, graph)):
        timeline = run_graph(graph)
        source = TimedGraph(graph.on_ways(timeline.way), timeline, key, np.zeros(graph.n_tasks, np.int64))
    return check_fabric(source, job.topology, fabric, lambda _: job.name)
