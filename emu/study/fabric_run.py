"""A run by packets that is looked at port by port: queues over time, pauses and who blocks whom, beside the fluid times."""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from emu.arrays import I64
from emu.collective.schedule import Schedule
from emu.fabric.busy_window import late_starts, packet_ticks
from emu.fabric.engine.packets.packet_run import PacketRun
from emu.fabric.engine.packets.ways import Ways, message_ends
from emu.fabric.graph import Graph, Timeline, name_tasks
from emu.fabric.lower import expanded_schedule, lower
from emu.fabric.lowering.classes import Joins
from emu.fabric.lowering.graph_columns import message_name
from emu.fabric.packet_fabric import PacketFabric
from emu.fabric.run import run_graph
from emu.study.packet_figures import PacketFigures, blocked_fs, figures_of, port_name
from emu.study.pause_tree import HeldMessage, PauseCauses, held_messages, pause_causes
from emu.study.timing import CollectiveJob
from emu.topology.topology import Topology
from emu.trace.replay.packet_replay import PacketReplay
from emu.units import format_size, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PortUse:
    """The queue of a port in a run by packets; a lane of it where it has several."""

    port: str
    most_bytes: int  # that waited in it at one time
    pauses: int
    paused_s: float
    blocked_s: float  # seconds of all pauses of others that its packets caused


@dataclass(frozen=True, eq=False)
class FabricRun:
    """A run by packets with its graph, and the times of the same graph in the fluid fabric."""

    name: str  # of what ran
    topology: Topology
    fabric: PacketFabric
    graph: Graph
    ways: Ways
    run: PacketRun
    fluid: Timeline
    assumptions: tuple[str, ...]  # sentences on which its times rest
    launch_s: float = 0.0  # that each rank takes before it enters a collective; the timelines begin after it
    chosen: str = ""  # by a library, in its own words

    @property
    def time_s(self) -> float:
        """The time of the whole run in seconds."""
        return self.launch_s + self.run.timeline.end_s

    @cached_property
    def figures(self) -> PacketFigures:
        """The figures of the run beside its time."""
        return figures_of(self.run, self.fabric, self.topology, self.launch_s + self.fluid.end_s)

    @cached_property
    def causes(self) -> PauseCauses:
        """The pauses with their causes; none where the network does not pause."""
        return pause_causes(self.run, self.topology, self.fabric.network.pause_above_bytes)

    def port(self, queue: int) -> str:
        """Return the name of the port of a queue."""
        return port_name(self.topology, queue, self.run.lanes)

    def held(self, root: int) -> list[HeldMessage]:
        """Return the messages that the tree of a full port held up, although they do not cross it.

        None are known where packets of a message take several paths.
        """
        if self.fabric.network.route != "hash":
            return []
        hop_queue = np.asarray(self.ways.step[: len(self.graph.hop_link)] >> 1, np.int64)
        return held_messages(self.causes, root, self.run, self.graph, hop_queue, self.fluid)

    def perturbed(self, seed: int) -> "FabricRun":
        """Return the run with a seed of its own, in which tasks that wait for nothing start up to a packet's time later."""
        late = late_starts(self.graph, seed, packet_ticks(self.graph, self.fabric.network))
        return replace(self, run=self.fabric.run(late, self.topology, self.ways, self.fabric.seed + seed))

    def message(self, task: int) -> str:
        """Return a message in words, such as `4 MiB from NPU 9 to NPU 12`."""
        src, dst = (self.topology.node_name(int(end[task])) for end in self._ends)
        return f"{format_size(int(self.graph.size_bytes[task]))} from {src} to {dst}"

    @cached_property
    def _ends(self) -> tuple[I64, ...]:
        """The nodes at which each task begins and ends."""
        return message_ends(self.graph, self.topology.links)

    def ports(self) -> tuple[PortUse, ...]:
        """Return the ports in which something waited, those that held the most bytes first."""
        run, most = self.run, self.run.queue_bytes.max(axis=0, initial=0)
        pauses = np.bincount(run.pauses[:, 0], minlength=len(most))
        blocked = blocked_fs(run)
        return tuple(
            PortUse(
                port=self.port(queue),
                most_bytes=int(most[queue]),
                pauses=int(pauses[queue]),
                paused_s=seconds(int(run.paused_fs[queue])),
                blocked_s=seconds(int(blocked[queue])),
            )
            for queue in run.fullest(int(np.count_nonzero(most))).tolist()
        )


def collective_run(job: CollectiveJob, fabric: PacketFabric) -> FabricRun:
    """Return the run of a collective by packets.

    Raises:
        InputError: As `time_collective`; or the network does not fit.
        RunError: Packets wait for one another in a circle, or the budget is spent.
    """
    graph, key, schedule = collective_graph(job)
    with name_tasks(job.name, partial(message_name, schedule, graph)):
        ways = fabric.ways(graph, job.topology, key)
        run = fabric.run(graph, job.topology, ways)
        assumed = (*job.topology.assumptions, *fabric.assumptions)
        return FabricRun(job.name, job.topology, fabric, graph, ways, run, run_graph(graph), assumed)


def collective_graph(job: CollectiveJob) -> tuple[Graph, I64, Schedule]:
    """Return the graph of a collective, a task for each message, with [V] the keys of their routes, and its schedule."""
    placed = job.on_fabric()
    with job.name_even_sizes():
        full = expanded_schedule(placed, "packets of every rank are simulated", "leave the packets out")
        piece = lower(replace(placed, schedule=full), Joins.NONE)
    return piece.graph, piece.route_keys, full


def trace_run(name: str, replay: PacketReplay, assumptions: tuple[str, ...]) -> FabricRun:
    """Return the run of all steps of a trace by packets; the errors are those of `PacketReplay.run`.

    Args:
        name: The name of the trace.
        replay: The trace on its topology and its packets.
        assumptions: Sentences on which its times rest.
    """
    run, graph = replay.run(), replay.replayed.graph
    topology, ways = replay.layout.topology, replay.possible_paths
    return FabricRun(name, topology, replay.fabric, graph, ways, run, run_graph(graph), assumptions)
