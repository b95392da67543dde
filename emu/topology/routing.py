"""What routers are made of: stages joined to routes, a hash that spreads keys, and shortest paths on any links.

P asked pairs, L links, D distinct destinations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I16, I64, Bool, column
from emu.topology.topology import CHANNELS, Links, Router, Routes

UNREACHED = np.int16(2**15 - 1)  # a distance
_CHUNK_WORK = 2**24  # destinations times links or nodes that are held at a time


def join(stages: Sequence[ArrayLike]) -> Routes:
    """Routes from the link that each stage takes: [P] or [P, H] a stage, -1 where a pair takes none there."""
    columns = [np.atleast_2d(np.asarray(stage, np.int64).T).T for stage in stages]
    table = np.concatenate(columns, axis=1)
    taken = table >= 0
    return Routes(column(np.concatenate(([0], np.cumsum(taken.sum(axis=1)))), np.int64), column(table[taken], np.int32))


def mix(*words: ArrayLike) -> I64:
    """A number of 0..2**62-1 for each row of `words`, alike for equal rows and as if drawn at random for others.

    Source: Steele et al., Fast splittable pseudorandom number generators (2014), SplitMix64's finaliser.
    """
    state: np.ndarray = np.zeros(np.broadcast_shapes(*(np.shape(word) for word in words)), np.uint64)
    with np.errstate(over="ignore"):
        for word in words:
            state = (state ^ np.asarray(word).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
    return column(state >> np.uint64(2), np.int64)


def take_turns(key: I64, *words: ArrayLike) -> I64:
    """[P] a number that, modulo the equal ways of a pair, names one: a hash of words and group, and the next for each channel.

    Of words that say only how the two ends lie to each other, so that a symmetry of the ends is one of the routes.
    """
    group, channel = np.divmod(key, CHANNELS)
    return column(mix(*words, group) + channel, np.int64)


def shortest(links: Links, n_nodes: int, relays: ArrayLike | None = None) -> Router:
    """A router over any of the shortest paths (in links); where several links lead on, a hash of the key takes one: ECMP.

    Args:
        links: Of which every route is made.
        n_nodes: Numbered 0..n_nodes-1.
        relays: [n_nodes] whether a node passes on what is not for it; unless given, all do.
    """
    passes = np.ones(n_nodes, np.bool_) if relays is None else column(relays, np.bool_)
    order = np.argsort(links.src, kind="stable")
    starts = np.searchsorted(links.src[order], np.arange(n_nodes + 1))
    return partial(_route, _Ways(links, passes, column(order, np.int64), column(starts, np.int64)))


@dataclass(frozen=True, eq=False, slots=True)
class _Ways:
    """The links by the node they leave."""

    links: Links
    passes: Bool  # [nodes]
    order: I64  # [L]
    starts: I64  # [nodes + 1]


def distances(links: Links, n_nodes: int, targets: I64, passes: Bool) -> I16:
    """[D, nodes] links on the way from each node to each target; 2**15 - 1 where there is none."""
    found = np.full((len(targets), n_nodes), UNREACHED, np.int16)
    row = np.arange(len(targets))
    found[row, targets] = 0
    reached, steps = True, 0
    while reached:
        ahead = found[:, links.dst] == steps
        ahead &= passes[links.dst] | (steps == 0)
        ahead &= found[:, links.src] == UNREACHED
        at, link = np.nonzero(ahead)
        steps += 1
        found[at, links.src[link]] = steps
        reached = len(at) > 0
    return found


def _route(ways: _Ways, src: I64, dst: I64, key: I64) -> Routes:
    targets, row = np.unique(dst, return_inverse=True)
    size = max(1, _CHUNK_WORK // max(1, len(ways.links), len(ways.passes)))
    hops = np.zeros(len(src), np.int64)
    walked: list[tuple[I64, I64, I64]] = []  # pair, which of its hops, link
    for first in range(0, len(targets), size):
        pair = np.flatnonzero((row >= first) & (row < first + size))
        away = distances(ways.links, len(ways.passes), targets[first : first + size], ways.passes)
        walked += _walk(ways, away, (pair, row[pair] - first, src[pair], dst[pair], mix(src[pair], dst[pair], key[pair])))
    if not walked:
        return Routes(column(np.zeros(len(src) + 1), np.int64), column([], np.int32))
    pair, hop, link = (np.concatenate(parts) for parts in zip(*walked, strict=True))
    np.add.at(hops, pair, 1)
    in_order = np.lexsort((hop, pair))
    return Routes(column(np.concatenate(([0], np.cumsum(hops))), np.int64), column(link[in_order], np.int32))


def _walk(ways: _Ways, away: I16, asked: tuple[I64, I64, I64, I64, I64]) -> list[tuple[I64, I64, I64]]:
    """All pairs a link further at a time, until each is there; a pair that nothing joins takes no step."""
    pair, row, here, there, flow = asked
    walked, hop = [], 0
    going = (away[row, here] != UNREACHED) & (here != there)
    while going.any():
        pair, row, here, there, flow = (c[going] for c in (pair, row, here, there, flow))
        link = _next(ways, away, row, here, mix(flow, here))
        walked.append((pair, np.full(len(pair), hop), link))
        here, hop = ways.links.dst[link].astype(np.int64), hop + 1
        going = here != there
    return walked


def _next(ways: _Ways, away: I16, row: I64, here: I64, chance: I64) -> I64:
    """[P] of the links out of `here` that lead nearer, the one that the hash takes."""
    counts = ways.starts[here + 1] - ways.starts[here]
    ends = np.cumsum(counts)
    pair = np.repeat(np.arange(len(here)), counts)
    link = ways.order[np.arange(ends[-1]) - np.repeat(ends - counts, counts) + np.repeat(ways.starts[here], counts)]
    head = ways.links.dst[link]
    nearer = (away[row[pair], head] == away[row, here][pair] - 1) & (ways.passes[head] | (away[row[pair], head] == 0))
    choices = np.bincount(pair[nearer], minlength=len(here))
    first = np.cumsum(choices) - choices
    return column(link[nearer][first + chance % choices], np.int64)


def or_shortest(own: Router, links: Links, n_nodes: int, n_npus: int) -> Router:
    """`own` between NPUs; from or to a switch, where a collective's helper is, a shortest path."""
    return between_npus(own, partial(_shortest, links, n_nodes), n_npus)


def _shortest(links: Links, n_nodes: int, src: I64, dst: I64, key: I64) -> Routes:
    """Indexed when it is asked: of most topologies it never is."""
    return shortest(links, n_nodes)(src, dst, key)


def between_npus(own: Router, otherwise: Router, n_npus: int) -> Router:
    """A router that asks `own` for pairs of NPUs and `otherwise` for those with another node at an end."""
    return partial(_between_npus, own, otherwise, n_npus)


def _between_npus(own: Router, otherwise: Router, n_npus: int, src: I64, dst: I64, key: I64) -> Routes:
    other = (src >= n_npus) | (dst >= n_npus)
    if not other.any():
        return own(src, dst, key)
    return either(other, otherwise(src[other], dst[other], key[other]), own(src[~other], dst[~other], key[~other]))


def either(which: Bool, those: Routes, others: Routes) -> Routes:
    """Routes of pairs in order: the next of `those` where `which` is set, else the next of `others`.

    Where only one side names virtual channels, the other's hops are on channel 0.
    """
    hops = np.zeros(len(which), np.int64)
    hops[which], hops[~which] = those.hops, others.hops
    inside = np.repeat(which, hops)
    link = np.empty(hops.sum(), np.int32)
    link[inside], link[~inside] = those.link, others.link
    virtual = None
    if those.virtual is not None or others.virtual is not None:
        virtual = np.zeros(len(link), np.int16)
        virtual[inside], virtual[~inside] = (0 if side.virtual is None else side.virtual for side in (those, others))
    return Routes(column(np.concatenate(([0], np.cumsum(hops))), np.int64), column(link, np.int32), virtual)
