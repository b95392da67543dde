"""Colour refinement: tasks and links that behave alike get equal hashes; different ones can collide by chance.

Colours are hashes of 64 bits. The colours of tasks follow from the colours of links in one pass in the order of predecessors,
so that only the colours of links need rounds (Paige & Tarjan 1987 find the same partition by splitting). Letters: V tasks, L
links.
"""

from math import isqrt
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from emu.arrays import F64, I32, I64, ascending, column
from emu.compiled.function import OUT, compiled
from emu.fabric.engine.state_layout import Columns

U64 = NDArray[np.uint64]
U64_OUT = Annotated[U64, OUT]

MAX_ROUNDS = 12  # a round takes some hundredths of the solver's time
_ALL_COUNTED = 2**14  # above this number of tasks, the number of colours is estimated
_FEW_PAIRS = 64  # half the number of pairs in a sample where every colour has two tasks

_GAMMA, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ENDED, _LEFT = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA3B195354A39B70D)


@compiled
def _mix(x: np.uint64) -> np.uint64:
    """Return a number under a fixed permutation of the 64-bit numbers that looks random (splitmix64.

    Steele, Lea, Flood 2014).
    """
    x += _GAMMA
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


@compiled
def _colour_alone(g: Columns, own: U64_OUT, link: U64_OUT) -> None:
    """Write the initial colours of tasks and links, which depend on their own values only.

    Args:
        g: The columns of the graph.
        own: [V] the array for the colours of tasks.
        link: [L] the array for the colours of links; before, it has the bits of their capacities.
    """
    for k in range(len(link)):
        link[k] = _mix(link[k])
    for v in range(len(own)):
        own[v] = _mix(_mix(_mix(np.uint64(g.size[v])) + np.uint64(g.alpha[v])) + np.uint64(g.ready[v]))


@compiled
def _colour(g: Columns, own: U64, task: U64, link: U64, v: int) -> np.uint64:
    """Return the next colour of a task.

    Args:
        g: The columns of the graph.
        own: [V] the colour of each task without its neighbours.
        task: [V] the present colour of each task.
        link: [L] the present colour of each link.
        v: The number of the task.
    """
    x = own[v]
    for h in range(g.hop_start[v], g.hop_start[v + 1]):
        x += link[g.hop_link[h]]
    for i in range(g.pred_start[v], g.pred_start[v + 1]):
        x += task[g.pred[i]] * (_LEFT if g.pred_left[i] else _ENDED)
    return np.uint64(_mix(x))


@compiled
def _round(g: Columns, order: I32, own: U64, task: U64_OUT, link: U64_OUT, load: U64_OUT) -> None:
    """Do one round of refinement: compute the next colours of all tasks, then of all links from the tasks on them.

    Args:
        g: The columns of the graph.
        order: The tasks with predecessors first; empty: the order of their numbers.
        own: [V] the colour of each task without its neighbours.
        task: [V] the colour of each task.
        link: [L] the colour of each link.
        load: [L] a working array.
    """
    load[:] = np.uint64(0)
    for i in range(len(task)):
        v = order[i] if len(order) > 0 else i
        x = _colour(g, own, task, link, v)
        task[v] = x
        for h in range(g.hop_start[v], g.hop_start[v + 1]):
            load[g.hop_link[h]] += x * np.uint64(g.hop_weight[h])
    for k in range(len(link)):
        link[k] = _mix(_mix(link[k]) + load[k])


@compiled
def _colour_sample(g: Columns, own: U64, task: U64, link: U64, some: I64, colour: U64_OUT) -> None:
    """Write the next colour of each given task, computed from the present colours of its links and predecessors.

    Args:
        g: The columns of the graph.
        own: [V] the colour of each task without its neighbours.
        task: [V] the present colour of each task.
        link: [L] the present colour of each link.
        some: [n] the numbers of the tasks.
        colour: [n] the array that the colours are written to.
    """
    for i in range(len(some)):
        colour[i] = _colour(g, own, task, link, some[i])


def refine(g: Columns, capacity: F64, order: I32) -> tuple[U64, U64] | None:
    """Return stable colours of tasks [V] and links [L]; None if too few colours are equal for a quotient to help.

    Two tasks have equal colours if their values, their predecessors and their links have equal colours; two links if the tasks
    on them have. No further round would divide a colour, and the partition is the coarsest of this kind.

    Args:
        g: The columns of the graph.
        capacity: [L] the bandwidth of each link.
        order: The tasks with predecessors first; empty: the order of their numbers.
    """
    link = column(capacity, np.float64).view(np.uint64).copy()
    own, task, load = np.empty(len(g.size), np.uint64), np.empty(len(g.size), np.uint64), np.empty_like(link)
    _colour_alone(g, own, link)
    if _are_many(own):
        return None
    n = len(ascending(link))
    for _ in range(MAX_ROUNDS):
        _round(g, order, own, task, link, load)
        before, n = n, len(ascending(link))
        if _are_many(task):
            return None
        if n == before:  # links are only told apart further, never less: this is the same partition of them, so of tasks
            return task, link
        if _will_be_many(g, own, task, link):
            return None
    return None


def _are_many(colour: U64) -> bool:
    """Return whether there are more than half as many colours as tasks, so that a quotient would not help.

    If there are many tasks, only one colour in 64 is counted.
    """
    share = 1 if len(colour) < _ALL_COUNTED else 64
    return 2 * share * len(ascending(colour[colour & np.uint64(share - 1) == 0])) > len(colour)


def _will_be_many(g: Columns, own: U64, task: U64, link: U64) -> bool:
    """Return whether a sample of tasks predicts too many colours in the next round, which can then be skipped.

    A sample of 16 sqrt(V) of V tasks has 128 pairs of equal colours if every colour has two tasks.
    """
    n = len(task)
    if n < _ALL_COUNTED:
        return False
    some = np.random.default_rng(0).choice(n, 16 * isqrt(n), replace=False, shuffle=False)
    colour = np.empty(len(some), np.uint64)
    _colour_sample(g, own, task, link, some, colour)
    return len(some) - len(ascending(colour)) < _FEW_PAIRS
