"""A trace by packets: the graph of all its ranks as the fluid engine takes it, with a task for every message, and its runs.

V tasks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from emu.arrays import I64
from emu.fabric.engine.packets.packet_run import PacketRun
from emu.fabric.engine.packets.ways import Ways
from emu.fabric.graph import name_tasks
from emu.fabric.lower import LoweredSchedule
from emu.fabric.packet_fabric import PacketFabric
from emu.fabric.run import perturb
from emu.trace.replay.replay import TraceLayout
from emu.trace.replay.replay_graph import ReplayGraph, event_name


def schedules_in(replayed: ReplayGraph) -> Iterator[tuple[int, slice, LoweredSchedule]]:
    """Yield the number of each batch of calls whose collectives are messages, its tasks in the graph, and its schedule."""
    for number, (piece, first) in enumerate(zip(replayed.pieces, replayed.firsts.tolist(), strict=True)):
        if isinstance(piece, LoweredSchedule):
            yield number, slice(first, first + piece.graph.n_tasks), piece


def route_keys(replayed: ReplayGraph) -> I64:
    """Return [V] the key of the route of each message of a graph whose collectives are messages; 0 for the other tasks."""
    keys = np.zeros(replayed.graph.n_tasks, np.int64)
    for _, tasks, piece in schedules_in(replayed):
        keys[tasks] = piece.route_keys
    return keys


@dataclass(frozen=True, eq=False)
class PacketReplay:
    """A trace on a fabric of packets.

    Args:
        layout: The trace on its topology.
        fabric: The packets.
    """

    layout: TraceLayout
    fabric: PacketFabric

    @cached_property
    def replayed(self) -> ReplayGraph:
        """The graph of the trace with tasks for every rank, because packets meet on the links that really exist."""
        return self.layout.build_graph(None)

    @cached_property
    def possible_paths(self) -> Ways:
        """The paths that the packets of all messages may take, which do not depend on when messages start."""
        return self.fabric.ways(self.replayed.graph, self.layout.topology, route_keys(self.replayed))

    def run(self, perturbation: int | None = None) -> PacketRun:
        """Return the run of the trace; the errors are those of `run_packets`, and those of `TraceLayout.build_graph`.

        Args:
            perturbation: The number of a run whose starts are perturbed, with a seed of its own; None: nothing is.
        """
        graph, seed = self.replayed.graph, self.fabric.seed
        if perturbation is not None:
            graph, seed = perturb(graph, perturbation), seed + perturbation
        with name_tasks("trace", partial(event_name, self.layout.trace, self.replayed)):
            return self.fabric.run(graph, self.layout.topology, self.possible_paths, seed)
