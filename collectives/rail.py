"""Collectives among m nodes with g ranks each that use the NICs of all ranks; ranks with the same local index share a rail.

- all_to_all: the rail of an item is its sink's local index, so that all rails carry the same whatever m and g are. Source:
  Mandakolathur and Jeaugey, Doubling all2all performance with NVIDIA Collective Communication Library 2.12 (2022): PXN, whose
  proxy is here a rank.
- Rings: R of them at once, each through all ranks, node by node; ring c enters every node at its rank c*k, k = g/R. Source:
  Jeaugey, Massively scale your deep learning training with NCCL 2.4 (2019), and NVIDIA/nccl's own order of channels.

n = m*g ranks, rank = node*g + local. dims are m x g for a ring for each rank of a node, or m x R x k x 1 for fewer, as no
fabric is such a grid by itself.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import prod

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import planes
from emu.collective.transform import concatenate

Dims = tuple[int, ...]

_CLAIM = Claim("rank", alpha=lambda _: 2, beta=lambda dims: 2 - Fraction(1, dims[0]) - Fraction(1, dims[1]))


@collective("all_to_all", "rail", claim=_CLAIM, shapes=planes)
def all_to_all(dims: tuple[int, ...]) -> Schedule:
    """Send each item to the rank of the sender's node on the sink's rail, then over this rail to the sink."""
    m, g = dims
    n = m * g
    local, node = np.arange(g), np.arange(m) * g
    inside = Sends(0, local[1:, None], slot=local[1:, None] + node)
    between = Sends(0, node[1:, None], slot=local * n + node[1:, None])
    return Schedule.build(n, n * n, [inside, between], translate=dims, slot_digits=2)


def _rings(dims: Dims) -> tuple[int, int, int]:
    """Return the number of nodes, the number of ranks of a node, and the number of rings, by the dims of a grid."""
    m, rings, *rest = dims
    return m, rings * (rest[0] if rest else 1), rings


def _grids(n: int) -> Iterator[Dims]:
    """Yield the grids of n ranks: first nodes x ranks of a node, with a ring for each rank of a node, then those with fewer.

    A grid with R rings, fewer than the ranks of a node, is nodes x R x (ranks of a node / R) x 1.
    """
    few = [(m, rings, n // m // rings, 1) for m in range(2, n // 2 + 1) for rings in range(2, n // m // 2 + 1)]
    yield from planes(n)
    yield from (dims for dims in few if prod(dims) == n)


def _half_alpha(dims: Dims) -> int:
    """Return the claimed alpha of a reduce_scatter or an all_gather: one round for each rank but one."""
    m, g, _ = _rings(dims)
    return m * g - 1


def _half_beta(dims: Dims) -> Fraction:
    """Return the claimed beta of a reduce_scatter or an all_gather, whose bytes are divided over the rings."""
    m, g, rings = _rings(dims)
    return Fraction(m * g - 1, m * g * rings)


_HALF = Claim("channel", alpha=_half_alpha, beta=_half_beta)
_WHOLE = Claim("channel", alpha=lambda dims: 2 * _half_alpha(dims), beta=lambda dims: 2 * _half_beta(dims))


@collective("reduce_scatter", "rail-ring", claim=_HALF, shapes=_grids)
def reduce_scatter(dims: Dims) -> Schedule:
    """Pass sums round each ring, each ring its own part: in round t that of the block of the rank t+1 places before."""
    return _ring_rounds(dims, 1, reduce=True)


@collective("all_gather", "rail-ring", claim=_HALF, shapes=_grids)
def all_gather(dims: Dims) -> Schedule:
    """Pass blocks round each ring, each ring its own part: in round t that of the block of the rank t places before."""
    return _ring_rounds(dims, 0, reduce=False)


@collective("all_reduce", "rail-ring", claim=_WHOLE, shapes=_grids)
def all_reduce(dims: Dims) -> Schedule:
    """Do a reduce_scatter around all rings at once, then an all_gather."""
    return concatenate(reduce_scatter(dims), all_gather(dims))


def _ring_rounds(dims: Dims, first: int, *, reduce: bool) -> Schedule:
    """Return the rounds of all ranks, or only of rank 0 if translations give the rounds of the others.

    Translations do so if a ring enters every node at every rank. A rank's channel is its place on the ring's way through the
    node. A block's part is the ring's entry, counted from the block's owner. Neither changes when ranks are moved along the
    nodes, or within them.

    Args:
        dims: The grid.
        first: 1 for a reduce_scatter, 0 for an all_gather.
        reduce: Whether receivers add.
    """
    m, g, rings = _rings(dims)
    n, alike = m * g, rings == g
    ring = np.arange(rings)[:, None] * (g // rings)  # where it enters
    rank = np.zeros((1, 1), np.int64) if alike else np.arange(n)[None]
    node, place = rank // g, (rank - ring) % g

    def at(back: int) -> tuple[np.ndarray, np.ndarray]:
        """Return [rings, ranks] the rank `back` places before on the ring, and its local index."""
        there = (node * g + place - back) % n
        local = (ring + there) % g
        return there // g * g + local, local

    def sends(t: int) -> Sends:
        (block, local), (right, _) = at(t + first), at(-1)
        part = (ring - local) % g if alike else np.broadcast_to(np.arange(rings)[:, None], block.shape)
        return Sends(rank, right, block * rings + part, reduce, channel=place)

    return Schedule.build(n, n * rings, (sends(t) for t in range(n - 1)), translate=(m, g) if alike else ())
