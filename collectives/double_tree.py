"""All-reduce over two binary trees at once, each of which carries half of the block.

A rank that is a leaf of one tree is an inner node of the other.

Source: Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing 35
(2009). The trees are its in-order trees, with place 0 above the root so that no rank is left out. Letters: n ranks, height H, k
pieces a tree.

`rail-tree` has these two trees between m nodes of g ranks, R times, each time from another rank of every node; the other ranks
of a node are a chain behind that rank. Source: Jeaugey, Massively scale your deep learning training with NCCL 2.4 (2019). The
dims are m x g for trees from every rank of a node, or m x R x g/R x 1.

`in-switch-tree` has a switch that adds in every node (the helpers) in place of the chains. Source: NVIDIA/nccl's NVLSTree, and
its NVLS if there is one node. The dims are m x g; each rank of a node is the head of one of the g parts of the block.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import prod

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import planes

# Pieces of a tree's half. To fill the trees costs (2H - 1) / k of the half's own time; each piece is a message on each edge.
PIECES = 8

_Edges = tuple[I64, I64, I64]  # [n - 1] child, parent, and depth of the child


def _height(n: int) -> int:
    """Return the height of both trees, in hops from the root to the farthest leaf."""
    return (n - 1).bit_length()


def _beta(n: int) -> Fraction:
    """Return the claimed beta: the number of rounds times the share of the size that is sent in one round."""
    return Fraction(2 * _height(n) + PIECES - 1, 2 * PIECES) if n > 1 else Fraction(0)


# Each edge has its own link: with one port a rank, the two children of a parent collide, which has no closed form.
_CLAIM = Claim("link", alpha=lambda n: 2 * _height(n), beta=_beta)


@collective("all_reduce", "double-tree", claim=_CLAIM)
def all_reduce(n: int) -> Schedule:
    """Add the children's parts of the data on each rank, send the sum to its parent, and pass the total back to them."""
    one, other = _trees(n)
    rounds, deep = range(2 * _height(n) + PIECES - 1), _height(n)
    return Schedule.build(n, 2 * PIECES, ((*_round(0, deep, one, t), *_round(1, deep, other, t)) for t in rounds))


def _trees(n: int) -> tuple[_Edges, _Edges]:
    """Return both trees of the double tree: each rank is a leaf in one of them.

    The second is the mirror image of the first for even n. For odd n, each rank has in it the role that the rank before it has
    in the first.
    """
    place = np.arange(1, n)
    lowest = place & -place
    up = (place - lowest) | (2 * lowest)
    parent = np.where(up < n, up, place - lowest)
    above, ancestor, depth = np.append(0, parent), parent, np.ones_like(place)
    for _ in range(_height(n)):
        depth, ancestor = depth + (ancestor > 0), above[ancestor]
    child, its_parent = ((n - 1 - p if n % 2 == 0 else (p + 1) % n) for p in (place, parent))
    return (place, parent, depth), (child, its_parent, depth)


def _round(tree: int, height: int, edges: _Edges, t: int, pieces: int = PIECES, channels: int = 0) -> Iterator[Sends]:
    """Yield a tree's rows of round t.

    An edge at depth d carries piece j up in round H - d + j, and down in round H + d - 1 + j. Up and down are two channels,
    because a piece on its way up must not wait for one on its way down.
    """
    child, parent, depth = edges
    up, down = t - height + depth, t - height - depth + 1
    for piece, src, dst, falls in ((up, child, parent, False), (down, parent, child, True)):
        on = (piece >= 0) & (piece < pieces)
        yield Sends(src[on], dst[on], tree * pieces + piece[on], reduce=not falls, channel=channels + 2 * tree + falls)


RAIL_PIECES = 16  # pieces of each tree of nodes, which its chains make deeper than a tree of ranks


def _grids(n: int) -> Iterator[tuple[int, ...]]:
    """Yield the grids of n ranks: first nodes x ranks of a node, with a tree for each rank of a node, then those with fewer.

    A grid with T trees, fewer than the ranks of a node, is nodes x T x (ranks of a node / T) x 1.
    """
    few = [(m, trees, n // m // trees, 1) for m in range(2, n // 2 + 1) for trees in range(1, n // m // 2 + 1)]
    yield from planes(n)
    yield from (dims for dims in few if prod(dims) == n)


def _deep(dims: tuple[int, ...]) -> int:
    """Return the greatest number of hops from the root to a rank: from node to node, then through the ranks of one node."""
    return _height(dims[0]) + prod(dims[1:]) - 1


def _rail_beta(dims: tuple[int, ...]) -> Fraction:
    """Return the claimed beta of rail trees: the number of rounds times the share of the size sent in one round."""
    return Fraction(2 * _deep(dims) + RAIL_PIECES - 1, 2 * RAIL_PIECES * dims[1])


_RAIL_CLAIM = Claim("link", alpha=lambda dims: 2 * _deep(dims), beta=_rail_beta)


@collective("all_reduce", "rail-tree", claim=_RAIL_CLAIM, shapes=_grids)
def rail_all_reduce(dims: tuple[int, ...]) -> Schedule:
    """Reduce over double trees between nodes, from each of several ranks of a node; the node's other ranks form a chain."""
    m, g, deep = dims[0], prod(dims[1:]), _deep(dims)
    trees = [_chain_tree(edges, m, g, head) for head in range(0, g, g // dims[1]) for edges in _trees(m)]
    rounds = range(2 * deep + RAIL_PIECES - 1)
    every = ((each for i, tree in enumerate(trees) for each in _round(i, deep, tree, t, RAIL_PIECES)) for t in rounds)
    return Schedule.build(m * g, len(trees) * RAIL_PIECES, every)


def _chain_tree(edges: _Edges, m: int, g: int, head: int) -> _Edges:
    """Return a tree of nodes as a tree of ranks.

    Args:
        edges: The edges between nodes.
        m: The number of nodes.
        g: The number of ranks of a node.
        head: The local index of the ranks that the edges join; the other ranks of a node are a chain behind this one.
    """
    child, parent, depth = edges
    of_node = np.zeros(m, np.int64)
    of_node[child] = depth
    node, behind = np.arange(m)[:, None] * g, np.arange(1, g)
    chain = node + (head + behind) % g, node + (head + behind - 1) % g, of_node[:, None] + behind
    joined = zip((child * g + head, parent * g + head, depth), chain, strict=True)
    return tuple(np.concatenate((a, b.ravel())) for a, b in joined)  # type: ignore[return-value]


SWITCH_PIECES = 64  # pieces of each tree: to fill it takes 3 / k in a node


def _with_heads(n: int) -> Iterator[tuple[int, ...]]:
    """Yield the grid of one node with all n ranks, then the grids of nodes x ranks of a node."""
    if n > 1:
        yield 1, n
    yield from planes(n)


def _switch_beta(dims: tuple[int, ...]) -> Fraction:
    """Return the claimed beta: every rank sends the whole block.

    Then the last piece goes to its head, over the tree, and back to all ranks.
    """
    return 1 + Fraction(1, SWITCH_PIECES) + Fraction(2 + _height(dims[0]), dims[1] * SWITCH_PIECES)


_SWITCH_CLAIM = Claim("link", alpha=lambda dims: 4 + 2 * _height(dims[0]), beta=_switch_beta)


@collective("all_reduce", "in-switch-tree", claim=_SWITCH_CLAIM, shapes=_with_heads, needs_adding=True)
def switch_all_reduce(dims: tuple[int, ...]) -> Schedule:
    """Add each head's pieces on its node's switch, add heads' sums along a double tree, and send the totals to all ranks."""
    m, g = dims
    deep = _height(m)
    trees = [(child * g + head, parent * g + head, depth) for head in range(g) for child, parent, depth in _trees(m)]

    def sends(t: int) -> Iterator[Sends]:
        yield from _through_switches(dims, t, gathers=True)
        for i, tree in enumerate(trees):
            yield from _round(i, deep, tree, t - 2, SWITCH_PIECES, 4)
        yield from _through_switches(dims, t - 2 * deep - 2, gathers=False)

    every = (sends(t) for t in range(SWITCH_PIECES + 2 * deep + 3))
    return Schedule.build(m * g, len(trees) * SWITCH_PIECES, every, helpers=m if m * g > 1 else 0)


def _through_switches(dims: tuple[int, ...], t: int, *, gathers: bool) -> Iterator[Sends]:
    """Yield the sends of piece t into the switches, and of piece t - 1 out of them.

    Args:
        dims: Nodes, and ranks of a node.
        t: The number of the piece.
        gathers: True if the pieces go from all ranks to their heads, False if they go from the heads to all ranks.
    """
    m, g = dims
    rank, part = np.arange(m * g)[:, None], np.arange(2 * g)
    head = rank[::g] + part // 2  # [m, 2g] the head of each part's pieces
    switch = m * g + np.arange(m)[:, None]
    every = (rank, m * g + rank // g), (head, switch)
    for piece, (end, hub), out in ((t, every[not gathers], False), (t - 1, every[gathers], True)):
        if 0 <= piece < SWITCH_PIECES:
            slot, channel = part * SWITCH_PIECES + piece, 2 * (not gathers) + out
            yield Sends(hub, end, slot, channel=channel) if out else Sends(end, hub, slot, reduce=gathers, channel=channel)
