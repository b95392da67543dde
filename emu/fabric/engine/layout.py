"""How the solver lays out its state: a record a task, a record a link, and index arrays.

V tasks, L links, H hops, E predecessor edges. Rates are bytes per tick of 1 fs.
"""

from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import boolean, float64, from_dtype, int32, int64, njit
from numpy.typing import NDArray

from emu.arrays import F64, I32, I64, Bool, column
from emu.fabric.graph import Graph
from emu.units import MAX_TICKS

WAITING, READY, FLOWING, LEFT = range(4)  # status of a task
OPENED, FRESH, FLOWS, LEVELS, EVENTS, STARTS, TOUCHED = range(7)  # places in `reg`: how many of each there are,
NOW, TRIAL, TOO_LATE, AGAIN = range(7, 11)  # the time, a counter, a task that ends beyond the clock or -1, and how
N_REG = 11  # many links were open when it turned out that one had to be so from the start, or 0
NEVER = MAX_TICKS

LINK = np.dtype(
    [
        ("capacity", "f8"),
        ("level", "f8"),  # rate at which it saturated; infinite: it did not
        ("new_level", "f8"),  # in the current trial
        ("rise", "f8"),  # its old level, as long as the trial has not passed that
        ("load", "f8"),  # sum of rates, up to rounding: no result may depend on it
        ("tried", "f8"),  # load in the current trial
        ("used", "f8"),  # by flows frozen in rounds before `round`
        ("round", "f8"),  # rate of the last round that froze a flow of it
        ("best", "f8"),  # its level before `round`
        ("n_flowing", "i8"),  # these three count weights
        ("n_frozen", "i8"),  # in `round`
        ("n_left", "i8"),  # not yet frozen
        ("next_left", "i8"),  # when the first of the flows it limits will have left
        ("opened_in", "i8"),  # the last trial that solved it anew
        ("tried_in", "i8"),  # the last trial that loaded it
        ("first", "i8"),  # of its part of `members`
        ("length", "i4"),
        ("place", "i4"),  # in the heap of events; -1: not there
    ],
    align=True,
)
TASK = np.dtype(
    [
        ("start", "i8"),  # not before this, then the start
        ("left", "i8"),  # expected, then true
        ("since", "i8"),  # when `remaining` was true
        ("remaining", "f8"),
        ("rate", "f8"),
        ("new_rate", "f8"),  # below 0: in the trial, and not yet frozen
        ("trial", "i8"),  # the last that it took part in
        ("waits", "i4"),  # predecessors that have not left
        ("next", "i4"),  # with the same start, or in the queue of releases
        ("limit", "i4"),  # the link that limits it
        ("new_limit", "i4"),
        ("status", "i1"),
    ],
    align=True,
)


class Columns(NamedTuple):
    """What of a Graph the compiled code reads, under the same names without units."""

    size: I64  # [V]
    alpha: I64  # [V]
    ready: I64  # [V]
    hop_start: I64  # [V + 1]
    hop_link: I32  # [H]
    hop_weight: I32  # [H]
    pred_start: I64  # [V + 1]
    pred: I32  # [E]
    pred_left: Bool  # [E]


class Engine(NamedTuple):
    """All arrays of the solver."""

    tasks: NDArray[np.void]  # [V]
    links: NDArray[np.void]  # [L]
    graph: Columns
    next_start: I64  # [V + 1]
    next_task: I32  # [E] who waits; ~v: only until the body has left
    members: I32  # [H] by link: what started to flow, and maybe has left since
    floor: F64  # [1] no rate below this changes in this step
    opened: I32  # [L] links whose rates are to be solved
    touched: I32  # [L] other links crossed by a changed flow
    fresh: I32  # [V] flows that start now
    flows: I32  # [V] those, and the flows on opened links
    level_key: F64  # [L + V] heap of levels
    level_node: I32  # [L + V] a link, or ~v: a flow limited by a link that is not open
    frozen_rate: F64  # [V] heap of the rates of what is frozen already on a link that is being opened
    frozen_weight: I32  # [V]
    event_time: I64  # [L] heap of links by `next_left`
    event_link: I32  # [L]
    start_time: I64  # [V] heap of starts
    start_task: I32  # [V] the first of the tasks with one start
    recent: I32  # [64] tasks last put into that heap
    reg: I64  # the scalars


types: Any = numba.types  # numba leaves it untyped

# Without reference counts (no function so compiled may make an array): passing this many arrays would cost ten times the work.
compiled: Any = partial(njit, cache=True, _nrt=False)
inlined: Any = partial(compiled, forceinline=True)  # for the same reason: a call that stays one costs ten times its work

I64_IN, I32_IN, BOOL_IN, F64_IN = (types.Array(kind, 1, "C", readonly=True) for kind in (int64, int32, boolean, float64))
I64_OUT, I32_OUT, BOOL_OUT, F64_OUT = int64[::1], int32[::1], boolean[::1], float64[::1]
TASKS, LINKS = from_dtype(TASK)[::1], from_dtype(LINK)[::1]
COLUMNS = types.NamedTuple((I64_IN,) * 4 + (I32_IN,) * 2 + (I64_IN, I32_IN, BOOL_IN), Columns)
_LISTS = (I32_OUT, F64_OUT, I32_OUT, I32_OUT, I32_OUT, I32_OUT)
_HEAPS = (F64_OUT, I32_OUT, F64_OUT, I32_OUT, I64_OUT, I32_OUT, I64_OUT, I32_OUT)
ENGINE = types.NamedTuple((TASKS, LINKS, COLUMNS, I64_IN, I32_IN, *_LISTS, *_HEAPS, I32_OUT, I64_OUT), Engine)


def columns(graph: Graph) -> Columns:
    """The columns of a graph as the compiled code takes them: contiguous, and not to be written."""
    names = ("size_bytes", "alpha_fs", "ready_fs", "hop_start", "hop_link", "hop_weight", "pred_start", "pred", "pred_left")
    return Columns(*(column(c, c.dtype.type) for c in (getattr(graph, name) for name in names)))
