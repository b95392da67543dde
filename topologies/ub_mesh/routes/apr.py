"""All-path routing: every short simple path of an nD full mesh, and the virtual lane of each hop so that none can deadlock.

UB-Mesh 4.1. TFC, its own rule for the lanes, is not published (4.1.3); here stands one that a channel-dependency graph
proves: on a lane, the last dimension first, and inside a dimension down, never up again; a path that breaks this takes the
next lane from there on, so that what waits on a lane for the same lane goes one way only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from emu.arrays import I64
from emu.errors import must_be

LANES = 2  # virtual lanes that a port has (4.1.3)

Node = tuple[int, ...]  # a digit each dimension


def paths(dims: Sequence[int], src: Node, dst: Node, detours: int = 1) -> list[tuple[Node, ...]]:
    """Every simple path from `src` to `dst` that is at most `detours` hops longer than the shortest, shortest first.

    Args:
        dims: Nodes of the full mesh along each dimension.
        src: Digits, one a dimension.
        dst: Others.
        detours: 0 is shortest-path routing, 1 what UB-Mesh calls a detour.

    Raises:
        InputError: digits that are not of such a mesh, or fewer than no detours.
    """
    for node in (src, dst):
        if len(node) != len(dims) or not all(0 <= d < size for d, size in zip(node, dims, strict=True)):
            raise must_be("ub-mesh paths", "a node", f"digits below {'x'.join(map(str, dims))}", node)
    if detours < 0:
        raise must_be("ub-mesh paths", "detours", "0 or more", detours)
    return sorted(_extend(dims, (src,), dst, _apart(src, dst) + detours), key=len)


def _apart(a: Node, b: Node) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))


def _extend(dims: Sequence[int], path: tuple[Node, ...], dst: Node, hops: int) -> Iterator[tuple[Node, ...]]:
    here = path[-1]
    if here == dst:
        yield path
        return
    for axis, size in enumerate(dims):
        for digit in range(size):
            ahead = (*here[:axis], digit, *here[axis + 1 :])
            if ahead not in path and _apart(ahead, dst) < hops:
                yield from _extend(dims, (*path, ahead), dst, hops - 1)


def lanes(path: Sequence[Node]) -> list[int]:
    """The virtual lane of each hop of a path: the lowest that the rule allows."""
    lane, found = 0, []
    before = (len(path[0]), False)  # dimension and whether the hop went down in it
    for here, ahead in pairwise(path):
        axis = next(i for i, (x, y) in enumerate(zip(here, ahead, strict=True)) if x != y)
        down = ahead[axis] < here[axis]
        if axis > before[0] or (axis == before[0] and before[1] and not down):
            lane += 1
        before = (axis, down)
        found.append(lane)
    return found


def usable(found: Sequence[tuple[Node, ...]], virtual: int = LANES) -> list[tuple[Node, ...]]:
    """Those of some paths that need no more virtual lanes than there are."""
    return [path for path in found if max(lanes(path), default=0) < virtual]


@dataclass(frozen=True, eq=False, slots=True)
class Ways:
    """The usable paths between all pairs of nodes of a mesh, as columns; M nodes, W paths, H hops at most."""

    start: I64  # [M * M + 1] where the paths of a pair begin
    node: I64  # [W, H + 1] nodes in C order; the last one is repeated
    lane: I64  # [W, H] virtual lane of each hop; 0 where the path has ended


def ways(dims: Sequence[int], detours: int) -> Ways:
    """The usable paths of a mesh, looked up by (source, destination) as numbers in C order."""
    nodes: list[Node] = [tuple(map(int, node)) for node in np.ndindex(*dims)]
    number = {node: i for i, node in enumerate(nodes)}
    found = [usable(paths(dims, src, dst, detours)) for src in nodes for dst in nodes]
    size = len(dims) + detours + 1
    rows = [path for between in found for path in between]
    node = np.array([_padded([number[n] for n in path], number[path[-1]], size) for path in rows])
    lane = np.array([_padded(lanes(path), 0, size - 1) for path in rows])
    return Ways(np.cumsum([0, *map(len, found)]), node, lane)


def _padded(row: list[int], value: int, size: int) -> list[int]:
    return row + [value] * (size - len(row))
