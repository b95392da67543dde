"""The opening of links, whose rates are solved again, and the transfer of running tasks to other links.

A level is a sum over rounds of ascending rate, each a rate times a count of weights (R1). The rounds of a link that saturated
are kept. While the link is not opened, its flows do not change. So the next time, all rounds below the rate at which it is
opened still hold, and only its flows after these rounds are sorted. The module also has the binary heaps of rates and of
events: a heap is two arrays, one of keys and one of the node of each key. The caller of `push` and `replace_first` keeps the
count. The heap of events finds a link by the link's place in the heap. Letters: L links, V tasks.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emu.arrays import I64, Bool, column
from emu.compiled.function import F64_OUT, I32_OUT, I64_OUT, compiled
from emu.errors import RunError
from emu.fabric.engine.state_layout import (
    EVENTS,
    FLOWING,
    FLOWS,
    IN_TRIAL,
    KEPT,
    LEFT,
    LEVELS,
    NEVER,
    OPENED,
    TASK,
    TRIAL,
    SolverArrays,
    align_records,
)
from emu.fabric.graph import Graph


@compiled
def push(keys: F64_OUT | I64_OUT, nodes: I32_OUT, n: int, key: float | int, node: int) -> None:
    """Add a node to a heap of n entries, in which the least key is first."""
    while n > 0 and keys[(n - 1) >> 1] > key:
        up = (n - 1) >> 1
        keys[n], nodes[n] = keys[up], nodes[up]
        n = up
    keys[n], nodes[n] = key, node


@compiled
def replace_first(keys: F64_OUT | I64_OUT, nodes: I32_OUT, n: int, key: float | int, node: int) -> None:
    """Replace the first node of a heap of n entries by another node."""
    at = 0
    while 2 * at + 1 < n:
        child = 2 * at + 1
        child += child + 1 < n and keys[child + 1] < keys[child]
        if keys[child] >= key:
            break
        keys[at], nodes[at] = keys[child], nodes[child]
        at = child
    keys[at], nodes[at] = key, node


@compiled
def _seat(e: SolverArrays, at: int, time: int, link: int) -> None:
    """Write the event of a link to position `at` of the heap of events."""
    e.event_time[at], e.event_link[at] = time, link
    e.event_place[link] = at


@compiled
def _sift(e: SolverArrays, at: int, time: int, link: int) -> None:
    """Insert an event at position `at` of the heap, and move it until the heap is in order."""
    n = e.scalars[EVENTS]
    while at > 0 and e.event_time[(at - 1) >> 1] > time:
        _seat(e, at, e.event_time[(at - 1) >> 1], e.event_link[(at - 1) >> 1])
        at = (at - 1) >> 1
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and e.event_time[child + 1] < e.event_time[child]:
            child += 1
        if e.event_time[child] >= time:
            break
        _seat(e, at, e.event_time[child], e.event_link[child])
        at = child
    _seat(e, at, time, link)


@compiled
def set_next_event(e: SolverArrays, link: int, time: int) -> None:
    """Set the tick of a link's next event: when the first flow that it limits leaves; NEVER if none leaves."""
    e.links[link].next_left = time
    at = e.event_place[link]
    if time == NEVER:
        if at < 0:
            return
        e.event_place[link] = -1
        e.scalars[EVENTS] -= 1
        if at == e.scalars[EVENTS]:
            return
        time, link = e.event_time[e.scalars[EVENTS]], e.event_link[e.scalars[EVENTS]]
    elif at < 0:
        at = e.scalars[EVENTS]
        e.scalars[EVENTS] += 1
    _sift(e, at, time, link)


Tasks = NDArray[np.void]


@compiled
def mark_opened(e: SolverArrays, link: int, rate: float) -> None:
    """Mark a link, which is not opened yet, as opened from `rate` on; it is processed after the present link."""
    k = e.links[link]
    k.opened_in, k.round, k.best = e.scalars[TRIAL], rate, min(k.level, k.capacity)
    e.opened[e.scalars[OPENED]] = link
    e.scalars[OPENED] += 1


@compiled
def open_link(e: SolverArrays, link: int, rate: float) -> None:
    """Mark a link for a new solution of its rates; flows with a rate below `rate` keep theirs."""
    e.floor[0] = min(e.floor[0], rate)
    if e.links[link].opened_in != e.scalars[TRIAL]:
        mark_opened(e, link, rate)


@compiled
def _push(e: SolverArrays, key: float, node: int) -> None:
    """Push a link and its rate onto the heap of levels; ~k is a link k that only limits flows of the trial."""
    push(e.level_key, e.level_node, e.scalars[LEVELS], key, node)
    e.scalars[LEVELS] += 1


@compiled
def enter(e: SolverArrays, v: int) -> None:
    """Add a flow to the trial solution, with its new rate still unknown."""
    e.tasks[v].state, e.tasks[v].new_rate = IN_TRIAL, -1.0
    e.flows[e.scalars[FLOWS]] = v
    e.scalars[FLOWS] += 1


@compiled
def _enter_held(e: SolverArrays, v: int) -> None:
    """Add a flow to the trial solution; if the link that limits it is not opened, chain it to that link's flows.

    If the link that limits it is not opened, the flow stays with the other flows of that link until these are processed.
    """
    enter(e, v)
    f = e.tasks[v]
    k = e.links[f.limit]
    if k.opened_in != e.scalars[TRIAL]:
        if k.staying < 0:
            _push(e, f.rate, ~f.limit)
        f.next, k.staying = k.staying, v


@compiled
def _weight(e: SolverArrays, v: int, link: int) -> int:
    """Return the number of times that a task's route crosses a link."""
    h = e.graph.hop_start[v]
    while e.graph.hop_link[h] != link:
        h += 1
    return int(e.graph.hop_weight[h])


@compiled
def begin_round(e: SolverArrays, link: int, rate: float) -> None:
    """Close the present round of a link, store it for the next opening, and begin the round of `rate`."""
    k = e.links[link]
    if k.n_frozen > 0:
        k.used += k.round * k.n_frozen
        if k.n_kept < KEPT:
            e.kept_rate[link * KEPT + k.n_kept], e.kept_weight[link * KEPT + k.n_kept] = k.round, k.n_frozen
            k.n_kept += 1
    k.best = max(k.best, (k.capacity - k.used) / k.n_unfrozen)
    k.round, k.n_frozen = rate, 0


@compiled
def _add(e: SolverArrays, link: int, rate: float, weight: int) -> bool:
    """Count a flow as fixed on a link that is being opened, and return whether the count is consistent.

    It is possible if no earlier round was at the link's level.
    """
    k, possible = e.links[link], True
    if k.round != rate:
        possible = k.best > k.round
        begin_round(e, link, rate)
    k.n_frozen += weight
    k.n_unfrozen -= weight
    return possible


@compiled
def _recount(e: SolverArrays, link: int, rate: float) -> bool:
    """Count the stored rounds of a link below `rate`, and return whether they are still consistent."""
    k, n, possible = e.links[link], e.links[link].n_kept, True
    k.used, k.round, k.n_frozen, k.n_unfrozen, k.n_kept = 0.0, -1.0, 0, k.n_flowing, 0
    k.best = k.capacity / k.n_flowing
    for i in range(link * KEPT, link * KEPT + n):
        if e.kept_rate[i] >= rate:
            break
        possible &= _add(e, link, e.kept_rate[i], e.kept_weight[i])
    return possible


@compiled
def _split(e: SolverArrays, link: int, rate: float) -> int:
    """Split the flows of a link at `rate`: faster flows join the trial; return how many slower flows are not counted.

    These others are collected in the heap of frozen rates.
    """
    k, n, n_others, n_frozen = e.links[link], e.links[link].first, e.links[link].first, 0
    for j in range(k.first, k.first + k.length):
        v = e.members[j]
        f = e.tasks[v]
        if f.state == LEFT:
            continue
        e.members[n] = v
        if f.state == FLOWING and f.rate >= rate:
            _enter_held(e, v)
        elif f.new_rate >= 0:
            e.members[n], e.members[n_others] = e.members[n_others], v
            n_others += 1
            if f.new_rate > k.round:
                push(e.frozen_rate, e.frozen_weight, n_frozen, f.new_rate, _weight(e, v, link))
                n_frozen += 1
        n += 1
    k.length, k.n_others = n - k.first, n_others - k.first
    return n_frozen


@compiled
def open_marked(e: SolverArrays, link: int, rate: float) -> bool:
    """Start a new solution of a link from `rate` on, and return whether that is consistent with its slower flows.

    It is possible if no slower flow is above the link's level, or comes after one that is at it.
    """
    k = e.links[link]
    k.rise, k.new_level, k.staying = k.level, np.inf, -1
    possible = _recount(e, link, rate)
    n = _split(e, link, rate)
    while n > 0:
        possible &= _add(e, link, e.frozen_rate[0], e.frozen_weight[0])
        n -= 1
        replace_first(e.frozen_rate, e.frozen_weight, n, e.frozen_rate[n], e.frozen_weight[n])
    if k.n_unfrozen == 0:
        return bool(possible and k.best >= k.round)
    if k.round < rate:
        possible &= k.best > k.round
        begin_round(e, link, rate)
    possible &= k.best >= rate
    k.best = max(k.best, rate)
    _push(e, min(k.best, k.rise), link)
    return bool(possible)


def transfer_tasks(tasks: Tasks, now_fs: int, old: Graph, new: Graph, anew: Bool | None) -> tuple[Tasks, Graph]:
    """Return the tasks in their present state on the links of a new graph, and that graph with the remaining work.

    Args:
        tasks: [V] the tasks on the old links.
        now_fs: The present time: everything before it has happened.
        old: Their graph on the old links.
        new: Their graph on the new links.
        anew: [V] whether each task begins again from the start; None: no task does.

    Raises:
        RunError: The graphs have different numbers of tasks, or their waits differ and no task begins again.
    """
    alike = np.array_equal(old.pred_start, new.pred_start) and np.array_equal(old.pred, new.pred)
    if old.n_tasks != new.n_tasks or not (alike or anew is not None):
        raise RunError("solver: tasks can be moved only to links on which they wait for one another as before")
    again = np.zeros(len(tasks), np.bool_) if anew is None else anew
    begun = (tasks["state"] == LEFT) & (tasks["start"] < now_fs) & ~again
    flows = (tasks["state"] == FLOWING) & ~again
    on_its_way = begun & (np.diff(new.hop_start) > 0)  # with the latency of the links that it has left over
    size, alpha = new.size_bytes.copy(), np.where(on_its_way, old.alpha_fs, new.alpha_fs)
    passed = tasks["rate"] * (now_fs - tasks["since"])
    size[flows] = np.maximum(1, np.ceil(tasks["remaining"] - passed)[flows])
    moved = align_records(len(tasks), TASK)
    moved["start"] = np.maximum(new.ready_fs, now_fs)
    moved[begun] = tasks[begun]
    moved["left"][begun] = _new_leave_times(moved["left"][begun], now_fs, old.alpha_fs[begun], new.alpha_fs[begun])
    return moved, replace(new, size_bytes=column(size, np.int64), alpha_fs=column(alpha, np.int64))


def _new_leave_times(left: I64, now_fs: int, old_fs: I64, new_fs: I64) -> I64:
    """Return the ticks at which running tasks leave after their durations have changed.

    The remaining time of each task changes in the same proportion as its whole duration.
    """
    later = np.flatnonzero((left > now_fs) & (old_fs != new_fs))
    changed = left.copy()
    changed[later] = now_fs + np.rint((left[later] - now_fs) * (new_fs[later] / old_fs[later])).astype(np.int64)
    return column(changed, np.int64)
