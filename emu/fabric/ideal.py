"""Ideal fabrics, on which claims are made, and link clusters: sets of groups that can be timed independently.

An ideal fabric is made from the schedule itself: ports or links with one rate and one latency for each class of links.

A link cluster is a set of groups that share links with one another and with no other group, so that it can be timed by itself.
Two link clusters are of one kind if their routes are equal hop by hop, with links numbered in the order in which the cluster's
routes come to them, and with equal rates and latencies. Their graphs then differ only in the names of links, on which no time
depends; so one link cluster can stand for all of its kind.
Letters: P pairs, C classes of links, G groups of all placed schedules, K links of a link cluster, H hops.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, Bool, ascending, column, digest, ramps
from emu.collective.claim import Fabric
from emu.collective.schedule import Schedule
from emu.equivalence import components
from emu.errors import must_be
from emu.fabric.lowering.message_routes import routes_of_pairs
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.topology.topology import Links, Router, Routes, Topology


def link_clusters_of(placed: Sequence[PlacedSchedule]) -> tuple[I64, list[tuple[str, I64]]]:
    """Return the cluster of each group of ranks [G], and the kind and the links [K] of each cluster.

    A link cluster is a set of groups that share links with one another and with no other group. Its kind is a digest of its
    routes: one cluster can be timed for all of its kind. The links are in the order in which routes come to them. Groups are
    numbered schedule after schedule.

    Args:
        placed: The placed schedules, on one topology without optical switches that turn.

    Raises:
        InputError: No route joins a pair.
    """
    of_part = np.repeat(np.arange(len(placed)), [len(each.nodes) for each in placed])
    crossing = _CrossedLinks.of(placed)
    return crossing.cluster, _kinds_and_links(crossing, of_part, placed[0].topology)


@dataclass(frozen=True, eq=False, slots=True)
class _CrossedLinks:
    """The pairs of ranks of all groups, sorted by link cluster and group, and the links that their routes cross."""

    cluster: I64  # [G] link cluster of each group, numbered by its first group
    group: I64  # [pairs] group of each pair
    head_fs: I64  # [pairs] latency of each pair's route
    hops: I64  # [pairs] number of hops of each pair's route
    link: I64  # [H] links of the routes, one after another
    weight: I64  # [H] parts of a message that cross each of them

    @staticmethod
    def of(placed: Sequence[PlacedSchedule]) -> "_CrossedLinks":
        """Return the pairs of all placed schedules with their routes, sorted by link cluster."""
        several, firsts = [_routes_of_groups(each) for each in placed], np.cumsum([0, *(len(each.nodes) for each in placed)])
        group = np.concatenate([each[0] + first for each, first in zip(several, firsts, strict=False)])
        head, hops, link, weight = (np.concatenate([each[i] for each in several]) for i in (1, 2, 3, 4))
        cluster = _clusters(np.repeat(group, hops), link, int(firsts[-1]))
        by = np.lexsort((group, cluster[group]))
        hop = ramps((np.cumsum(hops) - hops)[by], hops[by])
        return _CrossedLinks(cluster, group[by], head[by], hops[by], link[hop], weight[hop])


def _routes_of_groups(placed: PlacedSchedule) -> tuple[I64, I64, I64, I64, I64]:
    """Return the group of each pair, its latency and its number of hops, then the links of all pairs and their weights."""
    n = len(placed.copies(None).first)
    ways = routes_of_pairs(placed.topology, placed.route_pairs(np.arange(n)))
    group = np.arange(n) // (placed.schedule.n_participants if placed.by_rank else 1)
    link, weight = column(ways.link, np.int64), column(ways.weight, np.int64)
    return np.tile(group, len(ways.head_fs) // max(1, n)), ways.head_fs, np.diff(ways.start), link, weight


def _clusters(group: I64, link: I64, n_groups: int) -> I64:
    """Return [G] the link cluster of each group.

    Args:
        group: [H] the group of each hop.
        link: [H] the link of each hop.
        n_groups: The number of groups.
    """
    is_crossed = np.zeros(int(link.max(initial=-1)) + 1, np.bool_)
    is_crossed[link] = True
    number, n_links = np.cumsum(is_crossed) - 1, int(np.count_nonzero(is_crossed))
    return components(n_groups + n_links, group, n_groups + number[link])[:n_groups]


def _kinds_and_links(crossing: _CrossedLinks, of_part: I64, topology: Topology) -> list[tuple[str, I64]]:
    """Return, for each link cluster, the digest of its kind and its links in the order in which its routes come to them.

    Args:
        crossing: The pairs of all groups, and their routes.
        of_part: [G] the number of the placed schedule that each group belongs to.
        topology: The topology.
    """
    capacity_Bps, parts = topology.capacity_Bps, topology.parts
    of_pair = crossing.cluster[crossing.group]
    of_hop = np.repeat(of_pair, crossing.hops)
    crossed, first, number = np.unique(of_hop * len(capacity_Bps) + crossing.link, return_index=True, return_inverse=True)
    by = np.argsort(first)  # cluster after cluster
    link, of_link, place = crossed[by] % len(capacity_Bps), of_hop[first[by]], np.empty_like(by)
    place[by] = np.arange(len(by)) - np.searchsorted(of_link, of_link)
    begins = np.diff(crossing.group, prepend=-1) != 0  # of a group; a cluster begins with one
    of_pairs = np.stack((begins, of_part[crossing.group], crossing.head_fs, crossing.hops), axis=1)
    columns = of_pairs, place[number] * parts + crossing.weight - 1, capacity_Bps[link].view(np.int64)
    every = np.arange(crossing.cluster.max(initial=-1) + 2)
    bounds = np.stack([np.searchsorted(each, every) for each in (of_pair, of_hop, of_link)], axis=1)
    slices = zip(bounds[:-1, -1].tolist(), bounds[1:, -1].tolist(), strict=True)
    return [(kind, link[slice(*span)]) for kind, span in zip(_kinds(columns, bounds), slices, strict=True)]


def _kinds(columns: Sequence[I64], bounds: I64) -> list[str]:
    """Return [clusters] a digest of each cluster's rows in all columns; clusters with equal rows have equal digests.

    Args:
        columns: Arrays whose rows are sorted by link cluster.
        bounds: [clusters + 1, columns] the row of each column at which each link cluster begins.
    """
    sizes, kinds = np.diff(bounds, axis=0), np.empty(len(bounds) - 1, dtype=object)
    shapes, shape_of = np.unique(sizes, axis=0, return_inverse=True)
    for number, shape in enumerate(shapes):
        own = np.flatnonzero(shape_of.reshape(-1) == number)
        spans = [first[:, None] + np.arange(size) for first, size in zip(bounds[own].T, shape, strict=True)]
        parts = [column[span].reshape(len(own), -1) for column, span in zip(columns, spans, strict=True)]
        rows = np.concatenate((sizes[own], *parts), axis=1)
        as_bytes = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
        _, first, kind = np.unique(as_bytes, return_index=True, return_inverse=True)
        kinds[own] = np.array([digest((rows[i],)) for i in first], dtype=object)[kind]
    return kinds.tolist()


_CHANNELS = 2**15
LinkClass = Callable[[I64, I64], I64]  # (src[P], dst[P]) -> the class of each pair of participants


def ideal(
    schedule: Schedule,
    fabric: Fabric,
    *,
    bandwidth_Bps: float | Sequence[float],
    latency_fs: int | Sequence[int],
    link_class: LinkClass | None = None,
) -> Topology:
    """Return the topology of an ideal fabric for a schedule; participant p is node p, and a route's key is its channel.

    Args:
        schedule: The schedule whose participants and channels get ports or links.
        fabric: See `Claim`.
        bandwidth_Bps: [C] of each port or link of a class; one number means one class.
        latency_fs: [C] ticks of each route.
        link_class: The class of each pair, 0..C-1; None: all pairs are in class 0.

    Raises:
        InputError: The fabric is unknown, or a class has no rate or no latency.
    """
    if fabric not in ("rank", "channel", "link", "pair"):
        raise must_be("ideal", "fabric", "rank, channel, link or pair", fabric)
    rate, latency = np.array(bandwidth_Bps, np.float64, ndmin=1), np.array(latency_fs, np.int64, ndmin=1)
    if len(rate) != len(latency):
        raise must_be("ideal", "latencies", f"{len(rate)}, one a class, as the rates are", len(latency))
    full = schedule.expand()
    src, dst, channel = (column(c[full.src != full.dst], np.int64) for c in (full.src, full.dst, full.channel))
    n, build = full.n_participants, _ports if fabric in ("rank", "channel") else _direct
    keys = _Keys(len(rate), fabric in ("channel", "link"), link_class)
    tails, heads, kind, router = build(src, dst, keys.of(src, dst, channel), n, keys)
    delay = np.where(tails < n, latency[kind], 0)  # once a route: on the port out, or on the link
    return Topology(f"ideal {fabric}", n, n + 1, Links.of(tails, heads, rate[kind], delay, kind), router)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The rule that gives each message the port of its participant, or the link of its pair, that it takes.

    There is one port or link for each class, or for each channel and class.
    """

    n_classes: int
    by_channel: bool
    link_class: LinkClass | None

    @property
    def span(self) -> int:
        """A number above every key, by which keys of several schedules are kept apart."""
        return _CHANNELS * self.n_classes

    def of(self, src: I64, dst: I64, channel: I64) -> I64:
        """Return the key of each message's port or link; the key modulo `n_classes` is the class."""
        kind = np.zeros_like(src) if self.link_class is None else np.asarray(self.link_class(src, dst), np.int64)
        if len(kind) and not 0 <= kind.min() <= kind.max() < self.n_classes:
            wrong = kind[(kind < 0) | (kind >= self.n_classes)][0]
            raise must_be("ideal", "a link class", f"0..{self.n_classes - 1}", wrong, "give each a rate and a latency")
        return channel * self.by_channel * self.n_classes + kind


def _ports(src: I64, dst: I64, key: I64, hub: int, keys: _Keys) -> tuple[I64, I64, I64, Router]:
    """Return a fabric in which each participant has one port out and one port in for each key, all joined by one hub.

    Args:
        src: [P] the sender of each pair.
        dst: [P] the receiver of each pair.
        key: [P] the key of each pair, which says which of a participant's ports it takes.
        hub: The number of the node that joins all ports.
        keys: The rule that gives each message its key.

    Returns:
        The node where each link begins, the node where it ends, the class of each link, and the router.
    """
    out, into = ascending(src * keys.span + key), ascending(dst * keys.span + key)

    def router(src: I64, dst: I64, channel: I64) -> Routes:
        key = keys.of(src, dst, channel)
        first, leaves = _find(out, src * keys.span + key)
        second, arrives = _find(into, dst * keys.span + key)
        there = leaves & arrives
        links = np.stack((first, len(out) + second), axis=-1)[there]
        return Routes(np.concatenate(([0], np.cumsum(2 * there))), column(links, np.int32))

    tails = np.concatenate((out // keys.span, np.full(len(into), hub)))
    heads = np.concatenate((np.full(len(out), hub), into // keys.span))
    return tails, heads, np.concatenate((out, into)) % keys.n_classes, router


def _direct(src: I64, dst: I64, key: I64, n: int, keys: _Keys) -> tuple[I64, I64, I64, Router]:
    """Return the links and the router of a fabric with one link for each (src, dst, key)."""
    known = ascending((src * n + dst) * keys.span + key)

    def router(src: I64, dst: I64, channel: I64) -> Routes:
        link, there = _find(known, (src * n + dst) * keys.span + keys.of(src, dst, channel))
        return Routes(np.concatenate(([0], np.cumsum(there))), column(link[there], np.int32))

    pair = known // keys.span
    return pair // n, pair % n, known % keys.n_classes, router


def _find(known: I64, wanted: I64) -> tuple[I64, Bool]:
    """Return the index of each wanted number in the sorted array `known`, and whether the array has that number."""
    if len(known) == 0:
        return np.zeros_like(wanted), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return at, column(known[at] == wanted, np.bool_)
