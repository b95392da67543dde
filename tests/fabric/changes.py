"""A graph on links whose capacity changes while it runs, as the solver alone times it."""

from collections.abc import Iterable
from typing import NamedTuple

from emu.fabric.engine.solver.state import State
from emu.fabric.graph import Graph, Timeline


class CapacityEvent(NamedTuple):
    """A change of a link: from `time_fs` on, `link` has `capacity_Bps`; with 0 nothing flows."""

    link: int
    time_fs: int
    capacity_Bps: float


def solved(graph: Graph, events: Iterable[CapacityEvent] = ()) -> Timeline:
    state = State(graph.capacity_Bps)
    for event in events:
        state.set_capacity(*event)
    state.add(graph)
    state.advance()
    return state.timeline()
