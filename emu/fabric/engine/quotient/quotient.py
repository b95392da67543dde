"""The exact quotient of a graph by its symmetry: one task stands for all that behave alike, one link for all that carry alike.

Tasks form a class if they agree on size, alpha, ready, and the classes of their links and predecessors; links, if they agree on
capacity and on how many tasks of each class cross them. By induction over events, then, the rates of a class are equal at every
instant, and those of the graph with one task a class and one link a class, where a hop weighs as many tasks as cross one link:
the solver only counts them (R1), so not a bit differs. Classes are guessed by hashes, then verified by values.
"""

import numpy as np

from emu.arrays import I32
from emu.errors import InputError
from emu.fabric.engine.layout import columns
from emu.fabric.engine.quotient.merge import Quotient, merge
from emu.fabric.engine.quotient.refine import refine
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.sweep import sweep
from emu.fabric.graph import Graph
from emu.fabric.timeline import Timeline

_AS_THEY_STAND = np.empty(0, np.int32)


def quotient(graph: Graph, order: I32) -> Timeline | None:
    """Time a checked graph, its tasks taken in `order` (empty: as they stand), by its symmetry; None if it has too little."""
    small = _merged(graph, order)
    timed = None if small is None else _timed(small.graph)
    if small is None or timed is None:
        return None
    start, left, end = (times[small.task] for times in (timed.start_fs, timed.left_fs, timed.end_fs))
    # Sums of bytes are floats, and so the same in any order up to 2**53 bytes.
    return Timeline(start, left, end, timed.carried_bytes[small.link], "quotient")


def _merged(graph: Graph, order: I32) -> Quotient | None:
    """The quotient of a graph; its colours, as large as a column of times, are forgotten before there are times."""
    colours = refine(columns(graph), graph.capacity_Bps, order)
    return None if colours is None else merge(graph, order, *colours)


def _timed(graph: Graph) -> Timeline | None:
    """The timeline of a quotient; None where a task ends beyond the clock: the solver names which."""
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
