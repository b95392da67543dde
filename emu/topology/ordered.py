"""Routes dimension by dimension over any links: the last digit of the NPU's number first, each by a shortest way of its own.

L links, P asked pairs, D dimensions. Dally and Towles, Principles and Practices of Interconnection Networks (2004), ch. 8.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from emu.arrays import I64, Bool, column
from emu.errors import InputError
from emu.topology.routing import shortest
from emu.topology.topology import Links, Router, Routes


class _Walk(NamedTuple):
    """Shortest ways over some of the links."""

    router: Router
    number: I64  # of each of them among all


def by_dimension(name: str, links: Links, dims: tuple[int, ...], n_nodes: int, node: Callable[[int], str] = str) -> Router:
    """A router that takes the last dimension first, and in each the fewest links, by a hash of the key where several do.

    A link belongs to the one dimension in which its NPUs differ; switches that are linked with one another, to the one in
    which the NPUs around them do. To or from a switch a route is a shortest one.

    Args:
        name: Of the topology.
        links: All of it.
        dims: Shape of the NPU numbering, C order.
        n_nodes: NPUs and switches.
        node: How a node is called in a message.

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
        walks.append(_Walk(shortest(of_axis, n_nodes), column(mine, np.int64)))
    anyhow = _Walk(shortest(links, n_nodes), column(np.arange(len(links)), np.int64))
    return partial(_route, dims, walks, anyhow)


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
    part = _parts(links, inner, n_nodes)
    first = np.full(n_nodes, n_nodes)
    np.minimum.at(first, part, np.arange(n_nodes))
    return column(first[part], np.int64)


def _parts(links: Links, mine: Bool, n_nodes: int) -> I64:
    ones = np.ones(int(mine.sum()), np.int8)
    graph = csr_array((ones, (links.src[mine], links.dst[mine])), shape=(n_nodes, n_nodes))
    return column(connected_components(graph, directed=True, connection="strong")[1], np.int64)


def _check_joined(name: str, links: Links, axis: int, dims: tuple[int, ...], n_nodes: int, node: Callable[[int], str]) -> None:
    npus = np.arange(int(np.prod(dims)))
    part = _parts(links, np.ones(len(links), np.bool_), n_nodes)
    first = npus - npus // _stride(dims, axis) % dims[axis] * _stride(dims, axis)
    lost = np.flatnonzero(part[npus] != part[first])
    if len(lost):
        ends = f"NPU {node(int(first[lost[0]]))} to NPU {node(int(lost[0]))}"
        raise InputError(f"{name}: no way in dimension {axis} leads from {ends}; join them there, or take shortest routes")


def _stride(dims: tuple[int, ...], axis: int) -> int:
    return int(np.prod(dims[axis + 1 :], dtype=np.int64))


def _route(dims: tuple[int, ...], walks: list[_Walk], anyhow: _Walk, src: I64, dst: I64, key: I64) -> Routes:
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


def _piece(walk: _Walk, pair: I64, here: I64, there: I64, key: I64) -> tuple[I64, I64]:
    """[H] the pair and the link of each hop that some pairs take."""
    found = walk.router(here[pair], there[pair], key[pair])
    return np.repeat(pair, found.hops), walk.number[found.link]
