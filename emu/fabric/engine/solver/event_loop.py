"""The compiled event loop of the solver, and the admission of new tasks; `fair` solves the rates between events.

Admission of a task sets its counts of waits, the room of links for its flow, and the bytes that it carries.
Letters: V tasks, L links, E predecessor edges, H hops.
"""

import numpy as np

from emu.arrays import F64, I32, I64
from emu.compiled.function import compiled, compiled_making_arrays
from emu.fabric.engine.solver.fair import NEAR_FULL, solve
from emu.fabric.engine.solver.opening import open_link, push, replace_first, set_next_event
from emu.fabric.engine.solver.way_choice import add_room_for_ways, choose_way
from emu.fabric.engine.state_layout import (
    EVENTS,
    FLOWING,
    FLOWS,
    FRESH,
    LEFT,
    LINKS,
    NEVER,
    NOW,
    OPENED,
    READY,
    STARTS,
    TASKS,
    TOO_LATE,
    U32,
    Columns,
    SolverArrays,
    WayColumns,
)


@compiled
def count_waits(tasks: TASKS, first: int, g: Columns) -> None:
    """Set, for each task from `first` on, how many predecessors it still waits for and the earliest start that is known."""
    for v in range(first, len(tasks)):
        if tasks[v].state == LEFT:
            continue
        for i in range(g.pred_start[v], g.pred_start[v + 1]):
            p = g.pred[i]
            if tasks[p].state != LEFT:
                tasks[v].state += 1
                continue
            delay = 0 if g.pred_left[i] or g.hop_start[p] == g.hop_end[p] else g.alpha[p]
            tasks[v].start = max(tasks[v].start, tasks[p].left + delay)


@compiled_making_arrays
def successors(tasks: TASKS, g: Columns) -> tuple[I64, I32]:
    """Return, for each task that has not left, the tasks that wait for it, as offsets and a list of numbers.

    A number is ~v where v waits only until the last byte has left.
    """
    start = np.zeros(len(tasks) + 2, np.int64)  # [p + 1]: first where the successors of p begin, later where they end
    for p in g.pred:
        start[p + 2] += tasks[p].state != LEFT
    for v in range(len(tasks)):
        start[v + 2] += start[v + 1]
    after = np.empty(start[-1], np.int32)
    for v in range(len(tasks)):
        for i in range(g.pred_start[v], g.pred_start[v + 1]):
            p = g.pred[i]
            if tasks[p].state != LEFT:
                after[start[p + 1]] = ~v if g.pred_left[i] else v
                start[p + 1] += 1
    return start[:-1], after


@compiled_making_arrays
def place_members(tasks: TASKS, links: LINKS, g: Columns, ways: WayColumns) -> U32:
    """Return an array with room for all flows that still may have to cross each link; current flows come first."""
    room = np.zeros(len(links) + 1, np.int64)
    if len(ways.set_of) > 0:
        add_room_for_ways(room, g, ways)
    for v in range(len(tasks)):
        if tasks[v].state != LEFT and (len(ways.set_of) == 0 or ways.set_of[v] < 0):
            for h in range(g.hop_start[v], g.hop_end[v]):
                room[g.hop_link[h] + 1] += 1
    room = np.cumsum(room)
    members = np.empty(room[-1], np.uint32)
    for link in range(len(links)):
        links[link].first, links[link].length = room[link], 0
    for v in range(len(tasks)):
        if tasks[v].state == FLOWING:
            for h in range(g.hop_start[v], g.hop_end[v]):
                k = links[g.hop_link[h]]
                members[k.first + k.length] = v
                k.length += 1
    return members


@compiled_making_arrays
def link_bytes(g: Columns, n_links: int) -> F64:
    """Return [L] the bytes that each link carries: the sizes of all messages that cross it, as often as they do."""
    total = np.zeros(n_links)
    for v in range(len(g.size)):
        for h in range(g.hop_start[v], g.hop_end[v]):
            total[g.hop_link[h]] += float(g.hop_weight[h]) * g.size[v]
    return total


@compiled
def _end(e: SolverArrays, v: int) -> int:
    """Return the tick at which task `v` ends, from the tick at which its last byte left.

    A message ends when it is delivered, alpha later; a task without hops ends when it leaves. -1: beyond the range of ticks.
    """
    if e.graph.hop_start[v] == e.graph.hop_end[v]:
        return int(e.tasks[v].left)
    return int(-1 if e.graph.alpha[v] >= NEVER - e.tasks[v].left else e.tasks[v].left + e.graph.alpha[v])


@compiled
def _schedule(e: SolverArrays, v: int) -> None:
    """Put a message into the heap of starts, or chain it to a recent message with the same start."""
    e.tasks[v].state, e.tasks[v].next = READY, -1
    time = e.tasks[v].start
    slot = (time ^ (time >> 17)) % len(e.recent)
    head = e.recent[slot]
    if head >= 0 and e.tasks[head].state == READY and e.tasks[head].start == time:
        e.tasks[v].next, e.tasks[head].next = e.tasks[head].next, v
        return
    e.recent[slot] = v
    push(e.start_time, e.start_task, e.scalars[STARTS], time, v)
    e.scalars[STARTS] += 1


@compiled
def let_start(e: SolverArrays, v: int, finished: int) -> int:
    """Give a task whose predecessors are done its `start`, and return the first of a linked list of tasks that have left.

    A message goes into the heap of starts. A task without bytes has left at once, and is put in front of the list.
    """
    if e.graph.size[v] > 0:
        _schedule(e, v)
        return finished
    f = e.tasks[v]
    delay = 0 if e.graph.hop_start[v] < e.graph.hop_end[v] else e.graph.alpha[v]
    if delay >= NEVER - f.start:
        e.scalars[TOO_LATE] = v
        return finished
    f.left, f.state, f.next = f.start + delay, LEFT, finished
    return v


@compiled
def notify_successors(e: SolverArrays, finished: int) -> None:
    """Report to the successors of a list of tasks, linked by `next`, when these tasks have left and when they end."""
    while finished >= 0:
        v = finished
        finished, end = e.tasks[v].next, _end(e, v)
        if end < 0:
            e.scalars[TOO_LATE] = v
            return
        for i in range(e.next_start[v], e.next_start[v + 1]):
            after, time = e.next_task[i], end
            if after < 0:
                after, time = ~after, e.tasks[v].left
            f = e.tasks[after]
            f.start = max(f.start, time)
            f.state -= 1
            if f.state == 0:
                finished = let_start(e, after, finished)


@compiled
def begin(e: SolverArrays, first: int) -> None:
    """Start the tasks from number `first` on that wait for no other task."""
    for v in range(first, len(e.tasks)):
        if e.tasks[v].state == 0:
            notify_successors(e, let_start(e, v, -1))


@compiled
def let_go(e: SolverArrays, v: int) -> None:
    """Remove the hold from a task, which starts when all its predecessors allow it."""
    f = e.tasks[v]
    f.start = max(f.start, e.scalars[NOW])
    f.state -= 1
    if f.state == 0:
        notify_successors(e, let_start(e, v, -1))


@compiled
def _vacate(e: SolverArrays, v: int) -> None:
    """Remove a flow from its links, and mark for a new solution of rates the links that were full or are full now."""
    for h in range(e.graph.hop_start[v], e.graph.hop_end[v]):
        k = e.links[e.graph.hop_link[h]]
        k.n_flowing -= e.graph.hop_weight[h]
        k.load -= e.graph.hop_weight[h] * e.tasks[v].rate
        if k.load > k.capacity * NEAR_FULL:
            open_link(e, e.graph.hop_link[h], e.tasks[v].rate)
        elif k.n_flowing == 0:
            k.load = 0.0


@compiled
def _leave(e: SolverArrays, link: int, now: int) -> None:
    """End the flows of a link that leave at `now`, and set the time of the link's next leave event."""
    k, following = e.links[link], NEVER
    for i in range(k.first, k.first + k.length):
        v = e.members[i]
        f = e.tasks[v]
        if f.state != FLOWING:
            continue
        if f.left > now:
            if f.limit == link:
                following = min(following, f.left)
            continue
        f.state, f.next = LEFT, -1
        _vacate(e, v)
        notify_successors(e, v)
    set_next_event(e, link, following)


@compiled
def _start(e: SolverArrays, v: int, now: int) -> None:
    """Start a message: its bytes begin to flow over its links. Its rate is 0 until the solver has computed it.

    Args:
        e: The arrays of the solver.
        v: The task of the message.
        now: The tick.
    """
    f = e.tasks[v]
    f.state, f.remaining, f.rate, f.since, f.left = FLOWING, e.graph.size[v], 0.0, now, NEVER
    for h in range(e.graph.hop_start[v], e.graph.hop_end[v]):
        k = e.links[e.graph.hop_link[h]]
        e.members[k.first + k.length] = v
        k.length += 1
        k.n_flowing += e.graph.hop_weight[h]
    e.fresh[e.scalars[FRESH]] = v
    e.scalars[FRESH] += 1


@compiled
def _open_likely(e: SolverArrays, v: int) -> None:
    """Mark for a new solution of rates the links of a new flow that are full or will probably be full."""
    least = share = np.inf
    for h in range(e.graph.hop_start[v], e.graph.hop_end[v]):
        k, weight = e.links[e.graph.hop_link[h]], e.graph.hop_weight[h]
        least = min(least, k.capacity / k.n_flowing)
        share = min(share, max(k.capacity / k.n_flowing, (k.capacity - k.load) / weight))
    for h in range(e.graph.hop_start[v], e.graph.hop_end[v]):
        k, weight = e.links[e.graph.hop_link[h]], e.graph.hop_weight[h]
        if k.load + weight * share >= k.capacity * NEAR_FULL:
            open_link(e, e.graph.hop_link[h], least)
    e.floor[0] = min(e.floor[0], least)


@compiled
def _pop_start(e: SolverArrays) -> int:
    """Take the first messages, which have one start, out of the heap of starts, and return the first of them."""
    v = e.start_task[0]
    e.scalars[STARTS] -= 1
    last = e.scalars[STARTS]
    replace_first(e.start_time, e.start_task, last, e.start_time[last], e.start_task[last])
    return int(v)


@compiled
def _start_choosing(e: SolverArrays, now: int) -> None:
    """Start all messages whose start is `now` in the order of their numbers, each on the way that it chooses."""
    n = 0
    while e.scalars[STARTS] > 0 and e.start_time[0] == now:
        v = _pop_start(e)
        while v >= 0:
            push(e.frozen_rate, e.frozen_weight, n, float(v), v)
            n, v = n + 1, e.tasks[v].next
    while n > 0:
        v, n = e.frozen_weight[0], n - 1
        replace_first(e.frozen_rate, e.frozen_weight, n, e.frozen_rate[n], e.frozen_weight[n])
        choose_way(e, v, now)
        _start(e, v, now)


@compiled
def _start_all(e: SolverArrays, now: int) -> None:
    """Start all messages whose start is `now`, and take them out of the heap of starts."""
    while e.scalars[STARTS] > 0 and e.start_time[0] == now:
        v = _pop_start(e)
        while v >= 0:
            _start(e, v, now)
            v = e.tasks[v].next


@compiled
def advance(e: SolverArrays, until: int, most: int) -> bool:
    """Process events before tick `until` in order, and return whether any may be left.

    It stops after the tick at which so many messages have started and got new rates as `most` says. It stops and sets
    TOO_LATE if a task ends beyond the clock.
    """
    while e.scalars[TOO_LATE] < 0:
        if most <= 0:
            return True
        leaves = e.event_time[0] if e.scalars[EVENTS] > 0 else NEVER
        starts = e.start_time[0] if e.scalars[STARTS] > 0 else NEVER
        now = e.scalars[NOW] if e.scalars[OPENED] > 0 else min(leaves, starts)
        if now >= until:
            break
        e.scalars[NOW] = now
        while e.scalars[EVENTS] > 0 and e.event_time[0] == now:
            _leave(e, e.event_link[0], now)
        if len(e.ways.set_of) > 0:
            _start_choosing(e, now)
        else:
            _start_all(e, now)
        for i in range(e.scalars[FRESH]):
            _open_likely(e, e.fresh[i])
        most -= 1 + e.scalars[FRESH]
        if e.scalars[OPENED] > 0:
            solve(e)
            most -= e.scalars[FLOWS]
    e.scalars[NOW] = max(e.scalars[NOW], until)
    return False
