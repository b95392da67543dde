"""Messages that are split over several ways: the share of each link, in whole parts of a message.

Where each message of a pair is split evenly over its n ways, a link that k of them cross carries k / n of it. A task has one
rate all the same: it loads each link with the rate times this share. A topology cuts every message into the same number of
parts, of which each link carries a whole number, so that the engine counts parts as it counts messages. Letters: P pairs, H
hops.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from math import isqrt, lcm
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool, column, even_sample, ramps
from emu.errors import InputError, SplitError, must_be
from emu.topology.builders.route_parts import interleave, take_turns
from emu.topology.topology import LEAST_LOADED, Router, Routes, Spray, Topology
from emu.units import MAX_TICKS, TICKS_PER_S

_TOGETHER = 2**20  # ways that are held at one time
_SAMPLED = 16  # NPUs of each kind whose pairs show how many ways failures leave
_MOST_HOPS = 2**28  # hops of all pairs, some 2 GiB
_MOST_PARTS = 2**24  # parts into which a message is cut at most where links have failed
_SPARE_PARTS = 2**20  # the most for numbers of ways that no sample has shown: so sums of weights stay below 2**31 more often


class Crossings(NamedTuple):
    """The links that the messages of each pair cross, on one path or on several.

    `weight` is the number of parts of a message on each link.
    """

    start: I64  # [P + 1] where the hops of each pair begin
    link: I32  # [H] each link of a pair once
    weight: I32  # [H] parts of a message that cross it
    latency_fs: I64  # [P] ticks of latency of the longest way


def sprayed(topology: Topology, spray: Spray, src: I64, dst: I64, key: I64) -> Crossings:
    """Return the links that the messages of pairs cross where they are sprayed.

    Only messages between two NPUs are sprayed. One from or to any other node (a switch, or a backup NPU of UB-Mesh, which has
    a number above those of the NPUs) is whole, and takes the way of the topology's router.

    Args:
        topology: The topology.
        spray: Its rule.
        src: [P] the sources.
        dst: [P] the destinations.
        key: [P] the keys, for messages from or to a switch.

    Raises:
        InputError: No route joins a pair, or there are too many hops.
        SplitError: The ways of a pair that are left cannot share a message evenly.
    """
    found = list(_chunks(topology, spray, src, dst, key))
    hops = np.concatenate([[0], *(each[0] for each in found)])
    link, weight, latency = (np.concatenate([np.zeros(0, np.int64), *(each[i] for each in found)]) for i in (1, 2, 3))
    start = column(np.cumsum(hops), np.int64)
    return Crossings(start, column(link, np.int32), column(weight, np.int32), column(latency, np.int64))


def candidate_ways(topology: Topology, spray: Spray, src: I64, dst: I64, key: I64) -> tuple[I64, Routes]:
    """Return [P] the number of ways among which messages of each pair choose, and the routes of all these ways.

    A message from or to a node that is no NPU has one way, that of the topology's router. Arguments as in `sprayed`.

    Raises:
        InputError: No route joins a pair, or there are too many hops.
    """
    size, found = max(1, _TOGETHER // spray.most), list[tuple[I64, Routes]]()
    for first in range(0, max(1, len(src)), size):
        some = slice(first, first + size)
        found.append(_equal_paths(topology, spray, src[some], dst[some], key[some]))
        if sum(len(ways.link) for _, ways in found) > _MOST_HOPS:
            raise InputError(
                f"{topology.name}: the ways of {len(src)} pairs, up to {spray.most} each, have more than 2**28 links; take "
                "fewer ranks, or the topology with another route"
            )
    counts, hops, links = zip(*((each, ways.hops, ways.link) for each, ways in found), strict=True)
    return np.concatenate(counts), Routes.laid(np.concatenate(hops), np.concatenate(links))


def _chunks(topology: Topology, spray: Spray, src: I64, dst: I64, key: I64) -> Iterator[tuple[I64, I64, I64, I64]]:
    """Yield the numbers of hops of some pairs, then the links, the weights and the latencies of all their hops and pairs."""
    size, total = max(1, _TOGETHER // spray.most), 0
    for first in range(0, len(src), size):
        some = slice(first, first + size)
        counts, ways = _equal_paths(topology, spray, src[some], dst[some], key[some])
        found = _shares(topology, spray.parts, counts, ways)
        total += len(found[1])
        if total > _MOST_HOPS:
            raise InputError(
                f"{topology.name}: messages of {len(src)} pairs, each split over up to {spray.most} ways, cross more than "
                "2**28 links; take fewer ranks, or the topology without a spray"
            )
        yield found


def _equal_paths(topology: Topology, spray: Spray, src: I64, dst: I64, key: I64) -> tuple[I64, Routes]:
    """Return [P] the number of equal paths of each pair, and the routes of all these paths."""
    npus: Bool = np.maximum(src, dst) < topology.n_npus
    topology.routes(src[npus], dst[npus], key[npus])  # only to refuse pairs that nothing joins
    counts, ways = spray.ways(src[npus], dst[npus])
    if npus.all():
        return counts, ways
    every = np.ones(len(src), np.int64)
    every[npus] = counts
    return every, interleave(np.repeat(npus, every), ways, topology.routes(src[~npus], dst[~npus], key[~npus]))


def _shares(topology: Topology, parts: int, counts: I64, ways: Routes) -> tuple[I64, I64, I64, I64]:
    """Return the columns that `_chunks` yields: hops, links, weights, latencies."""
    n_links, of_way = len(topology.links), np.repeat(np.arange(len(counts)), counts)
    pair, times = np.unique(np.repeat(of_way, ways.hops) * n_links + ways.link, return_counts=True)
    pair, link = np.divmod(pair, n_links)
    weight, odd = np.divmod(times * parts, counts[pair])
    if odd.any():
        raise SplitError(
            f"{topology.name}: {counts[pair[odd.argmax()]]} ways of a pair are left, over which a message cannot be split "
            f"evenly in {parts} parts, which is a limit of Emu; take the topology without a spray"
        )
    return np.bincount(pair, minlength=len(counts)), link, weight, _longest(topology, counts, ways)


def _longest(topology: Topology, counts: I64, ways: Routes) -> I64:
    """Return [P] the latency, in ticks, of the longest of each pair's paths, from their number and their routes."""
    if not len(counts):
        return counts
    of_hop, first = topology.links.latency_fs[ways.link], ways.start[:-1]
    longest_s = float(np.add.reduceat(of_hop.astype(np.float64), first).max()) / TICKS_PER_S
    if longest_s >= MAX_TICKS / TICKS_PER_S / 2:
        raise must_be(topology.name, "the latency of a way", "less than 4611 s", f"{longest_s:.0f} s", "take shorter ones")
    return column(np.maximum.reduceat(np.add.reduceat(of_hop, first), np.cumsum(counts) - counts), np.int64)


def ways_by_number(count: Callable[[I64, I64], I64], route: Router) -> Callable[[I64, I64], tuple[I64, Routes]]:
    """Return the ways of a `Spray` from the number of ways of each pair and a router that takes the number of a way as its key.

    Args:
        count: (src, dst) -> [P] the number of ways of each pair.
        route: (src, dst, way) -> the route of each.
    """

    def ways(src: I64, dst: I64) -> tuple[I64, Routes]:
        counts = count(src, dst)
        pair = np.repeat(np.arange(len(src)), counts)
        return counts, route(src[pair], dst[pair], ramps(np.zeros_like(counts), counts))

    return ways


def routed(rule: str, by_hash: Router, count: Callable[[I64, I64], I64], way: Router, parts: int, most: int) -> dict[str, Any]:
    """Return the fields of a topology that decide which of the equal ways of its pair a message takes.

    Args:
        rule: One of `EQUAL_WAYS`.
        by_hash: The router of `hash`, which stays as it is.
        count: (src, dst) -> [P] the number of ways of each pair.
        way: (src, dst, way) -> the route of each.
        parts: The parts of a sprayed message.
        most: The most ways of a pair.
    """
    if rule == "hash":
        return {"router": by_hash}
    spreads = rule in ("spray", LEAST_LOADED)
    spray = Spray(parts, ways_by_number(count, way), most, rule == LEAST_LOADED) if spreads else None
    return {"router": partial(_in_turn, count, way), "spray": spray, "routing": (rule,)}


def _in_turn(count: Callable[[I64, I64], I64], way: Router, src: I64, dst: I64, key: I64) -> Routes:
    """Return the routes of pairs if the channels of a pair take its equal paths in turn, beginning with the one of a hash."""
    return way(src, dst, take_turns(key, src, dst) % count(src, dst))


def without_links(topology: Topology, spray: Spray, dead: Bool, number: I64, detour: Router) -> Spray:
    """Return a spray over the ways that are left where links have failed; a pair that has none left takes a detour, whole.

    A message that is split is cut into more parts than before, so that a way or several may be missing.

    Args:
        topology: The whole machine.
        spray: Its spray.
        dead: [L] whether each link has failed.
        number: [L] the new number of each link.
        detour: The router over the links that are left.
    """

    def ways(src: I64, dst: I64) -> tuple[I64, Routes]:
        found, good, left = _remaining_paths(spray, dead, src, dst)
        lost: Bool = left == 0
        rows = np.repeat(good, found.hops)
        kept = Routes.laid(found.hops[good], number[found.link[rows]])
        every = np.maximum(left, 1)
        return every, interleave(np.repeat(lost, every), detour(src[lost], dst[lost], np.zeros(lost.sum(), np.int64)), kept)

    left = _remaining_paths(spray, dead, *_pairs_near(topology, spray, dead))[2]
    numbers, times = np.unique(left[left > 0], return_counts=True)
    parts = _more_parts(spray, numbers[np.argsort(-times, kind="stable")].tolist())
    return replace(spray, parts=parts, ways=ways)


def _remaining_paths(spray: Spray, dead: Bool, src: I64, dst: I64) -> tuple[Routes, Bool, I64]:
    """Return all paths of pairs, whether each path still has all its links, and [P] the number of such paths of each pair."""
    counts, found = spray.ways(src, dst)
    way = np.repeat(np.arange(len(found.hops)), found.hops)
    good: Bool = np.bincount(way[dead[found.link]], minlength=len(found.hops)) == 0
    return found, good, np.bincount(np.repeat(np.arange(len(src)), counts)[good], minlength=len(src))


def _more_parts(spray: Spray, seen: list[int]) -> int:
    """Return a multiple of the parts of a spray that as many of the likely numbers of ways left as possible divide.

    The first are those that a sample of pairs has left, up to 2**24 parts. A failed part takes one way or a few: the numbers
    just below the most are next, then small ones, up to 2**20 parts.
    """
    parts, most = spray.parts, spray.most
    others = (*range(most - 1, most // 2, -1), *range(2, most // 2 + 1))
    for n, limit in chain(zip(seen, repeat(_MOST_PARTS)), zip(others, repeat(_SPARE_PARTS))):
        if lcm(parts, n) <= limit:
            parts = lcm(parts, n)
    return parts


def _pairs_near(topology: Topology, spray: Spray, dead: Bool) -> tuple[I64, I64]:
    """Return the sources and destinations of a sample of pairs of NPUs, some of them at most two links from failed links."""
    src, dst = topology.links.src, topology.links.dst
    near = np.zeros(topology.n_nodes, np.bool_)
    near[src[dead]] = near[dst[dead]] = True
    for _ in range(2):
        near[src[near[dst]]] = True
    close = np.flatnonzero(near[: topology.n_npus])
    half = min(_SAMPLED, max(2, isqrt(_TOGETHER // spray.most) // 2))
    npus = np.unique(np.concatenate([even_sample(topology.n_npus, half), close[even_sample(len(close), half)]]))
    a, b = (grid.ravel() for grid in np.meshgrid(npus, npus))
    return column(a[a != b], np.int64), column(b[a != b], np.int64)


def shares_kept(topology: Topology, spray: Spray, pairs: tuple[I64, I64, I64], node: I64, link: I64) -> int | None:
    """Return the number of hops of sprayed pairs; None unless a permutation maps their shares of links to those of the images.

    Args:
        topology: The topology.
        spray: Its rule.
        pairs: [P] the sources, the destinations and the keys.
        node: The image of each node.
        link: The image of each link.
    """
    src, dst, key = pairs
    here = sprayed(topology, spray, src, dst, key)
    there = sprayed(topology, spray, column(node[src], np.int64), column(node[dst], np.int64), key)
    pair = np.repeat(np.arange(len(src)), np.diff(here.start))
    by = np.lexsort((link[here.link], pair))  # the links of a pair are in the order of their numbers
    alike = np.array_equal(there.start, here.start) and np.array_equal(there.link, link[here.link][by])
    return len(here.link) if alike and np.array_equal(there.weight, here.weight[by]) else None
