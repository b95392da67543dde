"""The search for symmetries of a topology that declares none, such as one from a file.

Candidates are rolls of the NPU numbers within blocks, by smaller blocks: dims, servers, leaves and rails are numbered like
that. The image of a switch follows from the NPUs below it. A candidate counts if it maps links onto links and routes onto
routes. If a hash selects one of several paths, no candidate maps routes onto routes, and the search ends at once. `LinkImages`
gives the image of every link under a permutation of nodes. Letters: V nodes, P pairs, L links.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool, column, even_sample
from emu.equivalence import occurrence_numbers, shift
from emu.topology.builders.route_parts import mix
from emu.topology.facts.facts import routes_spread, some_pairs
from emu.topology.paths.spray import shares_kept
from emu.topology.topology import CHANNELS, Links, Topology, cached_by_topology


@dataclass(frozen=True, eq=False, slots=True)
class LinkImages:
    """The tables from which the image of every link is found, if a permutation says where each node goes."""

    links: Links
    order: I64  # [L] links sorted by (src, dst)
    ends: I64  # [L] (src, dst) as one number, in that order
    parallel: I64  # [L] the place of each link among links with equal ends

    @staticmethod
    def of(links: Links, n_nodes: int) -> "LinkImages":
        """Return the table by which links are found from the two nodes that they join."""
        ends = links.src.astype(np.int64) * n_nodes + links.dst
        order = np.argsort(ends, kind="stable")
        return LinkImages(links, order, ends[order], occurrence_numbers(ends))

    def links_by(self, node: I64) -> I64 | None:
        """Return [L] the image of each link under a permutation of nodes.

        None if some link has none of equal bandwidth and latency.

        The image of one of several parallel links is the one with the same number among the parallel links of the images.
        """
        ends = node[self.links.src] * len(node) + node[self.links.dst]
        at = np.minimum(np.searchsorted(self.ends, ends) + self.parallel, len(ends) - 1)
        if not np.array_equal(self.ends[at], ends):
            return None
        link = self.order[at]
        alike: Bool = np.array([np.array_equal(c[link], c) for c in (self.links.bandwidth_Bps, self.links.latency_fs)])
        return link if alike.all() else None


_TIERS = 8  # tiers of switches that a hash reaches; switches that differ only further away get one hash
_WORK = 2**23  # links that all candidates together may touch, which takes a second or two
_TARGETS, _SOURCES = 16, 256  # NPUs whose routes are compared, beside those of `some_pairs`
_KEYS = (0, 3 * CHANNELS + 1)


def with_symmetries(topology: Topology) -> Topology:
    """Return the topology with its symmetries declared; they are searched for when they are first needed."""
    return replace(topology, symmetry=partial(find_symmetries, topology))


@cached_by_topology(1)
def find_symmetries(topology: Topology) -> tuple[I64, ...]:
    """Return the symmetries of a topology that the search finds, each as [V] the image of every node."""
    if topology.n_npus < 2 or routes_spread(topology):
        return ()
    return tuple(column(node, np.int64) for node in _found(topology))


def switch_images(ends: tuple[ArrayLike, ArrayLike], kind: ArrayLike, npus: I64, n_nodes: int) -> I64:
    """Return [V] the image of every node, from the images of the NPUs.

    The image of a switch is the switch that has the same links to the images of the nodes to which this one has links. It is
    found by a hash of these links; switches with equal hashes are taken in order.

    Args:
        ends: [L] and [L] the nodes that each link leaves and enters.
        kind: [L] a number that is equal for links that may be mapped onto one another.
        npus: The image of each NPU.
        n_nodes: V.
    """
    before, after = (
        np.argsort(_hashes(ends, kind, label, n_nodes)[len(npus) :], kind="stable") for label in (npus, np.arange(len(npus)))
    )
    image = np.concatenate((npus, np.empty(n_nodes - len(npus), np.int64)))
    image[len(npus) + before] = len(npus) + after
    return image


def _hashes(ends: tuple[ArrayLike, ArrayLike], kind: ArrayLike, label: I64, n_nodes: int) -> I64:
    """Return [V] a number for each node: the label of an NPU, and a hash of the links of a switch, also over other switches."""
    src, dst = (column(end, np.int64) for end in ends)
    switch = np.arange(n_nodes) >= len(label)
    found = np.concatenate((label, np.zeros(n_nodes - len(label), np.int64)))
    for _ in range(_TIERS if switch.any() else 0):
        linked = np.zeros((2, n_nodes), np.int64)
        np.add.at(linked[0], src, mix(found[dst], kind, 0))
        np.add.at(linked[1], dst, mix(found[src], kind, 1))
        found = np.where(switch, mix(*linked), found)
    return found


def _found(topology: Topology) -> Iterator[I64]:
    """Yield the symmetries that the search finds, each as [V] the image of every node.

    After a roll by a step is found, rolls within blocks of that step are tried, and so on.
    """
    links, tables, left, blocks = topology.links, LinkImages.of(topology.links, topology.n_nodes), _WORK, topology.n_npus
    kind = mix(links.bandwidth_Bps.view(np.int64), links.latency_fs, 0 if topology.cost is None else topology.cost)
    for block, step in _rolls(topology.n_npus):
        if blocks % block:
            continue
        left -= (1 + _TIERS) * len(links)
        if left < 0:
            return
        npus = shift(((topology.n_npus // block, block // step, step), 1))
        node = switch_images((links.src, links.dst), kind, npus, topology.n_nodes)
        if _keeps(topology, tables, node):
            yield node
            blocks = step


def _rolls(n: int) -> Iterator[tuple[int, int]]:
    """Yield the rolls of n numbers: the size of the blocks within which numbers roll, and the step.

    Large blocks and small steps first.
    """
    sizes = [size for size in range(1, n + 1) if n % size == 0]
    yield from ((block, step) for block in reversed(sizes) for step in sizes if step < block and block % step == 0)


def _keeps(topology: Topology, tables: LinkImages, node: I64) -> bool:
    """Return whether a permutation maps links onto links of equal cost, adders onto adders, and many routes onto routes."""
    link = tables.links_by(node)
    if link is None or (topology.passes[node] != topology.passes).any():
        return False
    if topology.cost is not None and (topology.cost[link] != topology.cost).any():
        return False
    if topology.adders is not None and (topology.adders[node] != topology.adders).any():
        return False
    pairs = [np.concatenate(ends) for ends in zip(some_pairs(topology), _more_pairs(topology.n_npus), strict=True)]
    return all(keeps_routes(topology, node, link, (pairs[0], pairs[1]), key) for key in _KEYS)


def keeps_routes(topology: Topology, node: I64, link: I64, pairs: tuple[I64, I64], key: int = 0) -> bool:
    """Return whether a permutation maps the routes of pairs of NPUs onto routes.

    Args:
        topology: The topology.
        node: [V] the image of each node.
        link: [L] the image of each link.
        pairs: [P] and [P] the sources and the destinations of the pairs.
        key: The key of all these routes.
    """
    src, dst = pairs
    keys = np.full(len(src), key)
    if topology.spray is not None:
        return shares_kept(topology, topology.spray, (src, dst, keys), node, link) is not None
    here, there = topology.routes(src, dst, keys), topology.routes(node[src], node[dst], keys)
    return np.array_equal(here.start, there.start) and np.array_equal(link[here.link], there.link)


def _more_pairs(n: int) -> tuple[I64, I64]:
    """Return the sources and the destinations of pairs from many NPUs to few.

    Each destination costs a search for paths.
    """
    few, some = even_sample(n, _TARGETS), even_sample(n, _SOURCES)
    src, dst = np.tile(some, len(few)), np.repeat(few, len(some))
    return src[src != dst], dst[src != dst]
