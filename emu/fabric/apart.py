"""Groups that share no link with others, so that they are timed apart from them, and those of which one stands for all.

Groups that meet on links make a cluster. Two clusters are alike if the ways of their pairs are equal hop by hop, the links of
each counted in the order in which its ways come to them, with equal rates and heads: their graphs differ in nothing but the
names of links, on which no time depends. G groups of all that is laid, K links of a cluster, H hops.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, column, digest
from emu.fabric.lowering.laid import Laid
from emu.fabric.lowering.ways import ways_of
from emu.topology.orbits import components


class Cluster(NamedTuple):
    """Groups that share links, but none with others."""

    kind: str  # equal for clusters whose ways are, whatever is sent on them
    link: I64  # [K] in the order in which its ways come to them


def clusters_of(laid: Sequence[Laid]) -> tuple[I64, list[Cluster]]:
    """[G] the cluster that each group is in, those of each schedule after one another; and what each is.

    Args:
        laid: What is sent on one topology, where no optical switch turns.

    Raises:
        InputError: a pair that no route joins.
    """
    of_part = np.repeat(np.arange(len(laid)), [len(each.nodes) for each in laid])
    crossing = _Crossing.of(laid)
    return crossing.cluster, list(_named(crossing, of_part, laid[0].topology.links.bandwidth_Bps))


@dataclass(frozen=True, eq=False, slots=True)
class _Crossing:
    """The pairs of all groups, cluster after cluster and in each group after group, and what their ways cross."""

    cluster: I64  # [G] of each group; numbered by their first
    group: I64  # [pairs]
    head_fs: I64  # [pairs]
    hops: I64  # [pairs]
    link: I64  # [H]

    @staticmethod
    def of(laid: Sequence[Laid]) -> "_Crossing":
        """The ways of all pairs."""
        several, firsts = [_ways(each) for each in laid], np.cumsum([0, *(len(each.nodes) for each in laid)])
        group = np.concatenate([each[0] + first for each, first in zip(several, firsts, strict=False)])
        head, hops, link = (np.concatenate([each[i] for each in several]) for i in (1, 2, 3))
        cluster = _clusters(np.repeat(group, hops), link, int(firsts[-1]))
        by = np.lexsort((group, cluster[group]))
        start = np.repeat((np.cumsum(hops) - hops)[by] - (np.cumsum(hops[by]) - hops[by]), hops[by])
        return _Crossing(cluster, group[by], head[by], hops[by], link[start + np.arange(len(link))])


def _ways(laid: Laid) -> tuple[I64, I64, I64, I64]:
    """The group of each pair, its head and its hops; then their links."""
    n = len(laid.copies(None).first)
    ways = ways_of(laid.topology, laid.asked(np.arange(n)))
    group = np.arange(n) // (laid.schedule.n_participants if laid.by_rank else 1)
    return np.tile(group, len(ways.head_fs) // max(1, n)), ways.head_fs, np.diff(ways.start), column(ways.link, np.int64)


def _clusters(group: I64, link: I64, n_groups: int) -> I64:
    """[G] of groups that cross links."""
    is_crossed = np.zeros(int(link.max(initial=-1)) + 1, np.bool_)
    is_crossed[link] = True
    number, n_links = np.cumsum(is_crossed) - 1, int(np.count_nonzero(is_crossed))
    return components(n_groups + n_links, group, n_groups + number[link])[:n_groups]


def _named(crossing: _Crossing, of_part: I64, capacity_Bps: F64) -> Iterator[Cluster]:
    """What tells the ways of each cluster from those of others, and its links in their order."""
    of_pair = crossing.cluster[crossing.group]
    of_hop = np.repeat(of_pair, crossing.hops)
    crossed, first, number = np.unique(of_hop * len(capacity_Bps) + crossing.link, return_index=True, return_inverse=True)
    by = np.argsort(first)  # cluster after cluster
    link, of_link, place = crossed[by] % len(capacity_Bps), of_hop[first[by]], np.empty_like(by)
    place[by] = np.arange(len(by)) - np.searchsorted(of_link, of_link)
    bounds = (np.searchsorted(each, np.arange(crossing.cluster.max(initial=-1) + 2)) for each in (of_pair, of_hop, of_link))
    for pairs, hops, links in zip(*map(_slices, bounds), strict=True):
        group = crossing.group[pairs]
        apart = np.flatnonzero(np.diff(group)), of_part[group[:1]], of_part[group[1:][np.diff(group) > 0]]
        ways = crossing.head_fs[pairs], crossing.hops[pairs], place[number[hops]], capacity_Bps[link[links]]
        yield Cluster(digest((*apart, *ways)), link[links])


def _slices(bounds: I64) -> list[slice]:
    return [slice(*span) for span in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
