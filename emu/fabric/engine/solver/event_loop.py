"""The compiled loop of events; between events, flows keep the rates of `fair`.

Letters: V tasks, L links, H hops.
"""

import numpy as np

from emu.compiled.function import compiled
from emu.fabric.engine.solver.fair import NEAR_FULL, solve
from emu.fabric.engine.solver.heap import expect, push, replace_first
from emu.fabric.engine.solver.opening import open_link
from emu.fabric.engine.state_layout import EVENTS, FLOWING, FRESH, LEFT, NEVER, NOW, OPENED, READY, STARTS, TOO_LATE, Engine


@compiled
def _end(e: Engine, v: int) -> int:
    """Return the tick at which task `v` ends, given the tick at which its last byte left its links.

    A message ends when it is delivered, alpha later; a task without hops ends when it leaves. -1: beyond the range of ticks.
    """
    if e.graph.hop_start[v] == e.graph.hop_start[v + 1]:
        return int(e.tasks[v].left)
    return int(-1 if e.graph.alpha[v] >= NEVER - e.tasks[v].left else e.tasks[v].left + e.graph.alpha[v])


@compiled
def _schedule(e: Engine, v: int) -> None:
    """Put a message into the heap of starts, behind another with the same start if one was put there recently."""
    e.tasks[v].state, e.tasks[v].next = READY, -1
    time = e.tasks[v].start
    slot = (time ^ (time >> 17)) % len(e.recent)
    head = e.recent[slot]
    if head >= 0 and e.tasks[head].state == READY and e.tasks[head].start == time:
        e.tasks[v].next, e.tasks[head].next = e.tasks[head].next, v
        return
    e.recent[slot] = v
    push(e.start_time, e.start_task, e.reg[STARTS], time, v)
    e.reg[STARTS] += 1


@compiled
def resolve(e: Engine, v: int, queue: int) -> int:
    """Let a task start at its `start`, and return the queue of tasks that have left.

    A message goes to the heap of starts. A task that needs no link has left at once and joins the queue.
    """
    if e.graph.size[v] > 0:
        _schedule(e, v)
        return queue
    f = e.tasks[v]
    delay = 0 if e.graph.hop_start[v] < e.graph.hop_start[v + 1] else e.graph.alpha[v]
    if delay >= NEVER - f.start:
        e.reg[TOO_LATE] = v
        return queue
    f.left, f.state, f.next = f.start + delay, LEFT, queue
    return v


@compiled
def release(e: Engine, queue: int) -> None:
    """Tell the successors of a queue of tasks, linked by `next`, when these left and end."""
    while queue >= 0:
        v = queue
        queue, end = e.tasks[v].next, _end(e, v)
        if end < 0:
            e.reg[TOO_LATE] = v
            return
        for i in range(e.next_start[v], e.next_start[v + 1]):
            after, time = e.next_task[i], end
            if after < 0:
                after, time = ~after, e.tasks[v].left
            f = e.tasks[after]
            f.start = max(f.start, time)
            f.state -= 1
            if f.state == 0:
                queue = resolve(e, after, queue)


@compiled
def begin(e: Engine, first: int) -> None:
    """Start the tasks from `first` on that wait for nothing."""
    for v in range(first, len(e.tasks)):
        if e.tasks[v].state == 0:
            release(e, resolve(e, v, -1))


@compiled
def let_go(e: Engine, v: int) -> None:
    """Let a held task start, once all that it still waits for is over."""
    f = e.tasks[v]
    f.start = max(f.start, e.reg[NOW])
    f.state -= 1
    if f.state == 0:
        release(e, resolve(e, v, -1))


@compiled
def _vacate(e: Engine, v: int) -> None:
    """Take a flow from its links; a link that was not full, and is not full now, needs no new solution."""
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k = e.links[e.graph.hop_link[h]]
        k.n_flowing -= e.graph.hop_weight[h]
        k.load -= e.graph.hop_weight[h] * e.tasks[v].rate
        if k.load > k.capacity * NEAR_FULL:
            open_link(e, e.graph.hop_link[h], e.tasks[v].rate)
        elif k.n_flowing == 0:
            k.load = 0.0


@compiled
def _leave(e: Engine, link: int, now: int) -> None:
    """Let the flows of a link that leave now leave, and note when the next one does."""
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
        release(e, v)
    expect(e, link, following)


@compiled
def _start(e: Engine, v: int, now: int) -> None:
    """Start task `v` at tick `now`: its bytes begin to flow over its links, at a rate that is not known yet."""
    f = e.tasks[v]
    f.state, f.remaining, f.rate, f.since, f.left = FLOWING, e.graph.size[v], 0.0, now, NEVER
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k = e.links[e.graph.hop_link[h]]
        e.members[k.first + k.length] = v
        k.length += 1
        k.n_flowing += e.graph.hop_weight[h]
    e.fresh[e.reg[FRESH]] = v
    e.reg[FRESH] += 1


@compiled
def _open_likely(e: Engine, v: int) -> None:
    """Open those links of a new flow that were full, or are likely to be."""
    least = share = np.inf
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k, weight = e.links[e.graph.hop_link[h]], e.graph.hop_weight[h]
        least = min(least, k.capacity / k.n_flowing)
        share = min(share, max(k.capacity / k.n_flowing, (k.capacity - k.load) / weight))
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k, weight = e.links[e.graph.hop_link[h]], e.graph.hop_weight[h]
        if k.load + weight * share >= k.capacity * NEAR_FULL:
            open_link(e, e.graph.hop_link[h], least)
    e.floor[0] = min(e.floor[0], least)


@compiled
def advance(e: Engine, until: int) -> None:
    """Let everything happen that happens before `until`; stop early, with TOO_LATE set, where a task ends beyond the clock."""
    while e.reg[TOO_LATE] < 0:
        leaves = e.event_time[0] if e.reg[EVENTS] > 0 else NEVER
        starts = e.start_time[0] if e.reg[STARTS] > 0 else NEVER
        now = e.reg[NOW] if e.reg[OPENED] > 0 else min(leaves, starts)
        if now >= until:
            break
        e.reg[NOW] = now
        while e.reg[EVENTS] > 0 and e.event_time[0] == now:
            _leave(e, e.event_link[0], now)
        while e.reg[STARTS] > 0 and e.start_time[0] == now:
            v = e.start_task[0]
            e.reg[STARTS] -= 1
            last = e.reg[STARTS]
            replace_first(e.start_time, e.start_task, last, e.start_time[last], e.start_task[last])
            while v >= 0:
                _start(e, v, now)
                v = e.tasks[v].next
        for i in range(e.reg[FRESH]):
            _open_likely(e, e.fresh[i])
        if e.reg[OPENED] > 0:
            solve(e)
    e.reg[NOW] = max(e.reg[NOW], until)
