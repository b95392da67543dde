"""The exact quotient of a graph by its symmetry: one task and one link stand for all that behave alike.

Tasks form a class if they agree on size, alpha, ready, and the classes of their links and predecessors. Links form a class if
they agree on capacity and on the number of tasks of each class that cross them. By induction over events, the rates of a class
are equal at every instant. They equal those of a graph with one task for each class and one link for each class, where a hop
weighs as many tasks as cross one link. The solver only counts tasks (R1), so that every bit is the same. Classes are guessed by
hashes, then verified by values.
"""

import numpy as np

from emu.arrays import I32
from emu.errors import InputError
from emu.fabric.engine.quotient.merge import Quotient, merge
from emu.fabric.engine.quotient.refine import refine
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.state_layout import columns
from emu.fabric.engine.sweep import sweep
from emu.fabric.graph import Graph
from emu.fabric.timeline import Timeline

_AS_THEY_STAND = np.empty(0, np.int32)


def quotient(graph: Graph, order: I32) -> Timeline | None:
    """Return the timeline of a checked graph, timed by its symmetry; None if it has too little symmetry.

    The tasks are taken in `order` (empty: as they stand).
    """
    small = _quotient_of(graph, order)
    timed = None if small is None else _time_quotient(small.graph)
    if small is None or timed is None:
        return None
    start, left, end = (times[small.task] for times in (timed.start_fs, timed.left_fs, timed.end_fs))
    # Sums of bytes are floats, and so the same in any order up to 2**53 bytes.
    return Timeline(start, left, end, timed.carried_bytes[small.link], "quotient")


def _quotient_of(graph: Graph, order: I32) -> Quotient | None:
    """Return the quotient of a graph. Its colours, as large as a column of times, are freed before there are times."""
    colours = refine(columns(graph), graph.capacity_Bps, order)
    return None if colours is None else merge(graph, order, *colours)


def _time_quotient(graph: Graph) -> Timeline | None:
    """Return the timeline of a quotient; None where a task ends beyond the clock, so that the solver can name that task."""
    swept = sweep(graph, _AS_THEY_STAND)
    if swept is not None:
        return swept
    state = State(graph.capacity_Bps)
    try:
        state.admit(graph)
        state.advance()
        return state.timeline()
    except InputError:
        return None
