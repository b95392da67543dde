"""The exact quotient of a graph by its symmetry, in which one task and one link stand for all that behave alike.

Tasks form a class if they agree on size, alpha, ready, and the classes of their links and predecessors. Links form a class if
they agree on capacity and on the number of tasks of each class that cross them. By induction over events, the rates of a class
are equal at every instant. They equal the rates in a graph with one task for each class and one link for each class, where the
weight of a hop is the number of tasks of the class that cross one link. The solver only counts tasks (R1), so that every bit is
the same. Classes are guessed by hashes, and then verified by comparing values.

Letters: V tasks, L links, C classes of tasks, K classes of links, H and E hops and predecessor edges of the quotient.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64
from emu.compiled.function import I32_OUT, I64_OUT, compiled
from emu.errors import InputError
from emu.fabric.engine.refine import U64, refine
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.state_layout import Columns, columns
from emu.fabric.engine.sweep import sweep
from emu.fabric.graph import Graph, Timeline

_MAX_WEIGHT = 2**31 - 1
_MAX_STEPS = 32  # steps of search for each hop and predecessor: enough unless equal tasks list theirs in different orders


class _Partition(NamedTuple):
    """A partition of tasks and links into classes, with the values that the tasks of a class have in common."""

    task: I32_OUT  # [V] class of each task; those of its predecessors have lower numbers
    link: I32_OUT  # [L] class of each link
    place: I32_OUT  # [L] number of the link within its class
    links: I64_OUT  # [K] number of links of each class
    size: I64_OUT  # [C] size of each class's tasks; likewise alpha and ready
    alpha: I64_OUT  # [C]
    ready: I64_OUT  # [C]


class _MergedGraph(NamedTuple):
    """The hops and predecessors of the quotient graph, in which one task stands for each class of tasks."""

    hop_start: I64_OUT  # [C + 1]
    hop_link: I32_OUT  # [H]
    hop_weight: I32_OUT  # [H]
    pred_start: I64_OUT  # [C + 1]
    pred: I32_OUT  # [E] 2 c + 1: until a task of class c has left; 2 c: until it has ended


class _ClassMarks(NamedTuple):
    """Working arrays for the check that the members of a class of tasks cross equal links and wait for equal tasks."""

    hop_by: I32_OUT  # [H] the last task that was found to have the hop
    pred_by: I32_OUT  # [E] the last task that was found to have the predecessor
    room: I64_OUT  # [H + 1] where the crossings of each hop begin
    crossings: I32_OUT  # by hop, then by the link's place: the weight of the tasks that cross
    steps: I64_OUT  # [1] steps of search that are left


@compiled
def _number(colour: U64, order: I32, table: I32_OUT, of: I32_OUT, first: I32_OUT) -> int:
    """Give each colour a number in the order of first occurrence, and return how many colours there are.

    Args:
        colour: [n] the colours.
        order: The order in which they are taken; empty: the order of their numbers.
        table: [2^b] zeros; a hash table with open addressing, which holds numbers + 1.
        of: [n] the array for the number of each member's colour.
        first: The array for the first member of each colour.
    """
    n, mask = 0, np.uint64(len(table) - 1)
    for i in range(len(colour)):
        v = order[i] if len(order) > 0 else i
        at = colour[v] & mask
        while table[at] > 0 and colour[first[table[at] - 1]] != colour[v]:
            at = (at + np.uint64(1)) & mask
        if table[at] == 0:
            first[n] = v
            n += 1
            table[at] = n
        of[v] = table[at] - 1
    return n


@compiled
def _declare(g: Columns, first: I32, p: _Partition, crossed: I32_OUT, awaited: I32_OUT, to: _MergedGraph) -> None:
    """Write the hops and predecessors of the quotient: those of the first task of each class.

    Args:
        g: The columns of the graph.
        first: [C] the first task of each class.
        p: The classes.
        crossed: [K] a working array: the last class that crosses each class of links.
        awaited: [2 C] a working array: the last class that waits for each class of tasks.
        to: The hops and predecessors, which are written.
    """
    n_hops = n_preds = 0
    for c in range(len(first)):
        for h in range(g.hop_start[first[c]], g.hop_start[first[c] + 1]):
            link = p.link[g.hop_link[h]]
            if crossed[link] != c:
                crossed[link], to.hop_link[n_hops] = c, link
                n_hops += 1
        for i in range(g.pred_start[first[c]], g.pred_start[first[c] + 1]):
            pred = 2 * p.task[g.pred[i]] + g.pred_left[i]
            if awaited[pred] != c:
                awaited[pred], to.pred[n_preds] = c, pred
                n_preds += 1
        to.hop_start[c + 1], to.pred_start[c + 1] = n_hops, n_preds


@compiled
def _find(values: I32, start: int, stop: int, value: int, at: int, steps: I64_OUT) -> int:
    """Return the index of a value in part of an array; -1 if it is missing or the budget of search steps is spent.

    Args:
        values: The array.
        start: The first index of the part.
        stop: One past its last index.
        value: The value.
        at: The index at which the search begins; after the last index it continues at `start`.
        steps: [1] the number of steps that are left; it is reduced.
    """
    for i in range(stop - start):
        if values[at] == value:
            steps[0] -= i
            return at if steps[0] >= 0 else -1
        at = at + 1 if at + 1 < stop else start
    return -1


@compiled
def _crosses_like_class(g: Columns, p: _Partition, seen: _ClassMarks, to: _MergedGraph, v: int) -> bool:
    """Return whether task `v` crosses the same classes of links as its class does, and count it on each link."""
    start, stop = to.hop_start[p.task[v]], to.hop_start[p.task[v] + 1]
    at, n = start, 0
    for h in range(g.hop_start[v], g.hop_start[v + 1]):
        k = g.hop_link[h]
        at = _find(to.hop_link, start, stop, p.link[k], at, seen.steps)
        if at < 0:
            return False
        n += seen.hop_by[at] != v
        seen.hop_by[at] = v
        i = seen.room[at] + p.place[k]
        weight = np.int64(seen.crossings[i]) + g.hop_weight[h]
        if weight > _MAX_WEIGHT:
            return False
        seen.crossings[i] = weight
    return bool(n == stop - start)


@compiled
def _waits_like_class(g: Columns, p: _Partition, seen: _ClassMarks, to: _MergedGraph, v: int) -> bool:
    """Return whether task `v` waits for the same classes of tasks as its class does."""
    start, stop = to.pred_start[p.task[v]], to.pred_start[p.task[v] + 1]
    at, n = start, 0
    for i in range(g.pred_start[v], g.pred_start[v + 1]):
        at = _find(to.pred, start, stop, 2 * p.task[g.pred[i]] + g.pred_left[i], at, seen.steps)
        if at < 0:
            return False
        n += seen.pred_by[at] != v
        seen.pred_by[at] = v
    return bool(n == stop - start)


@compiled
def _members_agree(g: Columns, p: _Partition, seen: _ClassMarks, to: _MergedGraph) -> bool:
    """Return whether every task behaves like its class, and count each task on its links."""
    for v in range(len(p.task)):
        c = p.task[v]
        if g.size[v] != p.size[c] or g.alpha[v] != p.alpha[c] or g.ready[v] != p.ready[c]:
            return False
        if not _crosses_like_class(g, p, seen, to, v) or not _waits_like_class(g, p, seen, to, v):
            return False
    return True


@compiled
def _weigh(seen: _ClassMarks, weight: I32_OUT) -> bool:
    """Write the weight of each hop of the quotient, and return whether it is equal on all links of each class.

    The weight is the number of tasks of the class that cross one link.
    """
    for h in range(len(weight)):
        weight[h] = seen.crossings[seen.room[h]]
        for i in range(seen.room[h], seen.room[h + 1]):
            if seen.crossings[i] != weight[h]:
                return False
    return True


class Quotient(NamedTuple):
    """The quotient of a graph: one task and one link for each class, and the class of each task and link."""

    graph: Graph
    task: I32  # [V] class of each task of the whole graph
    link: I32  # [L] class of each link of the whole graph


def merge(graph: Graph, order: I32, task_colour: U64, link_colour: U64) -> Quotient | None:
    """Return the quotient that merges tasks of equal colour and links of equal colour; None if they behave differently.

    Args:
        graph: The graph.
        order: The tasks with predecessors first; empty: the order of their numbers.
        task_colour: [V] the colour of each task.
        link_colour: [L] the colour of each link.
    """
    g = columns(graph)
    (task, first), (link, first_link) = _classes_of_colours(task_colour, order), _classes_of_colours(link_colour, order[:0])
    capacity = graph.capacity_Bps[first_link]
    if not np.array_equal(capacity[link], graph.capacity_Bps):
        return None
    links = np.bincount(link, minlength=len(first_link))
    alone = g.size[first], g.alpha[first], g.ready[first]
    merged = _merge_members(g, first, _Partition(task, link, _number_in_class(link, links), links, *alone))
    if merged is None:
        return None
    hop_start, hop_link, hop_weight, pred_start, pred = merged
    waits = pred_start, pred >> 1, (pred & 1).astype(np.bool_)
    small = Graph(capacity, *alone, hop_start, hop_link, hop_weight, *waits, graph.owner[first], graph.origin[first])
    return Quotient(small, task, link)


def _classes_of_colours(colour: U64, order: I32) -> tuple[I32, I32]:
    """Return [n] the class of each task or link by its colour, and the first member of each class.

    Classes are numbered in the order in which they first occur.

    Args:
        colour: [n] the colour of each task or link.
        order: [n] the order in which tasks or links are visited; empty: the order of their numbers.
    """
    of, first = np.empty(len(colour), np.int32), np.empty(len(colour), np.int32)
    table = np.zeros(2 ** len(colour).bit_length(), np.int32)
    return of, first[: _number(colour, order, table, of, first)].copy()


def _number_in_class(of: I32, counts: I64) -> I32:
    """Return, for each member, its number within its class, counted from 0."""
    place, by_class = np.empty(len(of), np.int32), np.argsort(of, kind="stable")
    place[by_class] = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return place


def _merge_members(g: Columns, first: I32, p: _Partition) -> _MergedGraph | None:
    """Return the hops and predecessors of the quotient; None if members of one class behave differently."""
    to = _first_members(g, first, p)
    room = np.append(0, np.cumsum(p.links[to.hop_link]))
    if room[-1] > len(g.hop_link):  # a class crosses each link of a class at least once
        return None
    by_hop, by_pred = np.full(len(to.hop_link), -1, np.int32), np.full(len(to.pred), -1, np.int32)
    steps = np.array([_MAX_STEPS * (len(g.hop_link) + len(g.pred))])
    seen = _ClassMarks(by_hop, by_pred, room, np.zeros(room[-1], np.int32), steps)
    return to if _members_agree(g, p, seen, to) and _weigh(seen, to.hop_weight) else None


def _first_members(g: Columns, first: I32, p: _Partition) -> _MergedGraph:
    """Return the hops and predecessors of the first task of each class; the weights of hops are not set yet."""
    n, n_hops, n_preds = len(first), np.diff(g.hop_start)[first].sum(), np.diff(g.pred_start)[first].sum()
    hop_start, pred_start, none = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64), np.empty(0, np.int32)
    to = _MergedGraph(hop_start, np.empty(n_hops, np.int32), none, pred_start, np.empty(n_preds, np.int32))
    _declare(g, first, p, np.full(len(p.links), -1, np.int32), np.full(2 * n, -1, np.int32), to)
    hop_link = to.hop_link[: hop_start[-1]]
    return _MergedGraph(hop_start, hop_link, np.empty_like(hop_link), pred_start, to.pred[: pred_start[-1]])


_IN_NUMBER_ORDER = np.empty(0, np.int32)


def quotient(graph: Graph, order: I32) -> Timeline | None:
    """Return the timeline of a checked graph, computed on its quotient; None if the graph has too little symmetry.

    The argument `order` has the tasks with predecessors first; empty: the order of their numbers.
    """
    small = _quotient_of(graph, order)
    timed = None if small is None else _time_quotient(small.graph)
    if small is None or timed is None:
        return None
    start, left, end = (times[small.task] for times in (timed.start_fs, timed.left_fs, timed.end_fs))
    # Sums of bytes are floats, and so the same in any order up to 2**53 bytes.
    return Timeline(start, left, end, timed.carried_bytes[small.link], "quotient")


def _quotient_of(graph: Graph, order: I32) -> Quotient | None:
    """Return the quotient of a graph, or None if the graph has too little symmetry.

    Colours take as much memory as a column of times. They are freed here, before the times are computed.
    """
    colours = refine(columns(graph), graph.capacity_Bps, order)
    return None if colours is None else merge(graph, order, *colours)


def _time_quotient(graph: Graph) -> Timeline | None:
    """Return the timeline of a quotient; None if a task ends beyond the clock, so that the solver can name the task."""
    swept = sweep(graph, _IN_NUMBER_ORDER)
    if swept is not None:
        return swept
    state = State(graph.capacity_Bps)
    try:
        state.admit(graph)
        state.advance()
        return state.timeline()
    except InputError:
        return None
