"""Max-min fair rates, solved anew only where something changed.

L links. Every sum is taken in an order that does not depend on any list's (R1), and a flow is touched only when its rate
changes bitwise (R2): so neither numbering, history nor the amount re-solved shows in a result. After a change here, touch
`kernel.py`: numba's cache of a function does not see that a function of another file, which it calls, changed.
"""

import numpy as np
from numba import boolean, float64, int64, void

from emu.fabric.engine.heap import expect, push, replace_first
from emu.fabric.engine.layout import (
    AGAIN,
    ENGINE,
    FLOWING,
    FLOWS,
    FRESH,
    LEVELS,
    NEVER,
    NOW,
    OPENED,
    TOUCHED,
    TRIAL,
    Engine,
    compiled,
    inlined,
)

NEAR_FULL = 1 - 2.0**-20  # a link loaded above this share is solved anew; one too many changes no result


@compiled(void(ENGINE, int64, float64))
def open_link(e: Engine, link: int, rate: float) -> None:
    """Have the rates on a link solved anew in this step, where no flow below `rate` is concerned."""
    e.floor[0] = min(e.floor[0], rate)
    if e.links[link].opened_in != e.reg[TRIAL]:
        e.links[link].opened_in = e.reg[TRIAL]
        e.opened[e.reg[OPENED]] = link
        e.reg[OPENED] += 1


@inlined(void(ENGINE, float64, int64))
def _push(e: Engine, key: float, node: int) -> None:
    push(e.level_key, e.level_node, e.reg[LEVELS], key, node)
    e.reg[LEVELS] += 1


@inlined(void(ENGINE))
def _pop(e: Engine) -> None:
    e.reg[LEVELS] -= 1
    n = e.reg[LEVELS]
    replace_first(e.level_key, e.level_node, n, e.level_key[n], e.level_node[n])


@inlined(void(ENGINE, int64))
def _enter(e: Engine, v: int) -> None:
    """Let a flow take part in the trial."""
    e.tasks[v].trial, e.tasks[v].new_rate = e.reg[TRIAL], -1.0
    e.flows[e.reg[FLOWS]] = v
    e.reg[FLOWS] += 1


@inlined(int64(ENGINE, int64, int64))
def _weight(e: Engine, v: int, link: int) -> int:
    h = e.graph.hop_start[v]
    while e.graph.hop_link[h] != link:
        h += 1
    return int(e.graph.hop_weight[h])


@inlined(int64(ENGINE, int64, float64))
def _split(e: Engine, link: int, rate: float) -> int:
    """Let the flows of a link from `rate` on enter the trial; collect the slower ones and those already frozen: how many."""
    k, n, n_frozen = e.links[link], 0, 0
    for j in range(k.first, k.first + k.length):
        v = e.members[j]
        f = e.tasks[v]
        if f.status != FLOWING:
            continue
        e.members[k.first + n] = v
        n += 1
        takes_part = f.trial == e.reg[TRIAL]
        if not takes_part and f.rate >= rate:
            _enter(e, v)
            if e.links[f.limit].opened_in != e.reg[TRIAL]:
                _push(e, f.rate, ~v)
        elif not takes_part or f.new_rate >= 0:
            push(e.frozen_rate, e.frozen_weight, n_frozen, f.new_rate if takes_part else f.rate, _weight(e, v, link))
            n_frozen += 1
    k.length = n
    return n_frozen


@inlined(boolean(ENGINE, int64, float64))
def _begin_round(e: Engine, link: int, rate: float) -> bool:
    """Close a link's round and begin that of `rate`; whether anybody may come after the one that is closed."""
    k = e.links[link]
    if k.best <= k.round:
        return False
    k.used += k.round * k.n_frozen
    k.best = max(k.best, (k.capacity - k.used) / k.n_left)
    k.round, k.n_frozen = rate, 0
    return True


@inlined(boolean(ENGINE, int64, float64))
def _open(e: Engine, link: int, rate: float) -> bool:
    """Solve a link anew from `rate` on; whether that can still be: no slower flow is above its level, or after one at it."""
    k = e.links[link]
    k.opened_in, k.rise, k.new_level = e.reg[TRIAL], k.level, np.inf
    k.used, k.round, k.n_frozen, k.n_left = 0.0, -1.0, 0, k.n_flowing
    n = _split(e, link, rate)
    if k.n_flowing == 0:
        return True
    k.best = k.capacity / k.n_flowing
    while n > 0:
        if k.round != e.frozen_rate[0] and not _begin_round(e, link, e.frozen_rate[0]):
            return False
        k.n_frozen += e.frozen_weight[0]
        k.n_left -= e.frozen_weight[0]
        n -= 1
        replace_first(e.frozen_rate, e.frozen_weight, n, e.frozen_rate[n], e.frozen_weight[n])
    if k.n_left == 0:
        return bool(k.best >= k.round)
    if k.round < rate and not _begin_round(e, link, rate):
        return False
    _push(e, min(k.best, k.rise), link)
    return bool(k.best >= rate)


@compiled(void(ENGINE, int64, float64))
def _open_late(e: Engine, link: int, rate: float) -> None:
    """Open a link in the middle of a trial; where it is too late for that, have another trial."""
    if e.reg[AGAIN] > 0:
        return
    e.opened[e.reg[OPENED]] = link
    e.reg[OPENED] += 1
    if not _open(e, link, rate):
        e.reg[AGAIN] = e.reg[OPENED]


@inlined(void(ENGINE, int64, float64, float64))
def _load(e: Engine, link: int, more: float, rate: float) -> None:
    """Load a link that is not open; open it where it becomes full by that."""
    k = e.links[link]
    if k.tried_in != e.reg[TRIAL]:
        k.tried_in, k.tried = e.reg[TRIAL], k.load
        e.touched[e.reg[TOUCHED]] = link
        e.reg[TOUCHED] += 1
    k.tried += more
    if more > 0 and k.tried > k.capacity * NEAR_FULL:
        _open_late(e, link, rate)


@inlined(void(ENGINE, int64, float64))
def _freeze(e: Engine, v: int, rate: float) -> None:
    f = e.tasks[v]
    f.new_rate = rate
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        link, weight = e.graph.hop_link[h], e.graph.hop_weight[h]
        k = e.links[link]
        if k.opened_in == e.reg[TRIAL]:
            if k.round != rate:
                _begin_round(e, link, rate)
            k.n_frozen += weight
            k.n_left -= weight
        elif rate != f.rate and k.level < np.inf:
            _open_late(e, link, rate)
        elif rate != f.rate:
            _load(e, link, weight * (rate - f.rate), rate)


@inlined(int64(ENGINE, int64, float64))
def _saturate(e: Engine, link: int, rate: float) -> int:
    """Freeze at `rate` what is left on a link; how many flows."""
    k, n = e.links[link], 0
    k.new_level = rate
    for j in range(k.first, k.first + k.length):
        v = e.members[j]
        if e.tasks[v].new_rate < 0:
            e.tasks[v].new_limit = link
            _freeze(e, v, rate)
            n += 1
    return n


@inlined(boolean(ENGINE, int64, float64))
def _is_held(e: Engine, v: int, rate: float) -> bool:
    """Whether a link that is not open keeps a flow at its old rate; freezes it there."""
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k = e.links[e.graph.hop_link[h]]
        if k.opened_in != e.reg[TRIAL] and k.level == rate:
            e.tasks[v].new_limit = e.graph.hop_link[h]
            _freeze(e, v, rate)
            return True
    return False


@inlined(void(ENGINE, int64, float64))
def _let_rise(e: Engine, v: int, rate: float) -> None:
    """Open those links of a flow about to pass its old rate that were full, or would be at the share it is likely to get."""
    share = np.inf
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k, weight = e.links[e.graph.hop_link[h]], e.graph.hop_weight[h]
        if k.opened_in != e.reg[TRIAL] and k.level < np.inf:
            _open_late(e, e.graph.hop_link[h], rate)
        share = min(share, k.best if k.opened_in == e.reg[TRIAL] else rate + (k.capacity - k.load) / weight)
    for h in range(e.graph.hop_start[v], e.graph.hop_start[v + 1]):
        k, weight = e.links[e.graph.hop_link[h]], e.graph.hop_weight[h]
        if k.opened_in != e.reg[TRIAL]:
            load = k.tried if k.tried_in == e.reg[TRIAL] else k.load
            if load + weight * (share - rate) >= k.capacity * NEAR_FULL:
                _open_late(e, e.graph.hop_link[h], rate)


@inlined(int64(ENGINE, int64, float64))
def _raise(e: Engine, link: int, rate: float) -> int:
    """Let the flows that a link held at `rate` pass it; how many of them another link holds there."""
    k, n = e.links[link], 0
    k.rise = np.inf
    for j in range(k.first, k.first + k.length):
        v = e.members[j]
        if e.tasks[v].new_rate < 0 and e.tasks[v].limit == link:
            if _is_held(e, v, rate):
                n += 1
            else:
                _let_rise(e, v, rate)
    return n


@inlined(int64(ENGINE, float64, int64))
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


@inlined(int64(ENGINE, int64))
def _stay(e: Engine, v: int) -> int:
    """Freeze a flow at its old rate if the link that limits it is still not open; 1: done."""
    f = e.tasks[v]
    if f.new_rate >= 0 or e.links[f.limit].opened_in == e.reg[TRIAL]:
        return 0
    f.new_limit = f.limit
    _freeze(e, v, f.rate)
    return 1


@inlined(void(ENGINE))
def _fill(e: Engine) -> None:
    """Freeze the flows in rounds of ascending rate.

    A link's level after a round is (capacity - what the rounds so far use) / (the weights not yet frozen), and never falls.
    The round in progress does not count: ties are found by `==` with the level before it, whatever the order they come in.
    """
    n_frozen = 0
    while n_frozen < e.reg[FLOWS] and e.reg[AGAIN] == 0:
        rate, node = e.level_key[0], e.level_node[0]
        if node >= 0:
            n_frozen += _turn(e, rate, node)
        else:
            _pop(e)
            n_frozen += _stay(e, ~node)


@inlined(void(ENGINE, int64, int64))
def _set_rate(e: Engine, v: int, now: int) -> None:
    f = e.tasks[v]
    f.remaining = max(0.0, f.remaining - f.rate * (now - f.since))
    f.since, f.rate, f.left = now, f.new_rate, NEVER
    if f.rate > 0:
        body = max(1.0, np.rint(f.remaining / f.rate))
        if body < float(NEVER - now):
            f.left = now + np.int64(body)


@inlined(void(ENGINE))
def _apply(e: Engine) -> None:
    """Give the flows their new rates, and the links their next events."""
    for i in range(e.reg[TOUCHED]):
        k = e.links[e.touched[i]]
        if k.opened_in != e.reg[TRIAL]:
            k.load = k.tried
    for i in range(e.reg[OPENED]):
        k = e.links[e.opened[i]]
        k.load, k.level, k.next_left = k.used + k.round * k.n_frozen, k.new_level, NEVER
    for i in range(e.reg[FLOWS]):
        v = e.flows[i]
        f = e.tasks[v]
        if f.new_rate != f.rate:
            _set_rate(e, v, e.reg[NOW])
        f.limit = f.new_limit
        k = e.links[f.limit]
        if f.left < k.next_left:
            k.next_left = f.left
            if k.opened_in != e.reg[TRIAL]:
                expect(e, f.limit, f.left)
    for i in range(e.reg[OPENED]):
        expect(e, e.opened[i], e.links[e.opened[i]].next_left)


@inlined(void(ENGINE, int64))
def _try(e: Engine, n_first: int) -> None:
    """Fill the first of the opened links, and those that it opens on the way."""
    e.reg[AGAIN] = e.reg[FLOWS] = e.reg[LEVELS] = e.reg[TOUCHED] = 0
    for i in range(e.reg[FRESH]):
        _enter(e, e.fresh[i])
    for i in range(n_first):
        e.links[e.opened[i]].opened_in = e.reg[TRIAL]
    for i in range(n_first):
        _open(e, e.opened[i], e.floor[0])
    _fill(e)


@inlined(void(ENGINE, int64))
def _put_back(e: Engine, n_first: int) -> None:
    """Undo a trial, and put the link that was opened too late among the first."""
    e.opened[n_first] = e.opened[e.reg[AGAIN] - 1]
    e.reg[OPENED] = n_first + 1
    e.reg[TRIAL] += 1
    for i in range(e.reg[FLOWS]):
        e.tasks[e.flows[i]].new_rate = e.tasks[e.flows[i]].rate


@inlined(void(ENGINE))
def solve(e: Engine) -> None:
    """Max-min fair rates, where flows came, or opened links lost some or changed capacity, in one pass of ascending rate.

    Call a link consistent if, its flows taken in rounds of ascending rate, none is above the level of its turn, and nobody
    comes after one that is at it. Only one set of rates makes every link consistent and lets every flow be at the level of
    some link (by induction over ascending rates): so what was left alone cannot show, as long as it is consistent still.

    A flow that falls to a rate, or passes its old one, changes nothing below that: its full links are opened then and there,
    and what is slower on them stays. Only a link that was not full can turn out to be so too late, and be one of the first
    in another trial. All starts at the floor, below which no link that came, lost or changed can freeze a flow.
    """
    n_first = e.reg[OPENED]
    while True:
        _try(e, n_first)
        if e.reg[AGAIN] == 0:
            break
        _put_back(e, n_first)
        n_first += 1
    _apply(e)
    e.reg[OPENED] = e.reg[FRESH] = 0
    e.reg[TRIAL] += 1
    e.floor[0] = np.inf
