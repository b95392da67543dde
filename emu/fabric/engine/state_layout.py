"""The layout of the solver's state: one record for each task, one for each link, and arrays of indices.

Letters: V tasks, L links, H hops, E predecessor edges. Rates are in bytes per tick of 1 fs.
"""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.arrays import I32, I64, Bool, column
from emu.compiled.function import F64_OUT, I32_OUT, I64_OUT, OUT, Numbers
from emu.fabric.graph import Graph
from emu.units import MAX_TICKS

READY, FLOWING, IN_TRIAL, LEFT = range(-4, 0)  # state of a task that waits for no other
OPENED, FRESH, FLOWS, LEVELS, EVENTS, STARTS, LATE = range(7)  # indices of `scalars`: how many of each there are,
NOW, TRIAL, TOO_LATE, N_SCALARS = range(7, 11)  # the time, a counter, and a task that ends beyond the clock or -1
KEPT = 16  # number of rounds that a link keeps
LINE = 64  # bytes of a cache line
NEVER = MAX_TICKS

_PREDECESSORS = ("pred_start", "pred", "pred_left")

U32 = NDArray[np.uint32]  # what is often an index has no sign, which would be looked at each time
U32_OUT = Annotated[U32, OUT]

LINK = np.dtype(  # of two cache lines the first is what a flow that crosses it reads and writes
    [
        ("capacity", "f8"),
        ("load", "f8"),  # sum of rates, up to rounding, infinite if it is saturated: no result may depend on it
        ("used", "f8"),  # by flows frozen in rounds before `round`
        ("round", "f8"),  # rate of the last round that froze a flow of it
        ("best", "f8"),  # its level before `round`
        ("n_frozen", "i8"),  # weights, in `round`
        ("n_unfrozen", "i8"),  # weights not yet frozen
        ("opened_in", "i8"),  # the last trial that solved it anew
        ("level", "f8"),  # rate at which it saturated; infinite: it did not
        ("new_level", "f8"),  # in the current trial
        ("rise", "f8"),  # its old level, as long as the trial has not passed that
        ("n_flowing", "i8"),  # weights
        ("next_left", "i8"),  # when the first of the flows it limits will have left
        ("first", "i8"),  # of its part of `members`
        ("length", "i4"),
        ("n_others", "i4"),  # those in front that were slower when the trial opened it
        ("staying", "i4"),  # the first, by `next`, of the flows that it limits and that wait in the trial; -1: none
        ("n_kept", "i4"),  # rounds in `kept_rate` and `kept_weight`, in ascending order
    ],
    align=True,
)
TASK = np.dtype(  # a cache line
    [
        ("start", "i8"),  # not before this, then the start
        ("left", "i8"),  # expected, then true
        ("since", "i8"),  # when `remaining` was true
        ("remaining", "f8"),
        ("rate", "f8"),
        ("new_rate", "f8"),  # below 0: in the trial, and not yet frozen
        ("state", "i4"),  # the number of predecessors it waits for while above 0; later READY, FLOWING, IN_TRIAL or LEFT
        ("next", "i4"),  # with the same start, staying with the same link, or in the list of tasks that have left
        ("limit", "i4"),  # the link that limits it
        ("new_limit", "i4"),
    ],
    align=True,
)
TASKS = Annotated[NDArray[np.void], Numbers(TASK, written=True)]
LINKS = Annotated[NDArray[np.void], Numbers(LINK, written=True)]


class Columns(NamedTuple):
    """The columns of a graph in the form that compiled code reads, named without units."""

    size: I64  # [V]
    alpha: I64  # [V]
    ready: I64  # [V]
    hop_start: I64  # [V + 1]
    hop_end: I64  # [V] where the hops of each task end; the next ones need not begin there where messages choose their way
    hop_link: U32  # [H]
    hop_weight: I32  # [H]
    pred_start: I64  # [V + 1]
    pred: I32  # [E]
    pred_left: Bool  # [E]


class WayColumns(NamedTuple):
    """The ways among which messages choose, and what the choices are made from; empty arrays if no message chooses.

    The first three arrays that are written are columns of the graph, which reads them: a choice sets them for its message.
    """

    hop_start: I64_OUT  # [V]
    hop_end: I64_OUT  # [V]
    alpha: I64_OUT  # [V]
    chosen: I32_OUT  # [V] the way that each message took, -1 before
    set_of: I32  # [V] the set of ways of each message; -1: it has one way
    set_start: I64  # [S + 1] where the ways of each set begin
    way_start: I64  # [W + 1] where the hops of each way begin in `hop_link`
    way_alpha: I64  # [W]
    to_send: F64_OUT  # [L] bytes that messages still have to send over each link, at a tick
    known_at: I64_OUT  # [L] that tick


class SolverArrays(NamedTuple):
    """The arrays of the solver's state, which the compiled functions share: tasks, links, and heaps of rates and of events.

    A link is *opened* if the rates of its flows are to be solved again.
    """

    tasks: TASKS  # [V]
    links: LINKS  # [L]
    graph: Columns
    ways: WayColumns
    next_start: I64  # [V + 1]
    next_task: I32  # [E] who waits; ~v: only until the last byte has left
    members: U32_OUT  # [H] by link: tasks that started to flow on it; some may have left since
    floor: F64_OUT  # [1] no rate below this changes in this step
    opened: I32_OUT  # [L] links whose rates are to be solved
    late: I32_OUT  # [L] links that were opened too late
    fresh: I32_OUT  # [V] flows that start now
    flows: I32_OUT  # [V] the flows that start now, and the flows on opened links
    level_key: F64_OUT  # [2 L] heap of levels
    level_node: I32_OUT  # [2 L] an opened link; or ~k for a link k that is not opened but limits flows of the trial
    frozen_rate: F64_OUT  # [V] heap of the rates of what is frozen already on a link that is being opened
    frozen_weight: I32_OUT  # [V]
    kept_rate: F64_OUT  # [L * KEPT] by link: its rounds when it was last solved
    kept_weight: I64_OUT  # [L * KEPT]
    event_time: I64_OUT  # [L] heap of links by `next_left`
    event_link: I32_OUT  # [L]
    event_place: I32_OUT  # [L] of each link in that heap; -1: not there
    start_time: I64_OUT  # [V] heap of starts
    start_task: I32_OUT  # [V] the first of the tasks with one start
    recent: I32_OUT  # [64] tasks last put into that heap
    scalars: I64_OUT  # [N_SCALARS] the counts, the time and the flags at the indices above


def columns(graph: Graph) -> Columns:
    """Return the columns of a graph in the form that compiled code needs: contiguous and read-only."""
    names = ("size_bytes", "alpha_fs", "ready_fs", "hop_start", "hop_start", "hop_link", "hop_weight", *_PREDECESSORS)
    taken = Columns(*(column(c, c.dtype.type) for c in (getattr(graph, name) for name in names)))
    return taken._replace(hop_end=taken.hop_start[1:], hop_link=taken.hop_link.view(np.uint32))


def way_columns(graph: Graph, g: Columns) -> tuple[Columns, WayColumns]:
    """Return the columns of a graph with those of the ways among which its messages choose.

    Args:
        graph: The graph.
        g: Its columns; if messages choose, the links of all ways follow on those of the hops.
    """
    n, ways = graph.n_tasks, graph.ways
    if ways is None:
        none, whole = np.zeros(0, np.int64), np.zeros(0, np.int32)
        empty = column(none, np.int64)
        return g, WayColumns(none, none, none, whole, column(whole, np.int32), empty, empty, empty, np.zeros(0), none)
    start, end, alpha = graph.hop_start[:-1].copy(), graph.hop_start[1:].copy(), graph.alpha_fs.copy()
    link = np.concatenate((graph.hop_link, ways.link))
    weight = np.concatenate((graph.hop_weight, np.ones(len(ways.link), np.int32)))
    own = column(ways.way_start + len(graph.hop_link), np.int64)
    chosen, before = np.full(n, -1, np.int32), np.full(graph.n_links, -1)
    put = WayColumns(
        start, end, alpha, chosen, ways.set_of, ways.set_start, own, ways.alpha_fs, np.zeros(graph.n_links), before
    )
    seen = g._replace(hop_start=column(start, np.int64), hop_end=column(end, np.int64), alpha=column(alpha, np.int64))
    return seen._replace(hop_link=column(link, np.int32).view(np.uint32), hop_weight=column(weight, np.int32)), put


def align_records(n: int, kind: np.dtype[np.void]) -> NDArray[np.void]:
    """Return `n` records of zeros in memory that begins at a cache line."""
    room = np.zeros(n * kind.itemsize + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    return room[first : first + n * kind.itemsize].view(kind)
