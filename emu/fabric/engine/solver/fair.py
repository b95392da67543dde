"""Max-min fair rates, solved anew only where something changed.

L links. Every sum is taken in an order that does not depend on any list's (R1), and a flow is touched only when its rate
changes bitwise (R2): so neither numbering, history nor the amount re-solved shows in a result.
"""

import numpy as np

from emu.compiled.function import compiled
from emu.fabric.engine.layout import FLOWING, FLOWS, FRESH, LATE, LEVELS, NEVER, NOW, OPENED, TRIAL, Engine
from emu.fabric.engine.solver.heap import expect, replace_first
from emu.fabric.engine.solver.opening import begin_round, enter, open_queued, queue

NEAR_FULL = 1 - 2.0**-20  # a link loaded above this share is solved anew; one too many changes no result


@compiled
def _pop(e: Engine) -> None:
    e.reg[LEVELS] -= 1
    n = e.reg[LEVELS]
    replace_first(e.level_key, e.level_node, n, e.level_key[n], e.level_node[n])


@compiled
def _freeze(e: Engine, v: int, rate: float) -> None:
    """Give a flow its new rate; if that is another, open those links that were full, or become so."""
    more, trial = rate - e.tasks[v].rate, e.reg[TRIAL]
    e.tasks[v].new_rate = rate
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        link, weight = e.graph.hop_link[h], e.graph.hop_weight[h]
        k = e.links[link]
        if k.opened_in == trial:
            if k.round != rate:
                begin_round(e, link, rate)
            k.n_frozen += weight
            k.n_left -= weight
        elif more != 0:
            k.load += weight * more
            if k.load > k.capacity * NEAR_FULL and (more > 0 or k.load == np.inf):
                queue(e, link, rate)


@compiled
def _saturate(e: Engine, link: int, rate: float) -> int:
    """Freeze at `rate` what is left on a link; how many flows."""
    k, n = e.links[link], 0
    k.new_level = rate
    for j in range(k.first + k.n_others, k.first + k.length):
        if k.n_left == 0:
            break
        v = e.members[j]
        if e.tasks[v].new_rate < 0:
            e.tasks[v].new_limit = link
            _freeze(e, v, rate)
            n += 1
    return n


@compiled
def _open_fullest(e: Engine, v: int, rate: float, share: float) -> None:
    """Open the links of a flow that will be full when it passes from `rate` to `share`."""
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k, weight = e.links[e.graph.hop_link[h]], e.graph.hop_weight[h]
        if k.opened_in != e.reg[TRIAL] and k.capacity * NEAR_FULL - k.load <= weight * (share - rate):
            queue(e, e.graph.hop_link[h], rate)


@compiled
def _let_rise(e: Engine, v: int, rate: float) -> int:
    """Let a flow pass its old rate: open its full links, or those likely to be; if one holds it at `rate`, freeze it: 1."""
    share, room, heaviest = np.inf, np.inf, 0
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k = e.links[e.graph.hop_link[h]]
        if k.opened_in == e.reg[TRIAL]:
            share = min(share, k.best)
        elif k.load < np.inf:
            room, heaviest = min(room, k.capacity * NEAR_FULL - k.load), max(heaviest, e.graph.hop_weight[h])
        elif k.level == rate:
            e.tasks[v].new_limit = e.graph.hop_link[h]
            _freeze(e, v, rate)
            return 1
        else:
            queue(e, e.graph.hop_link[h], rate)
            share = min(share, k.level)
    if room <= heaviest * (share - rate):
        _open_fullest(e, v, rate, share)
    return 0


@compiled
def _raise(e: Engine, link: int, rate: float) -> int:
    """Let the flows that a link held at `rate` pass it; how many of them another link holds there."""
    k, n = e.links[link], 0
    k.rise = np.inf
    for j in range(k.first + k.n_others, k.first + k.length):
        v = e.members[j]
        if e.tasks[v].new_rate < 0 and e.tasks[v].limit == link:
            n += _let_rise(e, v, rate)
    return n


@compiled
def _turn(e: Engine, rate: float, link: int) -> int:
    """Let it be an opened link's turn, the first of the heap; how many flows that freezes."""
    k, n = e.links[link], 0
    if k.n_left > 0 and k.round < rate:
        k.best = max(k.best, (k.capacity - (k.used + k.round * k.n_frozen)) / k.n_left)
    if k.n_left > 0 and k.best > rate:
        n = _raise(e, link, rate) if k.rise == rate else 0
        replace_first(e.level_key, e.level_node, e.reg[LEVELS], min(k.best, k.rise), link)
        return n
    _pop(e)
    return _saturate(e, link, rate) if k.n_left > 0 else 0


@compiled
def _stay(e: Engine, link: int) -> int:
    """Freeze at their old rate the flows that stay with a link, if that is still not open; how many."""
    k, n = e.links[link], 0
    v = k.staying if k.opened_in != e.reg[TRIAL] else -1
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
def _fill(e: Engine, n_first: int) -> None:
    """Freeze the flows in rounds of ascending rate, and open what that has queued after each turn.

    A link's level after a round is (capacity - what the rounds so far use) / (the weights not yet frozen), and never falls.
    The round in progress does not count: ties are found by `==` with the level before it, whatever the order they come in.
    """
    n_frozen, n_open, rate = 0, 0, e.floor[0]
    while True:
        while n_open < e.reg[OPENED]:
            link = e.opened[n_open]
            if not open_queued(e, link, rate) and n_open >= n_first:
                e.late[e.reg[LATE]] = link
                e.reg[LATE] += 1
            n_open += 1
        if n_frozen == e.reg[FLOWS]:
            break
        rate, node = e.level_key[0], e.level_node[0]
        if node >= 0:
            n_frozen += _turn(e, rate, node)
        else:
            _pop(e)
            n_frozen += _stay(e, ~node)


@compiled
def _set_rate(e: Engine, v: int, now: int) -> None:
    f = e.tasks[v]
    f.remaining = max(0.0, f.remaining - f.rate * (now - f.since))
    f.since, f.rate, f.left = now, f.new_rate, NEVER
    if f.rate > 0:
        body = max(1.0, np.rint(f.remaining / f.rate))
        if body < float(NEVER - now):
            f.left = now + np.int64(body)


@compiled
def _apply(e: Engine) -> None:
    """Give the flows their new rates, and the links their next events."""
    for i in range(e.reg[OPENED]):
        k = e.links[e.opened[i]]
        k.load, k.level, k.next_left = np.inf, k.new_level, NEVER
        if k.level == np.inf:
            k.load, k.n_kept = k.used + k.round * k.n_frozen, 0
    for i in range(e.reg[FLOWS]):
        v = e.flows[i]
        f = e.tasks[v]
        if f.new_rate != f.rate:
            _set_rate(e, v, e.reg[NOW])
        f.state, f.limit = FLOWING, f.new_limit
        k = e.links[f.limit]
        if f.left < k.next_left:
            k.next_left = f.left
            if k.opened_in != e.reg[TRIAL]:
                expect(e, f.limit, f.left)
    for i in range(e.reg[OPENED]):
        expect(e, e.opened[i], e.links[e.opened[i]].next_left)


@compiled
def _try(e: Engine, n_first: int) -> None:
    """Fill the first of the opened links, and those that it opens on the way.

    At the end a link that did not get its turn, as another froze its flows at the same rate, must forget who stayed with it.
    """
    e.reg[LATE] = e.reg[FLOWS] = e.reg[LEVELS] = 0
    for i in range(e.reg[FRESH]):
        enter(e, e.fresh[i])
    for i in range(n_first):
        e.links[e.opened[i]].opened_in = e.reg[TRIAL]
    _fill(e, n_first)
    for i in range(e.reg[LEVELS]):
        if e.level_node[i] < 0:
            e.links[~e.level_node[i]].staying = -1


@compiled
def _unload(e: Engine, v: int) -> None:
    """Give a flow its old rate again, and its load to the links that were not open."""
    f = e.tasks[v]
    if f.new_rate != f.rate:
        for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
            k = e.links[e.graph.hop_link[h]]
            if k.opened_in != e.reg[TRIAL]:
                k.load -= e.graph.hop_weight[h] * (f.new_rate - f.rate)
    f.state, f.new_rate = FLOWING, f.rate


@compiled
def _put_back(e: Engine, n_first: int) -> int:
    """Undo a trial; put the links that were opened too late, or whose load is lost, among the first: how many these are."""
    for i in range(e.reg[FLOWS]):
        _unload(e, e.flows[i])
    for i in range(e.reg[OPENED]):
        k = e.links[e.opened[i]]
        k.n_kept = 0
        if i >= n_first and k.load < np.inf:
            e.opened[n_first] = e.opened[i]
            n_first += 1
    for i in range(e.reg[LATE]):
        if e.links[e.late[i]].load == np.inf:
            e.opened[n_first] = e.late[i]
            n_first += 1
    e.reg[OPENED] = n_first
    e.reg[TRIAL] += 1
    return n_first


@compiled
def solve(e: Engine) -> None:
    """Max-min fair rates, where flows came, or opened links lost some or changed capacity, in one pass of ascending rate.

    Call a link consistent if, its flows taken in rounds of ascending rate, none is above the level of its turn, and nobody
    comes after one that is at it. Only one set of rates makes every link consistent and lets every flow be at the level of
    some link (by induction over ascending rates): so what was left alone cannot show, as long as it is consistent still.

    A flow that falls to a rate, or passes its old one, changes nothing below that: its full links are opened then and there,
    and what is slower on them stays. Only a link that was not full can turn out to be so too late. The trial is nevertheless
    filled to its end, so that another one has all such links among its first. Every trial starts at the floor, below which
    no link that came, lost or changed can freeze a flow.
    """
    n_first = e.reg[OPENED]
    while True:
        _try(e, n_first)
        if e.reg[LATE] == 0:
            break
        n_first = _put_back(e, n_first)
    _apply(e)
    e.reg[OPENED] = e.reg[FRESH] = 0
    e.reg[TRIAL] += 1
    e.floor[0] = np.inf
