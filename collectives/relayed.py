"""All-to-all in which ranks relay items: from neighbour to neighbour, dimension by dimension, or both ways round a corner.

On a torus or a ring (a torus of one dimension), an item is passed from neighbour to neighbour, dimension by dimension, the
shorter way round. If both ways are equally long, one part of the item goes each way. Source: Saad and Schultz, Data
communication in parallel architectures, Parallel Computing 11 (1989): total exchange on a ring and on meshes. N ranks, dims of
size d, 2 parts an item; channel 0 goes up, channel 1 down.

If all ranks of a line of the grid are linked, there is one round for each dimension. Source: Ahn, Binkert, Davis, McLaren and
Schreiber, HyperX: topology, routing, and packaging of efficient large-scale networks, SC (2009): its dimension-order routing,
here of whole items.

On an m x m mesh with every row and every column fully linked, each item takes both ways round its corner, or one. Source: Liao
et al., UB-Mesh (arXiv:2503.20377), 2025, 5.1 and Figure 14(a): its 2D multi-path all-to-all. It prints no gain. An item that
stays in one row or one column goes straight, all of it in phase 0. n = m*m ranks. Items on the busiest link:

- `multipath` (2 parts an item): (m+1)/2 in phase 0 and (m-1)/2 in phase 1, m in all;
- `single-path`: m on links along columns in phase 0, m-1 on those along rows in phase 1, 2m-1 in all: (2m-1)/m times as long;
- `dimension-ordered`, in which items that stay in a row wait for phase 1, too: 2m in all, twice as long.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import prod

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import grids, planes


def _hops(d: int) -> Fraction:
    """Return the mean hop distance along a dimension, divided over its two directions."""
    return Fraction(d * d // 4, 2 * d)


_TORUS = Claim("channel", alpha=lambda dims: sum(d // 2 for d in dims), beta=lambda dims: sum(map(_hops, dims), Fraction(0)))
_RING = Claim("channel", alpha=lambda n: n // 2, beta=_hops)


def _items(dims: tuple[int, ...], i: int, s_i: int, d_i: I64) -> I64:
    """Return the items that rank 0 has on their way from s to d, with digit i of s and of d as given.

    On rank 0 an item has d's digits before i (they are 0), and s's digits after i.

    Args:
        dims: The sizes of the dimensions.
        i: The dimension along which items are passed on.
        s_i: Digit i of the source s.
        d_i: Digits i of the sinks d.
    """
    after = prod(dims[i + 1 :])
    earlier = np.arange(prod(dims[:i])).reshape(-1, 1, 1) * dims[i]
    s, d = (earlier + s_i) * after, d_i.reshape(-1, 1) * after + np.arange(after)
    return np.asarray(s * prod(dims) + d)


def _hop(dims: tuple[int, ...], i: int, t: int) -> Iterator[Sends]:
    """Yield the sends of items that have come t hops along dimension i to rank 0 and travel further, in both directions."""
    d, after = dims[i], prod(dims[i + 1 :])
    for way, up in enumerate((1, -1)):
        for part in range(2):
            reach = (d - (part != way)) // 2  # half way round only with the part of that way
            left = np.arange(1, reach - t + 1)
            yield Sends(0, up % d * after, _items(dims, i, -up * t % d, up * left % d) * 2 + part, channel=way)


@collective("all_to_all", "torus", claim=_TORUS, shapes=grids)
def torus(dims: tuple[int, ...]) -> Schedule:
    """Pass items on in both directions, dimension by dimension, until each has the digit of its sink."""
    n = prod(dims)
    rounds = (_hop(dims, i, t) for i, d in enumerate(dims) for t in range(d // 2))
    return Schedule.build(n, 2 * n * n, rounds, translate=dims, slot_digits=2)


@collective("all_to_all", "ring", claim=_RING)
def ring(n: int) -> Schedule:
    """Pass items on in both directions, in round t those that have come by t hops, so that each goes the shorter way round."""
    return torus((n,))


_BY_DIMENSION = Claim(
    "rank",
    alpha=lambda dims: sum(d > 1 for d in dims),
    beta=lambda dims: sum((1 - Fraction(1, d) for d in dims), Fraction(0)),
)


def _dimension_round(dims: tuple[int, ...], i: int) -> Sends:
    """Return the sends of rank 0 along dimension i.

    Earlier digits of an item are already the sink's, later ones still the source's.
    """
    after = prod(dims[i + 1 :])
    s = np.arange(prod(dims[:i])).reshape(-1, 1, 1) * dims[i] * after
    dst = np.arange(1, dims[i]).reshape(-1, 1) * after
    return Sends(0, dst, slot=s * prod(dims) + dst + np.arange(after))


@collective("all_to_all", "dimension-ordered", claim=_BY_DIMENSION, shapes=grids)
def by_dimension(dims: tuple[int, ...]) -> Schedule:
    """Send, dimension by dimension, every item that a rank holds to the rank of its line with the sink's digit."""
    n = prod(dims)
    rounds = (_dimension_round(dims, i) for i in range(len(dims)))
    return Schedule.build(n, n * n, rounds, translate=dims, slot_digits=2)


def _squares(n: int) -> Iterator[tuple[int, ...]]:
    """Yield the square planes of n ranks, with a side of 2 or more."""
    return (dims for dims in planes(n) if dims[0] == dims[1])


_MULTIPATH = Claim("link", alpha=lambda _: 2, beta=lambda dims: Fraction(1, dims[0]))


def _first_phase(m: int, part: int) -> Iterator[Sends]:
    """Yield the items that rank 0 of an m x m mesh sends to each neighbour along one dimension, in two sets.

    The first set is one part of every item whose sink is in the line across, through that neighbour. The second is the other
    part of the item for the neighbour itself, so that this item goes whole.

    Args:
        m: The side of the mesh.
        part: The part that goes along this dimension first: 0 along columns, 1 along rows.
    """
    along, across = (m, 1) if part == 0 else (1, m)
    near = np.arange(1, m) * along
    line = near[:, None] + np.arange(m) * across
    yield Sends(0, near[:, None], line * 2 + part)
    yield Sends(0, near, near * 2 + 1 - part)


def _second_phase(m: int, part: int) -> Sends:
    """Return the sends of rank 0 to its neighbours across: one part of the items that came along its line.

    Args:
        m: The side of the mesh.
        part: The part that came along this dimension: 0 along columns, 1 along rows.
    """
    along, across = (m, 1) if part == 0 else (1, m)
    s, d = np.arange(1, m)[:, None] * along, np.arange(1, m) * across
    return Sends(0, d, (s * m * m + d) * 2 + part)


@collective("all_to_all", "multipath", claim=_MULTIPATH, shapes=_squares)
def multipath(dims: tuple[int, ...]) -> Schedule:
    """Send half of an item along the column and half along the row; the ranks at the two corners send them on."""
    m, n = dims[0], dims[0] * dims[1]
    phases = ([*_first_phase(m, 0), *_first_phase(m, 1)], [_second_phase(m, 0), _second_phase(m, 1)])
    return Schedule.build(n, 2 * n * n, phases, translate=dims, slot_digits=2)


_SINGLE = Claim("link", alpha=lambda _: 2, beta=lambda dims: Fraction(2 * dims[0] - 1, dims[0] ** 2))


@collective("all_to_all", "single-path", claim=_SINGLE, shapes=_squares)
def single_path(dims: tuple[int, ...]) -> Schedule:
    """Send whole items along columns, and straight along rows; then send the items for other columns along rows."""
    m, n = dims[0], dims[0] * dims[1]
    near, line = np.arange(1, m), np.arange(m)
    down = Sends(0, near[:, None] * m, slot=near[:, None] * m + line)
    onward = Sends(0, near, slot=near[:, None] * m * n + near)
    return Schedule.build(n, n * n, ([down, Sends(0, near, slot=near)], [onward]), translate=dims, slot_digits=2)
