"""Dimension-order routes over any links: the last dimension first, with a shortest path within each dimension.

Source: Dally and Towles, Principles and Practices of Interconnection Networks (2004), ch. 8. Letters: L links, P pairs,
D dimensions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, column
from emu.equivalence import components
from emu.errors import InputError
from emu.topology.builders.route_parts import gather
from emu.topology.paths.shortest_paths import ShortestPaths, least_weights, shortest
from emu.topology.topology import Links, Routes

DimensionPaths = tuple[ShortestPaths, I64]  # over the links of one dimension; the number of each of these among all links


@dataclass(frozen=True, eq=False, slots=True)
class DimensionOrderRouter:
    """A router that corrects the digits of a grid one after another, the last dimension first.

    `walks` are the paths within each dimension, `anyhow` shortest paths to and from switches.
    """

    dims: tuple[int, ...]
    walks: tuple[DimensionPaths, ...]  # paths of each dimension
    anyhow: DimensionPaths  # paths to and from switches

    def __call__(self, src: I64, dst: I64, key: I64) -> Routes:
        """Return the routes of pairs: dimension by dimension between NPUs, a shortest path if an end is a switch."""
        n_npus = int(np.prod(self.dims))
        among = (src < n_npus) & (dst < n_npus)
        here = np.where(among, src, dst)
        pieces = [_hops_along_dimension(self.anyhow, np.flatnonzero(~among), src, dst, key)]
        for axis in reversed(range(len(self.dims))):
            size, stride = self.dims[axis], _stride(self.dims, axis)
            there = np.where(among, here + (dst // stride % size - here // stride % size) * stride, here)
            pieces.append(_hops_along_dimension(self.walks[axis], np.flatnonzero(here != there), here, there, key))
            here = there
        return gather(len(src), pieces)


def by_dimension(
    name: str,
    links: Links,
    dims: tuple[int, ...],
    n_nodes: int,
    node: Callable[[int], str] = str,
    cost: I64 | None = None,
) -> DimensionOrderRouter:
    """Return a dimension-order router, last dimension first; in each dimension a hash of the key picks a shortest path.

    A link belongs to the one dimension in which its NPUs differ. Switches that are linked with one another belong to the
    dimension in which the NPUs around them differ. A route to or from a switch is a shortest one.

    Args:
        name: The name of the topology.
        links: All its links.
        dims: The sizes of the dimensions over which NPUs are numbered in C order.
        n_nodes: The number of NPUs and switches.
        node: A function that returns the name of a node, for messages.
        cost: [L] the cost of each link, as in `shortest`.

    Raises:
        InputError: A link belongs to no dimension or to two, or no path in its dimension joins NPUs that differ in one digit.
    """
    axis = _axes(name, links, dims, n_nodes, node)
    walks = []
    for number, size in enumerate(dims):
        mine = np.flatnonzero(axis == number)
        of_axis = Links(*(getattr(links, part)[mine] for part in Links.__slots__))
        if size > 1:
            _check_joined(name, of_axis, number, dims, n_nodes, node)
        of_its_links = shortest(of_axis, n_nodes, cost=None if cost is None else cost[mine])
        walks.append((of_its_links, column(mine, np.int64)))
    anyhow = shortest(links, n_nodes, cost=cost), column(np.arange(len(links)), np.int64)
    return DimensionOrderRouter(dims, tuple(walks), anyhow)


def _axes(name: str, links: Links, dims: tuple[int, ...], n_nodes: int, node: Callable[[int], str]) -> I64:
    """Return [L] the dimension of the grid along which each link goes."""
    n_npus = int(np.prod(dims))
    low, high = _digit_ranges(links, dims, n_nodes)
    together = _clusters(links, n_npus, n_nodes)
    np.minimum.at(low, together, low.copy())
    np.maximum.at(high, together, high.copy())
    digits = np.stack(np.unravel_index(np.arange(n_npus), dims), axis=-1)
    low[:n_npus] = high[:n_npus] = digits
    low, high = (bound[np.where(np.arange(n_nodes) < n_npus, np.arange(n_nodes), together)] for bound in (low, high))
    varies = np.minimum(low[links.src], low[links.dst]) != np.maximum(high[links.src], high[links.dst])
    several = np.flatnonzero(varies.sum(axis=1) != 1)
    if len(several):
        ends = f"{node(int(links.src[several[0]]))} to {node(int(links.dst[several[0]]))}"
        count = int(varies[several[0]].sum())
        raise InputError(
            f"{name}: routes by dimension need links that join NPUs which differ in one digit of dims "
            f"{'x'.join(map(str, dims))}, got {ends} with {count}; take shortest routes or other dims"
        )
    return column(varies.argmax(axis=1), np.int64)


def _digit_ranges(links: Links, dims: tuple[int, ...], n_nodes: int) -> tuple[I64, I64]:
    """Return the lowest and the highest digits of the NPUs that have a link to each node, [nodes, D] and [nodes, D]."""
    n_npus = int(np.prod(dims))
    digits = np.stack(np.unravel_index(np.arange(n_npus), dims), axis=-1)
    low, high = np.full((n_nodes, len(dims)), np.iinfo(np.int64).max), np.full((n_nodes, len(dims)), -1)
    for npu, other in ((links.src, links.dst), (links.dst, links.src)):
        mine = npu < n_npus
        np.minimum.at(low, other[mine], digits[npu[mine]])
        np.maximum.at(high, other[mine], digits[npu[mine]])
    return low, high


def _clusters(links: Links, n_npus: int, n_nodes: int) -> I64:
    """Return [nodes] for each switch the least number of the switches that are connected with it over switches only.

    For an NPU it is the NPU's own number.
    """
    inner = (links.src >= n_npus) & (links.dst >= n_npus)
    part = components(n_nodes, links.src[inner], links.dst[inner])
    first = np.full(n_nodes, n_nodes)
    np.minimum.at(first, part, np.arange(n_nodes))
    return column(first[part], np.int64)


def _check_joined(name: str, links: Links, axis: int, dims: tuple[int, ...], n_nodes: int, node: Callable[[int], str]) -> None:
    """Check that the links of one dimension connect all NPUs that differ only in this dimension, in both directions."""
    npus = np.arange(int(np.prod(dims)))
    part = components(n_nodes, links.src, links.dst)
    first = npus - npus // _stride(dims, axis) % dims[axis] * _stride(dims, axis)
    ways, alike = ((links.src, links.dst), (links.dst, links.src)), np.ones(len(links))
    away = [least_weights(way, alike, n_nodes, [np.unique(first)])[0][npus] for way in ways]
    lost = np.flatnonzero((part[npus] != part[first]) | np.isinf(away).any(axis=0))
    if len(lost):
        ends = f"NPU {node(int(first[lost[0]]))} to NPU {node(int(lost[0]))}"
        raise InputError(f"{name}: no way in dimension {axis} leads from {ends}; join them there, or take shortest routes")


def _stride(dims: tuple[int, ...], axis: int) -> int:
    """Return the difference between the numbers of neighbours along one dimension; it is 1 in the last dimension."""
    return int(np.prod(dims[axis + 1 :], dtype=np.int64))


def _hops_along_dimension(walk: DimensionPaths, pair: I64, here: I64, there: I64, key: I64) -> tuple[I64, I64]:
    """Return the pair [H] and the link [H] of each hop of the given pairs within one dimension."""
    ways, number = walk
    found = ways(here[pair], there[pair], key[pair])
    return np.repeat(pair, found.hops), number[found.link]
