"""The one entry to the engine: a graph in, a timeline out. The entry picks the method: sweep, quotient or solver."""

from collections.abc import Iterable
from typing import NamedTuple

from emu.fabric.engine.graph_check import check_graph, order_tasks
from emu.fabric.engine.quotient.quotient import quotient
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.sweep import sweep
from emu.fabric.graph import Graph
from emu.fabric.timeline import Timeline


class CapacityEvent(NamedTuple):
    """A change of a link: from `time_fs` on, `link` has `capacity_Bps`; with 0 nothing flows."""

    link: int
    time_fs: int
    capacity_Bps: float


def run(graph: Graph, capacity_events: Iterable[CapacityEvent] = ()) -> Timeline:
    """Return the timeline of a graph.

    Raises:
        InputError: The graph or an event is invalid, or a task ends beyond the clock (9223 s).
        RunError: A task never leaves, because a link lost its capacity for good.
    """
    check_graph(graph)
    in_order, events = order_tasks(graph), tuple(capacity_events)
    shorter = None if events else sweep(graph, in_order) or quotient(graph, in_order)
    if shorter is not None:
        return shorter
    state = State(graph.capacity_Bps)
    for event in events:
        state.set_capacity(*event)
    state.admit(graph)
    state.advance()
    return state.timeline()
