"""Max-min fair rates of flows, computed anew only for the links where something has changed.

Every sum is taken in an order that does not depend on the order of any list (R1). A flow is changed only if the bits of its
rate change (R2). So results do not depend on the numbering of tasks, on the history, or on how much is solved again. Letter: L
links.
"""

import numpy as np

from emu.compiled.function import compiled
from emu.fabric.engine.solver.opening import begin_round, enter, mark_opened, open_marked, replace_first, set_next_event
from emu.fabric.engine.state_layout import FLOWING, FLOWS, FRESH, LATE, LEVELS, NEVER, NOW, OPENED, TRIAL, SolverArrays

NEAR_FULL = 1 - 2.0**-20  # a link loaded above this share is solved anew; one too many changes no result


@compiled
def _pop(e: SolverArrays) -> None:
    """Remove the link with the lowest fair rate from the heap of levels."""
    e.scalars[LEVELS] -= 1
    n = e.scalars[LEVELS]
    replace_first(e.level_key, e.level_node, n, e.level_key[n], e.level_node[n])


@compiled
def _freeze(e: SolverArrays, v: int, rate: float) -> None:
    """Fix the new rate of a flow; if it differs from the old rate, open its links that were full or become full."""
    more, trial = rate - e.tasks[v].rate, e.scalars[TRIAL]
    e.tasks[v].new_rate = rate
    for h in range(e.graph.hop_start[v], e.graph.hop_end[v]):
        link, weight = e.graph.hop_link[h], e.graph.hop_weight[h]
        k = e.links[link]
        if k.opened_in == trial:
            if k.round != rate:
                begin_round(e, link, rate)
            k.n_frozen += weight
            k.n_unfrozen -= weight
        elif more != 0:
            k.load += weight * more
            if k.load > k.capacity * NEAR_FULL and (more > 0 or k.load == np.inf):
                mark_opened(e, link, rate)


@compiled
def _saturate(e: SolverArrays, link: int, rate: float) -> int:
    """Fix the new rate of all remaining flows of a link at `rate`, and return the number of these flows."""
    k, n = e.links[link], 0
    k.new_level = rate
    for j in range(k.first + k.n_others, k.first + k.length):
        if k.n_unfrozen == 0:
            break
        v = e.members[j]
        if e.tasks[v].new_rate < 0:
            e.tasks[v].new_limit = link
            _freeze(e, v, rate)
            n += 1
    return n


@compiled
def _open_fullest(e: SolverArrays, v: int, rate: float, share: float) -> None:
    """Open the links of a flow that will be full when the flow passes from `rate` to `share`."""
    for h in range(e.graph.hop_start[v], e.graph.hop_end[v]):
        k, weight = e.links[e.graph.hop_link[h]], e.graph.hop_weight[h]
        if k.opened_in != e.scalars[TRIAL] and k.capacity * NEAR_FULL - k.load <= weight * (share - rate):
            mark_opened(e, e.graph.hop_link[h], rate)


@compiled
def _let_rise(e: SolverArrays, v: int, rate: float) -> int:
    """Allow flow `v` to exceed its old rate, and open its links that are full or will probably be full.

    Returns:
        1 if a link holds the flow at `rate`, so that it is frozen there; else 0.
    """
    share, room, heaviest = np.inf, np.inf, 0
    for h in range(e.graph.hop_start[v], e.graph.hop_end[v]):
        k = e.links[e.graph.hop_link[h]]
        if k.opened_in == e.scalars[TRIAL]:
            share = min(share, k.best)
        elif k.load < np.inf:
            room, heaviest = min(room, k.capacity * NEAR_FULL - k.load), max(heaviest, e.graph.hop_weight[h])
        elif k.level == rate:
            e.tasks[v].new_limit = e.graph.hop_link[h]
            _freeze(e, v, rate)
            return 1
        else:
            mark_opened(e, e.graph.hop_link[h], rate)
            share = min(share, k.level)
    if room <= heaviest * (share - rate):
        _open_fullest(e, v, rate, share)
    return 0


@compiled
def _raise(e: SolverArrays, link: int, rate: float) -> int:
    """Let the flows that a link held at `rate` exceed it, and return how many of them another link now holds at that rate."""
    k, n = e.links[link], 0
    k.rise = np.inf
    for j in range(k.first + k.n_others, k.first + k.length):
        v = e.members[j]
        if e.tasks[v].new_rate < 0 and e.tasks[v].limit == link:
            n += _let_rise(e, v, rate)
    return n


@compiled
def _process_link(e: SolverArrays, rate: float, link: int) -> int:
    """Process the opened link with the lowest level, and return the number of flows whose rates this fixes."""
    k, n = e.links[link], 0
    if k.n_unfrozen > 0 and k.round < rate:
        k.best = max(k.best, (k.capacity - (k.used + k.round * k.n_frozen)) / k.n_unfrozen)
    if k.n_unfrozen > 0 and k.best > rate:
        n = _raise(e, link, rate) if k.rise == rate else 0
        replace_first(e.level_key, e.level_node, e.scalars[LEVELS], min(k.best, k.rise), link)
        return n
    _pop(e)
    return _saturate(e, link, rate) if k.n_unfrozen > 0 else 0


@compiled
def _stay(e: SolverArrays, link: int) -> int:
    """Fix, at their old rate, the flows that a link which is not opened still limits; return their number."""
    k, n = e.links[link], 0
    v = k.staying if k.opened_in != e.scalars[TRIAL] else -1
    k.staying = -1
    while v >= 0:
        f = e.tasks[v]
        if f.new_rate < 0:
            f.new_limit = link
            _freeze(e, v, f.rate)
            n += 1
        v = f.next
    return n


@compiled
def _fill(e: SolverArrays, n_first: int) -> None:
    """Freeze the flows in rounds of ascending rate, and open the links that each link marks.

    A link's level after a round is (capacity - what the rounds so far use) / (the weights not yet frozen), and never falls.
    The round in progress does not count: ties are found by `==` with the level before it, in whatever order they come.
    """
    n_frozen, n_open, rate = 0, 0, e.floor[0]
    while True:
        while n_open < e.scalars[OPENED]:
            link = e.opened[n_open]
            if not open_marked(e, link, rate) and n_open >= n_first:
                e.late[e.scalars[LATE]] = link
                e.scalars[LATE] += 1
            n_open += 1
        if n_frozen == e.scalars[FLOWS]:
            break
        rate, node = e.level_key[0], e.level_node[0]
        if node >= 0:
            n_frozen += _process_link(e, rate, node)
        else:
            _pop(e)
            n_frozen += _stay(e, ~node)


@compiled
def _set_rate(e: SolverArrays, v: int, now: int) -> None:
    """Set the rate of task `v` from tick `now` on, and compute the tick at which the task leaves."""
    f = e.tasks[v]
    f.remaining = max(0.0, f.remaining - f.rate * (now - f.since))
    f.since, f.rate, f.left = now, f.new_rate, NEVER
    if f.rate > 0:
        ticks = max(1.0, np.rint(f.remaining / f.rate))
        if ticks < float(NEVER - now):
            f.left = now + np.int64(ticks)


@compiled
def _apply(e: SolverArrays) -> None:
    """Store the new rates of all flows of the trial, and set the next event of each opened link."""
    for i in range(e.scalars[OPENED]):
        k = e.links[e.opened[i]]
        k.load, k.level, k.next_left = np.inf, k.new_level, NEVER
        if k.level == np.inf:
            k.load, k.n_kept = k.used + k.round * k.n_frozen, 0
    for i in range(e.scalars[FLOWS]):
        v = e.flows[i]
        f = e.tasks[v]
        if f.new_rate != f.rate:
            _set_rate(e, v, e.scalars[NOW])
        f.state, f.limit = FLOWING, f.new_limit
        k = e.links[f.limit]
        if f.left < k.next_left:
            k.next_left = f.left
            if k.opened_in != e.scalars[TRIAL]:
                set_next_event(e, f.limit, f.left)
    for i in range(e.scalars[OPENED]):
        set_next_event(e, e.opened[i], e.links[e.opened[i]].next_left)


@compiled
def _try(e: SolverArrays, n_first: int) -> None:
    """Compute one trial solution: process the links that are opened first, and the links that the trial opens.

    At the end, a link that was not processed, because another link froze its flows at the same rate, must forget the flows that
    stayed with it.
    """
    e.scalars[LATE] = e.scalars[FLOWS] = e.scalars[LEVELS] = 0
    for i in range(e.scalars[FRESH]):
        enter(e, e.fresh[i])
    for i in range(n_first):
        e.links[e.opened[i]].opened_in = e.scalars[TRIAL]
    _fill(e, n_first)
    for i in range(e.scalars[LEVELS]):
        if e.level_node[i] < 0:
            e.links[~e.level_node[i]].staying = -1


@compiled
def _unload(e: SolverArrays, v: int) -> None:
    """Restore the old rate of a flow, and its old load on links that were not opened."""
    f = e.tasks[v]
    if f.new_rate != f.rate:
        for h in range(e.graph.hop_start[v], e.graph.hop_end[v]):
            k = e.links[e.graph.hop_link[h]]
            if k.opened_in != e.scalars[TRIAL]:
                k.load -= e.graph.hop_weight[h] * (f.new_rate - f.rate)
    f.state, f.new_rate = FLOWING, f.rate


@compiled
def _put_back(e: SolverArrays, n_first: int) -> int:
    """Undo a trial solution, and return the new number of links that are opened first.

    These now include the links that the trial opened too late, or whose load is unknown.
    """
    for i in range(e.scalars[FLOWS]):
        _unload(e, e.flows[i])
    for i in range(e.scalars[OPENED]):
        k = e.links[e.opened[i]]
        k.n_kept = 0
        if i >= n_first and k.load < np.inf:
            e.opened[n_first] = e.opened[i]
            n_first += 1
    for i in range(e.scalars[LATE]):
        if e.links[e.late[i]].load == np.inf:
            e.opened[n_first] = e.late[i]
            n_first += 1
    e.scalars[OPENED] = n_first
    e.scalars[TRIAL] += 1
    return n_first


@compiled
def solve(e: SolverArrays) -> None:
    """Solve the max-min fair rates where flows came, or opened links lost flows or changed capacity, by ascending rate.

    Call a link consistent if, with its flows taken in rounds of ascending rate, no flow is above the level of its round, and no
    flow comes after one that is at the level. Only one set of rates makes every link consistent and lets every flow be at the
    level of some link (by induction over ascending rates). So links that are left alone do not change the result, as long as
    they stay consistent.

    A flow that falls to a rate, or passes its old one, changes nothing below that rate: its full links are opened there, and
    slower flows on them keep their rates. Only a link that was not full can turn out too late to be full. The trial is still
    filled to its end, so that the next trial has all such links among its first. Every trial starts at the floor: the rate
    below which no link that came, lost a flow or changed can freeze a flow.
    """
    n_first = e.scalars[OPENED]
    while True:
        _try(e, n_first)
        if e.scalars[LATE] == 0:
            break
        n_first = _put_back(e, n_first)
    _apply(e)
    e.scalars[OPENED] = e.scalars[FRESH] = 0
    e.scalars[TRIAL] += 1
    e.floor[0] = np.inf
