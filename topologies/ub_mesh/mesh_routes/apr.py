"""All-path routing: the short simple paths of an nD full mesh, and a virtual lane for each hop so that no paths can deadlock.

Source: UB-Mesh 4.1. Its own rule for the lanes, TFC, is not published (4.1.3). The rule here is proved by a channel-dependency
graph: on one lane, the last dimension comes first, and inside a dimension a path goes down, never up again. From the hop at
which a path breaks this, it takes the next lane, so that waits on a lane go one way only.

A pair takes those of these paths that share no link, with an equal part of its traffic on each, as the multi-path collectives
do (5.1: a part in proportion to the bandwidth of the path's slowest link). A path that shares a link with a shorter one would
add no bandwidth. Letters: P pairs, D dimensions, H hops.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64
from emu.errors import must_be
from emu.topology.builders.route_parts import offsets

LANES = 2  # virtual lanes that a port has (4.1.3)
_TABLED = 2**18  # up to this many walks, all are cached, because routers need them again and again

Node = tuple[int, ...]  # a digit for each dimension


def paths(dims: Sequence[int], src: Node, dst: Node, detours: int = 1) -> list[tuple[Node, ...]]:
    """Return every simple path between two nodes with at most `detours` extra hops, shortest first.

    Args:
        dims: The number of nodes of the full mesh along each dimension.
        src: The digits of the first node, one a dimension.
        dst: The digits of the last node.
        detours: 0 is shortest-path routing, 1 is UB-Mesh's detour.

    Raises:
        InputError: The digits do not belong to such a mesh, or `detours` is below 0.
    """
    for node in (src, dst):
        if len(node) != len(dims) or not all(0 <= d < size for d, size in zip(node, dims, strict=True)):
            raise must_be("ub-mesh paths", "a node", f"digits below {'x'.join(map(str, dims))}", node)
    if detours < 0:
        raise must_be("ub-mesh paths", "detours", "0 or more", detours)
    return sorted(_extend(dims, (src,), dst, _distance(src, dst) + detours), key=len)


def _distance(a: Node, b: Node) -> int:
    """Return the number of digits in which two nodes differ."""
    return sum(x != y for x, y in zip(a, b, strict=True))


def _extend(dims: Sequence[int], path: tuple[Node, ...], dst: Node, hops: int) -> Iterator[tuple[Node, ...]]:
    """Yield the paths that begin with a given path, end at `dst`, have at most `hops` more hops, and visit no node twice."""
    here = path[-1]
    if here == dst:
        yield path
        return
    for axis, size in enumerate(dims):
        for digit in range(size):
            ahead = (*here[:axis], digit, *here[axis + 1 :])
            if ahead not in path and _distance(ahead, dst) < hops:
                yield from _extend(dims, (*path, ahead), dst, hops - 1)


def lanes(path: ArrayLike) -> I64:
    """Return [..., H] the virtual lane of each hop of paths [..., H + 1, D], the lowest that the rule allows."""
    step = np.diff(np.asarray(path, np.int64), axis=-2)
    axis = np.argmax(step != 0, axis=-1)
    down = np.min(step, axis=-1, initial=0) < 0
    before = np.concatenate((np.full((*axis.shape[:-1], 1), step.shape[-1]), axis[..., :-1]), axis=-1)
    fell = np.concatenate((np.zeros((*down.shape[:-1], 1), np.bool_), down[..., :-1]), axis=-1)
    breaks = (axis > before) | ((axis == before) & fell & ~down)
    found: I64 = np.cumsum(breaks & (step != 0).any(axis=-1), axis=-1)
    return found


@dataclass(frozen=True, eq=False, slots=True)
class MeshPaths:
    """The paths between the nodes of a mesh as columns; pairs with equal offsets have equal paths.

    Letters: M nodes, W paths, H hops at most.
    """

    dims: tuple[int, ...]
    start: I64  # [M + 1] where the paths of each offset (in C order) begin
    offset: I64  # [W, H + 1, D] offset of each node from the first; the last node is repeated

    def between(self, src: I64, dst: I64) -> tuple[I64, I64]:
        """Return the number of the first path between each pair [P], and the number of its paths [P]."""
        apart = np.ravel_multi_index(offsets(self.dims, src, dst), self.dims)
        return self.start[apart], self.start[apart + 1] - self.start[apart]

    def walk(self, src: I64, way: I64) -> tuple[I64, I64]:
        """Return [P, H + 1] the nodes on path number `way` from each `src`, and [P, H] the virtual lane of each hop.

        The last node of a path is repeated.
        """
        nodes, n_ways = len(self.start) - 1, len(self.offset)
        if nodes * n_ways > _TABLED:
            return _walk_nodes(self, src, way)
        every, at = _every_walk(self), src * n_ways + way
        return every[0][at], every[1][at]


def _walk_nodes(known: MeshPaths, src: I64, way: I64) -> tuple[I64, I64]:
    """Return the nodes of paths from their sources, and the virtual lanes of their hops."""
    here = np.stack(np.unravel_index(src, known.dims), axis=-1)[:, None]
    digits = (here + known.offset[way]) % np.array(known.dims)
    return np.ravel_multi_index(tuple(np.moveaxis(digits, -1, 0)), known.dims), lanes(digits)


@cache
def _every_walk(known: MeshPaths) -> tuple[I64, I64]:
    """Return the nodes and the virtual lanes of every path from every node; results are cached."""
    return _walk_nodes(known, *np.divmod(np.arange((len(known.start) - 1) * len(known.offset)), len(known.offset)))


@cache
def mesh_paths(dims: tuple[int, ...], detours: int) -> MeshPaths:
    """Return the paths between the nodes of a full mesh, as many as share no link with one another.

    There are paths from node 0 to each node; those of other pairs are shifted. Only paths for which the virtual lanes suffice
    at every node, whatever its position, are taken. The shortest paths come first. Among equally long ones, those that need the
    fewest virtual lanes come first: a path along the last dimension, then along the one before it.

    Args:
        dims: The number of nodes of the full mesh along each dimension.
        detours: 0 is shortest-path routing, 1 is UB-Mesh's detour.
    """
    nodes: list[Node] = [tuple(map(int, node)) for node in np.ndindex(*dims)]
    every, size = np.array(nodes), len(dims) + detours + 1
    found = [_apart_from_one_another(_usable_anywhere(every, paths(dims, nodes[0], dst, detours))) for dst in nodes]
    rows = [path + path[-1:] * (size - len(path)) for between in found for path in between]  # the last node is repeated
    return MeshPaths(dims, np.cumsum([0, *map(len, found)]), np.array(rows))


def _usable_anywhere(nodes: I64, found: Sequence[tuple[Node, ...]]) -> list[tuple[Node, ...]]:
    """Return the paths that have enough lanes from every start node, sorted by hops and lanes."""
    dims = nodes[-1] + 1
    most = [int(lanes((nodes[:, None] + np.array(path)) % dims).max(initial=0)) for path in found]
    fit = sorted((len(path), lane, i) for i, (path, lane) in enumerate(zip(found, most, strict=True)) if lane < LANES)
    return [found[i] for _, _, i in fit]


def _apart_from_one_another(found: Sequence[tuple[Node, ...]]) -> list[tuple[Node, ...]]:
    """Return each path that has no link in common with an earlier returned path."""
    taken: set[tuple[Node, Node]] = set()
    kept = []
    for path in found:
        hops = set(pairwise(path))
        if not hops & taken:
            kept.append(path)
            taken |= hops
    return kept
