"""Switches removed by splitting: capacity into a switch and capacity out of it become capacity past it, from rank to rank.

A switch that neither copies nor adds passes on what it gets. So each unit of capacity out of it belongs to one unit into it;
the pairs are chosen such that the trees of before can still be packed. First the capacity out of each neighbour is divided over
the others as evenly as possible. If fewer trees can then be packed, pairs are split off one at a time, each by as much as the
least cut allows. Sources: Bang-Jensen, Frank, Jackson, SIAM J. Discrete Math. 8 (1995); Zhao et al., ForestColl, 2024, arXiv
2402.06787, section 5. Letters: V nodes, N ranks, U neighbours.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from emu.arrays import F64, I64, Bool
from emu.synthesis.capacities import suffices, with_source
from emu.synthesis.max_flow import ENDLESS, max_flow

_SWEEPS = 40  # sweeps that bring sums of rows and of columns to what they must be
Tick = Callable[[], float | None]  # is called now and then: the seconds that are left (None: any); it raises if none are
Via = tuple[int, ...]  # switches that an arc between ranks passes


class UnpairedError(ValueError):
    """The error of a switch whose capacities cannot be paired: it lets out more than it lets in."""


@dataclass(eq=False, slots=True)
class SplitNetwork:
    """The capacities between nodes while switches are removed, and the switches that each part of an arc passes."""

    given: I64  # [N] trees that each rank is the root of
    capacity: I64  # [V, V] whole
    joined: Bool  # [V, V] whether messages can go from a node to another; of switches, always
    tick: Tick  # is called before flows
    ways: dict[tuple[int, int], dict[Via, int]] = field(default_factory=dict)  # amounts of an arc by the switches they pass

    def __post_init__(self) -> None:
        for a, b in zip(*np.nonzero(self.capacity), strict=True):
            self.ways[int(a), int(b)] = {(): int(self.capacity[a, b])}

    @property
    def n_ranks(self) -> int:
        """The number of ranks, N."""
        return len(self.given)

    def split(self, a: int, switch: int, b: int, amount: int) -> None:
        """Turn an amount of capacity from a to the switch and from the switch to b into capacity from a to b."""
        if not amount:
            return
        first, second = self._take(a, switch, amount), self._take(switch, b, amount)
        if a == b or not self.joined[a, b]:
            return
        self.capacity[a, b] += amount
        into = self.ways.setdefault((a, b), {})
        for before, after, part in _matched(first, second):
            via = (*before, switch, *after)
            into[via] = into.get(via, 0) + part

    def _take(self, a: int, b: int, amount: int) -> list[tuple[Via, int]]:
        """Take an amount off an arc, and return the parts of it by the switches that they pass."""
        self.capacity[a, b] -= amount
        taken, parts = list[tuple[Via, int]](), self.ways[a, b]
        for via in list(parts):
            part = min(amount, parts[via])
            parts[via] -= part
            amount -= part
            taken += [(via, part)] if part else []
            if not parts[via]:
                del parts[via]
        return taken

    def drop(self, a: int, b: int, amount: int) -> None:
        """Leave an amount of capacity from a to b unused."""
        if amount:
            self._take(a, b, amount)


def _matched(first: list[tuple[Via, int]], second: list[tuple[Via, int]]) -> list[tuple[Via, Via, int]]:
    """Return two lists of parts with equal sums, cut so that each part of one belongs to a part of the other."""
    found, i, j = list[tuple[Via, Via, int]](), 0, 0
    left, right = first[0][1], second[0][1]
    while True:
        part = min(left, right)
        found.append((first[i][0], second[j][0], part))
        left, right = left - part, right - part
        if not left:
            i += 1
            if i == len(first):
                return found
            left = first[i][1]
        if not right:
            j += 1
            right = second[j][1]


def remove_switches(
    capacity: I64, given: I64, joined: Bool, tick: Tick, *, shares: int = 1, upright: bool = False
) -> SplitNetwork:
    """Return capacities between ranks alone in which the trees that `given` counts [N] can still be packed.

    Args:
        capacity: [V, V] whole capacities in which they can be packed; the first N nodes are ranks.
        given: [N] the number of trees of each root.
        joined: [N, N] whether messages can go from a rank to another without a third rank.
        tick: It is called before flows; it raises an error when the time is over.
        shares: Parts in which a switch that lets out too much is lowered, each on the widest of its arcs.
        upright: Whether ways that lead down and then up again are avoided where possible, as routers avoid them.

    Raises:
        UnpairedError: A switch lets out more than it lets in, and no part of it could be left unused.
    """
    every = np.ones(capacity.shape, np.bool_)
    every[: len(given), : len(given)] = joined
    net = SplitNetwork(given, capacity.copy(), every, tick)
    away = _distances(capacity, len(given))
    apart = ~np.eye(len(capacity), dtype=np.bool_)
    for switch in sorted(range(len(given), len(capacity)), key=lambda switch: (-int(away[switch]), switch)):
        _balance(net, switch, shares)
        before = net.capacity.copy(), {arc: dict(parts) for arc, parts in net.ways.items()}
        near = away < away[switch]
        for usable in (apart & (near[:, None] | near[None]), apart) if upright else (apart,):
            tick()
            _split_evenly(net, switch, net.joined & usable)
            if suffices(_without(net.capacity, switch), given):
                break
            net.capacity, net.ways = before[0].copy(), {arc: dict(parts) for arc, parts in before[1].items()}
        else:
            _split_exactly(net, switch)
    return net


def _without(capacity: I64, switch: int) -> I64:
    """Return the capacities without those of a node."""
    found = capacity.copy()
    found[switch], found[:, switch] = 0, 0
    return found


def _distances(capacity: I64, n_ranks: int) -> I64:
    """Return [V] the number of arcs between each node and the nearest rank, in either direction."""
    away = np.where(np.arange(len(capacity)) < n_ranks, 0, len(capacity))
    near = (capacity > 0) | (capacity.T > 0)
    for _ in range(len(capacity)):
        reached = np.where(near, away[None], len(capacity)).min(axis=1) + 1
        if (reached >= away).all():
            break
        away = np.minimum(away, reached)
    return np.asarray(away, np.int64)


def _balance(net: SplitNetwork, switch: int, shares: int) -> None:
    """Leave capacity of a switch unused where it has more on one side than on the other, in a number of shares.

    Raises:
        UnpairedError: The capacity out of it cannot be lowered to the capacity into it.
    """
    into, out = net.capacity[:, switch].sum(), net.capacity[switch].sum()
    arcs = [(a, switch) for a in np.flatnonzero(net.capacity[:, switch]).tolist()]
    arcs = arcs if into > out else [(switch, b) for b in np.flatnonzero(net.capacity[switch]).tolist()]
    spare, dropped = int(abs(into - out)), 1
    while spare and dropped:
        dropped, part = 0, -(-spare // shares)
        for a, b in sorted(arcs, key=lambda arc: -int(net.capacity[arc])):
            amount = _droppable(net, a, b, min(spare, part - dropped, int(net.capacity[a, b])))
            net.drop(a, b, amount)
            spare, dropped = spare - amount, dropped + amount
    if spare:
        raise UnpairedError


def _droppable(net: SplitNetwork, a: int, b: int, most: int) -> int:
    """Return how much of an arc, `most` at most, can be left unused."""
    low, high = 0, most
    while low < high:
        net.tick()
        middle = (low + high + 1) // 2
        less = net.capacity.copy()
        less[a, b] -= middle
        if suffices(less, net.given):
            low = middle
        else:
            high = middle - 1
    return low


def _split_evenly(net: SplitNetwork, switch: int, usable: Bool) -> None:
    """Split all capacity of a switch, each neighbour's as evenly as possible over others, if [V, V] pairs are usable."""
    into, out = net.capacity[:, switch].copy(), net.capacity[switch].copy()
    amounts = even_amounts(into, out, usable)
    for a, b in zip(*np.nonzero(amounts), strict=True):
        net.split(int(a), switch, int(b), int(amounts[a, b]))


def even_amounts(into: I64, out: I64, usable: Bool) -> I64:
    """Return [U, U] whole amounts with given sums of rows and of columns, as even as possible.

    Args:
        into: [U] the capacity from each node into the switch.
        out: [U] the capacity from the switch to each node; in all as much.
        usable: [U, U] pairs of use; what these do not take goes to others.
    """
    share: F64 = np.where(usable, np.minimum(into[:, None], out[None]).astype(np.float64), 0.0)
    for _ in range(_SWEEPS):
        for axis, wanted in ((1, into), (0, out)):
            total = share.sum(axis=axis, keepdims=True)
            share *= np.divide(np.expand_dims(wanted, axis), total, out=np.zeros_like(total), where=total > 0)
    rows = share.sum(axis=1, keepdims=True)  # columns add up; rows may be above where pairs of use do not suffice
    share *= np.divide(into[:, None], rows, out=np.ones_like(rows), where=rows > into[:, None])
    amounts = np.floor(share + 1e-9).astype(np.int64)
    for axis, wanted in ((1, into), (0, out)):  # a sum may be above by rounding
        for line in np.flatnonzero(amounts.sum(axis=axis) > wanted).tolist():
            cells = amounts[line] if axis else amounts[:, line]
            cells[np.argmax(cells)] -= cells.sum() - wanted[line]
    for spare in (np.ceil(share).astype(np.int64) - amounts, np.where(usable, ENDLESS, 0), np.full(usable.shape, ENDLESS)):
        amounts = _fill(amounts, into, out, spare)
    return amounts


def _fill(amounts: I64, into: I64, out: I64, spare: I64) -> I64:
    """Return amounts raised by a largest flow towards the sums of rows and columns.

    Args:
        amounts: [U, U] the amounts so far.
        into: [U] sums of rows that are wanted.
        out: [U] sums of columns.
        spare: [U, U] how much each may be raised.
    """
    rows, columns = into - amounts.sum(axis=1), np.maximum(out - amounts.sum(axis=0), 0)
    found = amounts.copy()
    for a in np.flatnonzero(rows).tolist():
        for b in np.roll(np.arange(len(out)), -a - 1).tolist():
            part = min(int(rows[a]), int(columns[b]), int(spare[a, b]))
            found[a, b] += part
            rows[a] -= part
            columns[b] -= part
    return found


def _split_exactly(net: SplitNetwork, switch: int) -> None:
    """Split all capacity of a switch, pair by pair, each by as much as keeps all trees.

    Raises:
        UnpairedError: Some capacity is left.
    """
    for b in np.flatnonzero(net.capacity[switch]).tolist():
        sources = np.flatnonzero(net.capacity[:, switch]).tolist()
        for a in sorted(sources, key=lambda a: (a == b or not net.joined[a, b], -int(net.capacity[a, switch]))):
            most = min(int(net.capacity[a, switch]), int(net.capacity[switch, b]))
            net.split(a, switch, b, _splittable(net, a, switch, b, most) if most else 0)
    if net.capacity[switch].any():
        raise UnpairedError


def _splittable(net: SplitNetwork, a: int, switch: int, b: int, most: int) -> int:
    """Return how much of a pair of arcs can be split off, `most` at most, so that no cut that limits trees gets too small.

    Cuts around a and b without the switch, and cuts around the switch without a and b, lose as much as is split off. If nothing
    can go from a to b, it is left unused: then cuts around a alone and cuts without b alone lose it.
    """
    need, source = int(net.given.sum()), len(net.capacity)
    lost = ((a,), (b,)) if a == b or not net.joined[a, b] else ((a, b), (a, b))
    for sink in range(net.n_ranks):
        net.tick()
        for inside, outside in ((lost[0], (switch,)), ((switch,), lost[1])):
            if sink in inside:
                continue
            tied = with_source(net.capacity, net.given)
            tied[source, list(inside)] = ENDLESS
            tied[list(outside), sink] = np.where(np.array(outside) == sink, 0, ENDLESS)
            most = min(most, max_flow(tied, source, sink, need + most) - need)
            if most <= 0:
                return 0
    return most
