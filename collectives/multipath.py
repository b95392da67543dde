"""All-to-all on an m x m mesh with every row and every column fully linked: each item takes both ways round its corner, or one.

Source: Liao et al., UB-Mesh (arXiv:2503.20377), 2025, 5.1 and Figure 14(a): its 2D multi-path all-to-all. It prints no gain.
An item that stays in one row or one column goes straight, all of it in phase 0. n = m*m ranks. Items on the busiest link:

- `multipath` (2 parts an item): (m+1)/2 in phase 0 and (m-1)/2 in phase 1, m in all;
- `single-path`: m on links along columns in phase 0, m-1 on those along rows in phase 1, 2m-1 in all: (2m-1)/m times as long;
- `dimension-ordered`, where also what stays in a row waits for phase 1: 2m in all, twice as long.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import planes


def _squares(n: int) -> Iterator[tuple[int, ...]]:
    """Yield the square planes of n ranks, with a side of 2 or more."""
    return (dims for dims in planes(n) if dims[0] == dims[1])


_CLAIM = Claim("link", alpha=lambda _: 2, beta=lambda dims: Fraction(1, dims[0]))


def _straight(m: int, part: int) -> Iterator[Sends]:
    """Yield the sends of rank 0 to each neighbour of a dimension: one part of its line's items, and its own items in full."""
    along, across = (m, 1) if part == 0 else (1, m)
    near = np.arange(1, m) * along
    line = near[:, None] + np.arange(m) * across
    yield Sends(0, near[:, None], line * 2 + part)
    yield Sends(0, near, near * 2 + 1 - part)


def _round_the_corner(m: int, part: int) -> Sends:
    """Return the sends of rank 0 to each neighbour of the other dimension: one part of what others of its line have for it."""
    along, across = (m, 1) if part == 0 else (1, m)
    s, d = np.arange(1, m)[:, None] * along, np.arange(1, m) * across
    return Sends(0, d, (s * m * m + d) * 2 + part)


@collective("all_to_all", "multipath", claim=_CLAIM, shapes=_squares)
def all_to_all(dims: tuple[int, ...]) -> Schedule:
    """Send half of an item along the column and half along the row; the ranks at the two corners send them on."""
    m, n = dims[0], dims[0] * dims[1]
    phases = ([*_straight(m, 0), *_straight(m, 1)], [_round_the_corner(m, 0), _round_the_corner(m, 1)])
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
