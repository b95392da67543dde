"""Routes dimension by dimension over any links: the last digit of the NPU's number first, each by a shortest way of its own.

L links, P asked pairs, D dimensions. Dally and Towles, Principles and Practices of Interconnection Networks (2004), ch. 8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.errors import InputError
from emu.topology.orbits import components
from emu.topology.path.quickest import quickest
from emu.topology.path.shortest import Ways, shortest
from emu.topology.topology import Links, Routes


class Walk(NamedTuple):
    """Shortest ways over some of the links."""

    ways: Ways
    number: I64  # of each of them among all


@dataclass(frozen=True, eq=False, slots=True)
class ByDimension:
    """A router that takes the last dimension first."""

    dims: tuple[int, ...]
    walks: tuple[Walk, ...]  # of each dimension
    anyhow: Walk  # to and from switches

    def __call__(self, src: I64, dst: I64, key: I64) -> Routes:
        """The links from each src to each dst."""
        return _route(self, src, dst, key)


def by_dimension(
    name: str,
    links: Links,
    dims: tuple[int, ...],
    n_nodes: int,
    node: Callable[[int], str] = str,
    cost: I64 | None = None,
) -> ByDimension:
    """A router that takes the last dimension first, and in each a shortest way, by a hash of the key where there are several.

    A link belongs to the one dimension in which its NPUs differ; switches that are linked with one another, to the one in
    which the NPUs around them do. To or from a switch a route is a shortest one.

    Args:
        name: Of the topology.
        links: All of it.
        dims: Shape of the NPU numbering, C order.
        n_nodes: NPUs and switches.
        node: How a node is called in a message.
        cost: [L] as of `shortest`.

    Raises:
        InputError: a link that belongs to no dimension or to two, or NPUs that differ in one digit and that no way in its
            dimension joins.
    """
    axis = _axes(name, links, dims, n_nodes, node)
    walks = []
    for number, size in enumerate(dims):
        mine = np.flatnonzero(axis == number)
        of_axis = Links(*(getattr(links, part)[mine] for part in Links.__slots__))
        if size > 1:
            _check_joined(name, of_axis, number, dims, n_nodes, node)
        of_its_links = shortest(of_axis, n_nodes, cost=None if cost is None else cost[mine])
        walks.append(Walk(of_its_links, column(mine, np.int64)))
    anyhow = Walk(shortest(links, n_nodes, cost=cost), column(np.arange(len(links)), np.int64))
    return ByDimension(dims, tuple(walks), anyhow)


def _axes(name: str, links: Links, dims: tuple[int, ...], n_nodes: int, node: Callable[[int], str]) -> I64:
    """[L] the dimension of each link."""
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
    """[nodes, D] and [nodes, D] the lowest and the highest digits of the NPUs next to each node."""
    n_npus = int(np.prod(dims))
    digits = np.stack(np.unravel_index(np.arange(n_npus), dims), axis=-1)
    low, high = np.full((n_nodes, len(dims)), np.iinfo(np.int64).max), np.full((n_nodes, len(dims)), -1)
    for npu, other in ((links.src, links.dst), (links.dst, links.src)):
        mine = npu < n_npus
        np.minimum.at(low, other[mine], digits[npu[mine]])
        np.maximum.at(high, other[mine], digits[npu[mine]])
    return low, high


def _clusters(links: Links, n_npus: int, n_nodes: int) -> I64:
    """[nodes] one number for all switches that are linked through switches only: the lowest of them; NPUs their own."""
    inner = (links.src >= n_npus) & (links.dst >= n_npus)
    part = components(n_nodes, links.src[inner], links.dst[inner])
    first = np.full(n_nodes, n_nodes)
    np.minimum.at(first, part, np.arange(n_nodes))
    return column(first[part], np.int64)


def _check_joined(name: str, links: Links, axis: int, dims: tuple[int, ...], n_nodes: int, node: Callable[[int], str]) -> None:
    npus = np.arange(int(np.prod(dims)))
    part = components(n_nodes, links.src, links.dst)
    first = npus - npus // _stride(dims, axis) % dims[axis] * _stride(dims, axis)
    ways, alike = ((links.src, links.dst), (links.dst, links.src)), np.ones(len(links))
    away = [quickest(way, alike, n_nodes, [np.unique(first)])[0][npus] for way in ways]
    lost = np.flatnonzero((part[npus] != part[first]) | np.isinf(away).any(axis=0))
    if len(lost):
        ends = f"NPU {node(int(first[lost[0]]))} to NPU {node(int(lost[0]))}"
        raise InputError(f"{name}: no way in dimension {axis} leads from {ends}; join them there, or take shortest routes")


def _stride(dims: tuple[int, ...], axis: int) -> int:
    return int(np.prod(dims[axis + 1 :], dtype=np.int64))


def _route(router: ByDimension, src: I64, dst: I64, key: I64) -> Routes:
    dims, walks, anyhow = router.dims, router.walks, router.anyhow
    n_npus = int(np.prod(dims))
    among = (src < n_npus) & (dst < n_npus)
    here = np.where(among, src, dst)
    pieces = [_piece(anyhow, np.flatnonzero(~among), src, dst, key)]
    for axis in reversed(range(len(dims))):
        stride = _stride(dims, axis)
        step = (dst // stride % dims[axis] - here // stride % dims[axis]) * stride
        there = np.where(among, here + step, here)
        pieces.append(_piece(walks[axis], np.flatnonzero(here != there), here, there, key))
        here = there
    pair, link = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    order = np.argsort(pair, kind="stable")  # pieces are in the order of the walk
    hops = np.bincount(pair, minlength=len(src))
    return Routes(column(np.concatenate(([0], np.cumsum(hops))), np.int64), column(link[order], np.int32))


def _piece(walk: Walk, pair: I64, here: I64, there: I64, key: I64) -> tuple[I64, I64]:
    """[H] the pair and the link of each hop that some pairs take."""
    found = walk.ways(here[pair], there[pair], key[pair])
    return np.repeat(pair, found.hops), walk.number[found.link]
