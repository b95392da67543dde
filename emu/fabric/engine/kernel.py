"""The compiled half of the solver: max-min fair rates, and the loop of events.

V tasks, L links, H hops. Every sum is taken in an order that does not depend on any list's (R1), and a flow is touched only
when its rate changes bitwise (R2): so neither numbering, history nor the amount re-solved shows in a result. All of it but the
heap stands in one file, for numba's cache of a function does not see that a function of another file, which it calls, changed.
"""

import numpy as np
from numba import float64, int64, void

from emu.fabric.engine.heap import push, replace_first
from emu.fabric.engine.layout import ENGINE, Engine, compiled
from emu.units import MAX_TICKS

WAITING, READY, FLOWING, LEFT = range(4)  # status of a task
OPENED, FRESH, FLOWS, LEVELS, EVENTS, STARTS = range(6)  # places in `reg`: how many of each there are,
NOW, STEP, TRIAL, TOO_LATE = range(6, 10)  # and the time, two counters, and a task that ends beyond the clock or -1
N_REG = 10
NEVER = MAX_TICKS
NEAR_FULL = 1 - 2.0**-20  # a link loaded above this share is solved anew; one too many changes no result


@compiled(void(ENGINE, int64, int64, int64))
def _seat(e: Engine, at: int, time: int, link: int) -> None:
    e.event_time[at], e.event_link[at] = time, link
    e.links[link].place = at


@compiled(void(ENGINE, int64, int64, int64))
def _sift(e: Engine, at: int, time: int, link: int) -> None:
    n = e.reg[EVENTS]
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


@compiled(void(ENGINE, int64, int64))
def expect(e: Engine, link: int, time: int) -> None:
    """Let the first of the flows that a link limits leave at `time`; NEVER: none."""
    e.links[link].next_left = time
    at = e.links[link].place
    if time == NEVER:
        if at < 0:
            return
        e.links[link].place = -1
        e.reg[EVENTS] -= 1
        if at == e.reg[EVENTS]:
            return
        time, link = e.event_time[e.reg[EVENTS]], e.event_link[e.reg[EVENTS]]
    elif at < 0:
        at = e.reg[EVENTS]
        e.reg[EVENTS] += 1
    _sift(e, at, time, link)


@compiled(void(ENGINE, int64))
def open_link(e: Engine, link: int) -> None:
    """Have the rates on a link solved anew in this step."""
    if e.links[link].opened_in != e.reg[STEP]:
        e.links[link].opened_in = e.reg[STEP]
        e.opened[e.reg[OPENED]] = link
        e.reg[OPENED] += 1


@compiled(void(ENGINE, int64))
def _enter(e: Engine, v: int) -> None:
    """Let a flow take part in the trial, limited by the lowest of its clean links."""
    f, lowest = e.tasks[v], np.inf
    if f.trial == e.reg[TRIAL]:
        return
    f.trial, f.new_rate = e.reg[TRIAL], -1.0
    e.flows[e.reg[FLOWS]] = v
    e.reg[FLOWS] += 1
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k = e.links[e.graph.hop_link[h]]
        if k.opened_in != e.reg[STEP] and k.level < lowest:
            lowest, f.new_limit = k.level, e.graph.hop_link[h]
    if lowest < np.inf:
        push(e.level_key, e.level_node, e.reg[LEVELS], lowest, ~v)
        e.reg[LEVELS] += 1


@compiled(void(ENGINE))
def _gather(e: Engine) -> None:
    """Reset the opened links, and start the list of flows and the heap of levels of a trial."""
    e.reg[TRIAL] += 1
    e.reg[FLOWS] = e.reg[LEVELS] = 0
    for i in range(e.reg[OPENED]):
        k, n = e.links[e.opened[i]], 0
        k.used, k.round, k.n_frozen, k.level, k.n_left = 0.0, -1.0, 0, np.inf, k.n_flowing
        for j in range(k.first, k.first + k.length):
            v = e.members[j]
            if e.tasks[v].status == FLOWING:
                e.members[k.first + n] = v
                n += 1
                _enter(e, v)
        k.length = n
        if n > 0:
            k.best = k.capacity / k.n_flowing
            push(e.level_key, e.level_node, e.reg[LEVELS], k.best, e.opened[i])
            e.reg[LEVELS] += 1
    for i in range(e.reg[FRESH]):
        _enter(e, e.fresh[i])


@compiled(void(ENGINE, int64, float64))
def _freeze(e: Engine, v: int, rate: float) -> None:
    e.tasks[v].new_rate = rate
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k = e.links[e.graph.hop_link[h]]
        if k.opened_in == e.reg[STEP]:
            if k.round != rate:
                k.used += k.round * k.n_frozen
                k.best = max(k.best, (k.capacity - k.used) / k.n_left)
                k.round, k.n_frozen = rate, 0
            k.n_frozen += e.graph.hop_weight[h]
            k.n_left -= e.graph.hop_weight[h]


@compiled(int64(ENGINE, int64, float64))
def _saturate(e: Engine, link: int, rate: float) -> int:
    """Freeze at `rate` what is left on a link; how many flows."""
    k, n = e.links[link], 0
    k.level = rate
    for j in range(k.first, k.first + k.length):
        v = e.members[j]
        if e.tasks[v].new_rate < 0:
            e.tasks[v].new_limit = link
            _freeze(e, v, rate)
            n += 1
    return n


@compiled(void(ENGINE))
def _fill(e: Engine) -> None:
    """Freeze the flows in rounds of ascending rate.

    A link's level after a round is (capacity - what the rounds so far use) / (the weights not yet frozen), and never falls.
    The round in progress does not count: ties are found by `==` with the level before it, whatever the order they come in.
    """
    n_flows, n_levels = e.reg[FLOWS], e.reg[LEVELS]
    while n_flows > 0:
        rate, node = e.level_key[0], e.level_node[0]
        k = e.links[max(node, 0)]
        if node >= 0 and k.n_left > 0:
            if k.round < rate:
                k.best = max(k.best, (k.capacity - (k.used + k.round * k.n_frozen)) / k.n_left)
            if k.best > rate:
                replace_first(e.level_key, e.level_node, n_levels, k.best, node)
                continue
            n_flows -= _saturate(e, node, rate)
        elif node < 0 and e.tasks[~node].new_rate < 0:
            _freeze(e, ~node, rate)
            n_flows -= 1
        n_levels -= 1
        replace_first(e.level_key, e.level_node, n_levels, e.level_key[n_levels], e.level_node[n_levels])


@compiled(int64(ENGINE))
def _check_clean(e: Engine) -> int:
    """Open every clean link that a changed flow crosses and that was, or would be, full; how many of the others it crosses."""
    n_touched = 0
    for i in range(e.reg[FLOWS]):
        v = e.flows[i]
        f = e.tasks[v]
        if f.new_rate == f.rate:
            continue
        for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
            k = e.links[e.graph.hop_link[h]]
            if k.opened_in == e.reg[STEP]:
                continue
            if k.tried_in != e.reg[TRIAL]:
                k.tried_in, k.tried = e.reg[TRIAL], k.load
                e.touched[n_touched] = e.graph.hop_link[h]
                n_touched += 1
            k.tried += e.graph.hop_weight[h] * (f.new_rate - f.rate)
    for i in range(n_touched):
        k = e.links[e.touched[i]]
        if k.level < np.inf or k.tried > k.capacity * NEAR_FULL:
            open_link(e, e.touched[i])
    return n_touched


@compiled(void(ENGINE, int64, int64))
def _set_rate(e: Engine, v: int, now: int) -> None:
    f = e.tasks[v]
    f.remaining = max(0.0, f.remaining - f.rate * (now - f.since))
    f.since, f.rate, f.left = now, f.new_rate, NEVER
    if f.rate > 0:
        body = max(1.0, np.rint(f.remaining / f.rate))
        if body < float(NEVER - now):
            f.left = now + np.int64(body)


@compiled(void(ENGINE, int64))
def _apply(e: Engine, n_touched: int) -> None:
    """Give the flows their new rates, and the links their next events."""
    for i in range(n_touched):
        e.links[e.touched[i]].load = e.links[e.touched[i]].tried
    for i in range(e.reg[OPENED]):
        k = e.links[e.opened[i]]
        k.load, k.next_left = k.used + k.round * k.n_frozen, NEVER
    for i in range(e.reg[FLOWS]):
        v = e.flows[i]
        f = e.tasks[v]
        if f.new_rate != f.rate:
            _set_rate(e, v, e.reg[NOW])
        f.limit = f.new_limit
        k = e.links[f.limit]
        if f.left < k.next_left:
            k.next_left = f.left
            if k.opened_in != e.reg[STEP]:
                expect(e, f.limit, f.left)
    for i in range(e.reg[OPENED]):
        expect(e, e.opened[i], e.links[e.opened[i]].next_left)


@compiled(void(ENGINE))
def _solve(e: Engine) -> None:
    """Max-min fair rates of the flows on opened links; opens more until no clean link is concerned.

    Call a link consistent if, its flows taken in rounds of ascending rate, none is above the level of its turn, and nobody
    comes after one that is at it. Only one set of rates makes every link consistent and lets every flow be at the level of
    some link (by induction over ascending rates): so what was left alone cannot show, as long as it is consistent still.
    """
    n_opened = n_touched = 0
    while e.reg[OPENED] > n_opened:
        n_opened = e.reg[OPENED]
        _gather(e)
        _fill(e)
        n_touched = _check_clean(e)
    _apply(e, n_touched)
    e.reg[OPENED] = e.reg[FRESH] = 0
    e.reg[STEP] += 1


@compiled(int64(ENGINE, int64))
def _end(e: Engine, v: int) -> int:
    """When a task that has left ends: a message is delivered alpha later. -1: beyond the clock."""
    if e.graph.hop_start[v] == e.graph.hop_start[v + 1]:
        return int(e.tasks[v].left)
    return int(-1 if e.graph.alpha[v] >= NEVER - e.tasks[v].left else e.tasks[v].left + e.graph.alpha[v])


@compiled(void(ENGINE, int64))
def _schedule(e: Engine, v: int) -> None:
    """Put a message into the heap of starts, behind another of the same start where one was met lately."""
    e.tasks[v].status, e.tasks[v].next = READY, -1
    time = e.tasks[v].start
    slot = (time ^ (time >> 17)) % len(e.recent)
    head = e.recent[slot]
    if head >= 0 and e.tasks[head].status == READY and e.tasks[head].start == time:
        e.tasks[v].next, e.tasks[head].next = e.tasks[head].next, v
        return
    e.recent[slot] = v
    push(e.start_time, e.start_task, e.reg[STARTS], time, v)
    e.reg[STARTS] += 1


@compiled(int64(ENGINE, int64, int64))
def resolve(e: Engine, v: int, queue: int) -> int:
    """Let a task start at its `start`: a message in its time; what needs no link has left at once and joins the queue."""
    if e.graph.size[v] > 0:
        _schedule(e, v)
        return queue
    f = e.tasks[v]
    delay = 0 if e.graph.hop_start[v] < e.graph.hop_start[v + 1] else e.graph.alpha[v]
    if delay >= NEVER - f.start:
        e.reg[TOO_LATE] = v
        return queue
    f.left, f.status, f.next = f.start + delay, LEFT, queue
    return v


@compiled(void(ENGINE, int64))
def release(e: Engine, queue: int) -> None:
    """Tell the successors of a queue of tasks, linked by `next`, when they left and end."""
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
            f.waits -= 1
            if f.waits == 0:
                queue = resolve(e, after, queue)


@compiled(void(ENGINE, int64))
def begin(e: Engine, first: int) -> None:
    """Start what waits for nothing among the tasks from `first` on."""
    for v in range(first, len(e.tasks)):
        if e.tasks[v].status == WAITING and e.tasks[v].waits == 0:
            release(e, resolve(e, v, -1))


@compiled(void(ENGINE, int64))
def _vacate(e: Engine, v: int) -> None:
    """Take a flow from its links; one that was not full, and is not now, needs no new solution."""
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k = e.links[e.graph.hop_link[h]]
        k.n_flowing -= e.graph.hop_weight[h]
        k.load = k.load - e.graph.hop_weight[h] * e.tasks[v].rate if k.n_flowing > 0 else 0.0
        if k.level < np.inf or k.load > k.capacity * NEAR_FULL:
            open_link(e, e.graph.hop_link[h])


@compiled(void(ENGINE, int64, int64))
def _leave(e: Engine, link: int, now: int) -> None:
    """Let the flows of a link that leave now do so, and expect the next."""
    k, following = e.links[link], NEVER
    for i in range(k.first, k.first + k.length):
        v = e.members[i]
        f = e.tasks[v]
        if f.status != FLOWING:
            continue
        if f.left > now:
            if f.limit == link:
                following = min(following, f.left)
            continue
        f.status, f.next = LEFT, -1
        _vacate(e, v)
        release(e, v)
    expect(e, link, following)


@compiled(void(ENGINE, int64, int64))
def _start(e: Engine, v: int, now: int) -> None:
    f = e.tasks[v]
    f.status, f.remaining, f.rate, f.since, f.left = FLOWING, e.graph.size[v], 0.0, now, NEVER
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k = e.links[e.graph.hop_link[h]]
        e.members[k.first + k.length] = v
        k.length += 1
        k.n_flowing += e.graph.hop_weight[h]
        if k.level < np.inf:
            open_link(e, e.graph.hop_link[h])
    e.fresh[e.reg[FRESH]] = v
    e.reg[FRESH] += 1


@compiled(void(ENGINE, int64))
def _open_likely(e: Engine, v: int) -> None:
    """For a new flow on no open link, open those of its links that are likely to limit it."""
    least = np.inf
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k = e.links[e.graph.hop_link[h]]
        if k.opened_in == e.reg[STEP]:
            return
        least = min(least, k.capacity / k.n_flowing)
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k = e.links[e.graph.hop_link[h]]
        if k.capacity / k.n_flowing == least:
            open_link(e, e.graph.hop_link[h])


@compiled(void(ENGINE, int64))
def advance(e: Engine, until: int) -> None:
    """Let everything happen that happens before `until`; stops early, with TOO_LATE set, where a task ends beyond the clock."""
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
            _solve(e)
    e.reg[NOW] = max(e.reg[NOW], until)
