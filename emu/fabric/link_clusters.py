"""Clusters: groups that share links with one another and with no other group, so that each cluster can be timed by itself.

Two clusters have one kind if their routes are equal hop by hop, with links numbered in the order in which the cluster's routes
come to them, and with equal rates and latencies. Their graphs then differ only in the names of links, on which no time depends;
so one cluster can stand for all of its kind. Letters: G groups of all placed schedules, K links of a cluster, H hops.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, column, digest
from emu.fabric.lowering.message_routes import routes_of_pairs
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.topology.orbits import components


class LinkCluster(NamedTuple):
    """Groups that share links with one another, but with no other group."""

    kind: str  # equal for clusters whose routes are equal, whatever is sent on them
    link: I64  # [K] links, in the order in which its routes come to them


def link_clusters_of(placed: Sequence[PlacedSchedule]) -> tuple[I64, list[LinkCluster]]:
    """Return the cluster of each group [G], and the clusters; the groups of the schedules are numbered one after another.

    Args:
        placed: The placed schedules, on one topology without optical switches that turn.

    Raises:
        InputError: No route joins a pair.
    """
    of_part = np.repeat(np.arange(len(placed)), [len(each.nodes) for each in placed])
    crossing = _CrossedLinks.of(placed)
    return crossing.cluster, _name_clusters(crossing, of_part, placed[0].topology.links.bandwidth_Bps)


@dataclass(frozen=True, eq=False, slots=True)
class _CrossedLinks:
    """The pairs of all groups, sorted by cluster and then by group, and the links that their routes cross."""

    cluster: I64  # [G] cluster of each group, numbered by its first group
    group: I64  # [pairs] group of each pair
    head_fs: I64  # [pairs] latency of each pair's route
    hops: I64  # [pairs] number of hops of each pair's route
    link: I64  # [H] links of the routes, one after another

    @staticmethod
    def of(placed: Sequence[PlacedSchedule]) -> "_CrossedLinks":
        """Return the routes of all pairs of all placed schedules."""
        several, firsts = [_routes_of_groups(each) for each in placed], np.cumsum([0, *(len(each.nodes) for each in placed)])
        group = np.concatenate([each[0] + first for each, first in zip(several, firsts, strict=False)])
        head, hops, link = (np.concatenate([each[i] for each in several]) for i in (1, 2, 3))
        cluster = _clusters(np.repeat(group, hops), link, int(firsts[-1]))
        by = np.lexsort((group, cluster[group]))
        start = np.repeat((np.cumsum(hops) - hops)[by] - (np.cumsum(hops[by]) - hops[by]), hops[by])
        return _CrossedLinks(cluster, group[by], head[by], hops[by], link[start + np.arange(len(link))])


def _routes_of_groups(placed: PlacedSchedule) -> tuple[I64, I64, I64, I64]:
    """Return the group of each pair, its latency and its number of hops, then the links of all pairs."""
    n = len(placed.copies(None).first)
    ways = routes_of_pairs(placed.topology, placed.asked(np.arange(n)))
    group = np.arange(n) // (placed.schedule.n_participants if placed.by_rank else 1)
    return np.tile(group, len(ways.head_fs) // max(1, n)), ways.head_fs, np.diff(ways.start), column(ways.link, np.int64)


def _clusters(group: I64, link: I64, n_groups: int) -> I64:
    """Return the cluster of each group [G], from the groups that cross links and the links that they cross."""
    is_crossed = np.zeros(int(link.max(initial=-1)) + 1, np.bool_)
    is_crossed[link] = True
    number, n_links = np.cumsum(is_crossed) - 1, int(np.count_nonzero(is_crossed))
    return components(n_groups + n_links, group, n_groups + number[link])[:n_groups]


def _name_clusters(crossing: _CrossedLinks, of_part: I64, capacity_Bps: F64) -> list[LinkCluster]:
    """Return each cluster, named by a digest that tells its routes from others, with its links in the order of its routes."""
    of_pair = crossing.cluster[crossing.group]
    of_hop = np.repeat(of_pair, crossing.hops)
    crossed, first, number = np.unique(of_hop * len(capacity_Bps) + crossing.link, return_index=True, return_inverse=True)
    by = np.argsort(first)  # cluster after cluster
    link, of_link, place = crossed[by] % len(capacity_Bps), of_hop[first[by]], np.empty_like(by)
    place[by] = np.arange(len(by)) - np.searchsorted(of_link, of_link)
    begins = np.diff(crossing.group, prepend=-1) != 0  # of a group; a cluster begins with one
    of_pairs = np.stack((begins, of_part[crossing.group], crossing.head_fs, crossing.hops), axis=1)
    columns = of_pairs, place[number], capacity_Bps[link].view(np.int64)
    every = np.arange(crossing.cluster.max(initial=-1) + 2)
    bounds = np.stack([np.searchsorted(each, every) for each in (of_pair, of_hop, of_link)], axis=1)
    slices = zip(bounds[:-1, -1].tolist(), bounds[1:, -1].tolist(), strict=True)
    return [LinkCluster(kind, link[slice(*span)]) for kind, span in zip(_kinds(columns, bounds), slices, strict=True)]


def _kinds(columns: Sequence[I64], bounds: I64) -> list[str]:
    """Return [clusters] a digest of the rows that each cluster has in every column; equal for equal rows.

    Args:
        columns: Arrays whose rows are sorted by cluster.
        bounds: [clusters + 1, columns] where each cluster's rows begin in each column.
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
