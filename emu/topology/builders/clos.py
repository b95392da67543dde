"""Folded Clos networks: tiers of switches over NPUs, with links and routes computed by arithmetic, without tables.

Source: Zahavi, D-Mod-K routing providing non-blocking traffic for shift permutations on real life fat trees (CCIT report 776,
2010): the parallel-ports generalised fat tree PGFT(h; m; w; p). Tier l joins m_l blocks of tier l-1 into one. Every node of
tier l-1 has p_l cables to each of its w_l parents. NPUs are tier 0. All nodes of tier l below one parent differ in digit l.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import lcm, prod
from typing import Any

import numpy as np

from emu.arrays import I64, Bool
from emu.equivalence import shift
from emu.errors import must_be
from emu.topology.builders.route_parts import join, link_if, mix
from emu.topology.builders.wiring import Cables, fabric
from emu.topology.catalogue import Invariants
from emu.topology.paths.spray import routed
from emu.topology.topology import Box, Drawing, Routes, Topology, check_link_count, frames


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier of switches of a Clos network.

    A switch of the tier joins `down` blocks of the tier below; each node below has `up` parents, with `parallel` cables to
    each.
    """

    down: int  # m: blocks of the tier below that one block joins
    up: int  # w: parents of each node below
    bandwidth_Bps: float  # bandwidth of a cable, one direction
    latency_fs: int
    parallel: int = 1  # p: cables between a node and each parent
    name: str = ""  # name of the cables as a class of links
    kind: str = "cable"  # name of the cables in the bill


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of nodes and cables of each tier of a Clos network, by closed form.

    `block` is the number of NPUs under one switch of a tier, `spread` the number of its switches over the same NPUs.
    """

    nodes: tuple[int, ...]  # [T + 1] NPUs, then switches of each tier
    cables: tuple[int, ...]  # [T] cables below the switches of each tier
    block: tuple[int, ...]  # [T + 1] NPUs under one switch of that tier
    spread: tuple[int, ...]  # [T + 1] switches of that tier over the same NPUs

    @property
    def switches(self) -> int:
        """The number of switches of all tiers together."""
        return sum(self.nodes[1:])


def count(tiers: Sequence[Tier]) -> Counts:
    """Return the numbers of nodes and cables of the tiers."""
    down, up = [t.down for t in tiers], [t.up for t in tiers]
    levels = range(len(tiers) + 1)
    nodes = tuple(prod(down[level:]) * prod(up[:level]) for level in levels)
    cables = tuple(nodes[i] * t.up * t.parallel for i, t in enumerate(tiers))
    return Counts(nodes, cables, tuple(prod(down[:i]) for i in levels), tuple(prod(up[:i]) for i in levels))


def clos(
    name: str,
    tiers: Sequence[Tier],
    bill: Mapping[str, int] | None = None,
    assumptions: Sequence[str] = (),
    route: str = "hash",
) -> Topology:
    """Return the topology of NPUs under `tiers`, lowest first; dims are the digits, the highest tier's first.

    A route climbs to the lowest tier that both ends share. A hash of the pair and the key picks one of the equal paths up
    (ECMP), and one of parallel cables down.

    Args:
        name: The name of the topology, as it is written.
        tiers: One or more.
        bill: Parts of the bill besides the NPUs and the cables.
        assumptions: Sentences.
        route: How messages take equal paths, one of `EQUAL_WAYS`.

    Raises:
        InputError: There is no tier, a count is below 1, or there are more than 2**24 links.
    """
    if min((min(t.down, t.up, t.parallel) for t in tiers), default=0) < 1:
        raise must_be(name, "tiers", "one or more, with 1 or more down, up and in parallel", tiers)
    counts = count(tiers)
    check_link_count(name, 2 * sum(counts.cables))
    return fabric(
        name,
        counts.nodes[0],
        [_cables(tiers, counts, level) for level in range(len(tiers))],
        bill=bill or {},
        dims=tuple(t.down for t in reversed(tiers)),
        assumptions=tuple(assumptions),
        tiers=tuple(t.name or f"tier {i}" for i, t in enumerate(tiers, 1)),
        draw=partial(_draw, tuple(tiers), counts),
        **_route_fields(tuple(tiers), counts, route),
    )


def _paths_up(tier: Tier) -> int:
    """Return the number of equal paths from one tier up to the next: a switch, a cable up, and a cable down again for each."""
    return tier.up * tier.parallel**2


def _route_fields(tiers: tuple[Tier, ...], counts: Counts, route: str) -> dict[str, Any]:
    """Return the fields of a topology that depend on how messages take equal paths.

    Sprayed messages keep the symmetries of the network, those of one path each do not.
    """
    parts = lcm(*(prod(t.up for t in tiers[: i + 1]) * t.parallel for i, t in enumerate(tiers)))
    number, way = partial(_count_ways, tiers, counts), partial(_route_by_number, tiers, counts)
    fields = routed(route, partial(_route, tiers, counts), number, way, parts, prod(map(_paths_up, tiers)))
    return fields | ({"symmetry": partial(_shifts, tiers, counts)} if route == "spray" else {})


def _shifts(tiers: tuple[Tier, ...], counts: Counts) -> list[I64]:
    """Return, for each tier that joins several blocks, the permutation of nodes that moves each of these blocks to the next."""
    digits = tuple(t.down for t in reversed(tiers))
    of_tier = range(len(tiers) + 1)
    return [
        shift(*(((*digits[: len(tiers) - t], counts.spread[t]), len(tiers) - 1 - axis if t <= axis else None) for t in of_tier))
        for axis, tier in enumerate(tiers)
        if tier.down > 1
    ]


def _count_ways(tiers: tuple[Tier, ...], counts: Counts, src: I64, dst: I64) -> I64:
    """Return [P] the number of equal shortest paths of each pair of NPUs."""
    found = np.ones_like(src)
    for level, tier in enumerate(tiers):
        found *= np.where(src // counts.block[level] != dst // counts.block[level], _paths_up(tier), 1)
    return found


def clos_invariants(tiers: Sequence[Tier]) -> Invariants:
    """Return the invariants by closed forms, where the highest tier joins two blocks or more."""
    counts, first = count(tiers), tiers[0]
    degree = first.up * first.parallel
    return Invariants(
        2 * sum(counts.cables),
        degree,
        2 * len(tiers),
        bisection(tiers),
        npus=counts.nodes[0],
        switches=counts.switches,
        injection_Bps=degree * first.bandwidth_Bps,
        paths=prod(t.up * t.parallel**2 for t in tiers),
    )


def bisection(tiers: Sequence[Tier]) -> float | None:
    """Return the bandwidth (B/s, one direction) between two halves of the NPUs; None if the top tier has an odd number.

    The halves are those of the highest tier that joins several blocks (`Tier.down`). The bandwidth is that of half
    the cables of a tier, the least of this tier and those below. A single tier may join an odd number: one half is smaller.
    """
    counts = count(tiers)
    highest = max((i for i, t in enumerate(tiers) if t.down > 1), default=0)
    rates = [cables / 2 * t.bandwidth_Bps for cables, t in zip(counts.cables, tiers, strict=True)]
    if len(tiers) == 1:
        return rates[0] / tiers[0].down * 2 * (tiers[0].down // 2)
    return min(rates[: highest + 1]) if tiers[highest].down % 2 == 0 else None


def _cables(tiers: Sequence[Tier], counts: Counts, level: int) -> Cables:
    """Return the cables of a tier; a cable's number is (node * w + parent) * p + number among the parallel cables."""
    tier, below = tiers[level], np.arange(counts.nodes[level])
    block, which = np.divmod(below, counts.spread[level])
    parent = (block // tier.down * counts.spread[level] + which)[:, None] * tier.up + np.arange(tier.up)
    a = (below + sum(counts.nodes[:level]))[:, None, None]
    b = parent[..., None] + sum(counts.nodes[: level + 1])
    ends = np.broadcast_arrays(a, b, np.empty(tier.parallel))
    return Cables(tier.kind, ends[0], ends[1], tier.bandwidth_Bps, tier.latency_fs, level)


def _route(tiers: Sequence[Tier], counts: Counts, src: I64, dst: I64, key: I64) -> Routes:
    """Return the routes of pairs: up to the first tier that joins both NPUs, then down; a hash picks switches and cables."""
    flow = mix(src, dst, key)
    return _climb(tiers, counts, src, dst, [mix(flow, np.full_like(src, level)) for level in range(len(tiers))])


def _route_by_number(tiers: Sequence[Tier], counts: Counts, src: I64, dst: I64, way: I64) -> Routes:
    """Return the route of each pair along its path number `way`; paths of consecutive numbers part at the lowest tier."""
    picks = []
    for tier in tiers:
        way, pick = np.divmod(way, _paths_up(tier))
        picks.append(pick)
    return _climb(tiers, counts, src, dst, picks)


def _climb(tiers: Sequence[Tier], counts: Counts, src: I64, dst: I64, picks: Sequence[I64]) -> Routes:
    """Return the routes of pairs by the numbers [P], one for each tier, that pick its switch above and its cables."""
    up: list[I64] = []
    down: list[I64] = []
    which = np.zeros_like(src)  # of the switches of a tier that are over the same NPUs
    first = 0
    for level, tier in enumerate(tiers):
        lanes, parent = np.divmod(picks[level], tier.up)
        taken: Bool = src // counts.block[level] != dst // counts.block[level]
        for npu, stages, turn, lane in ((src, up, 0, lanes), (dst, down, 1, lanes // tier.parallel)):
            node = npu // counts.block[level] * counts.spread[level] + which
            cable = first + (node * tier.up + parent) * tier.parallel + lane % tier.parallel
            stages.append(link_if(taken, 2 * cable + turn))
        which = which * tier.up + parent
        first += counts.cables[level]
    return join([*up, *reversed(down)])


def _draw(tiers: Sequence[Tier], counts: Counts) -> Drawing:
    """Return a drawing with the NPUs in a row, gaps between blocks, and the switches over a block spread over its width."""
    place = np.zeros(1)
    for tier in tiers:
        pitch = np.ptp(place) + (1 if tier is tiers[0] else 1.6)
        place = (np.arange(tier.down)[:, None] * pitch + place).ravel()
    rise = max(1.5, np.ptp(place) / 6)
    at = [np.stack((place, np.zeros(len(place))), axis=-1)]
    for level in range(1, len(tiers) + 1):
        blocks = place.reshape(-1, counts.block[level])
        share = (np.arange(counts.spread[level]) + 0.5) / counts.spread[level]
        x = blocks[:, :1] + (np.ptp(blocks, axis=1)[:, None] + 0.6) * share - 0.3
        at.append(np.stack((x.ravel(), np.full(x.size, rise * level)), axis=-1))
    return Drawing(np.concatenate(at), _boxes(counts))


def _boxes(counts: Counts) -> tuple[Box, ...]:
    """Return a frame round the NPUs of each block below the top, larger frames first."""
    sizes = [size for size in counts.block[-2:0:-1] if size > 1]
    return tuple(box for size in sizes for box in frames("", size, counts.nodes[0] // size))
