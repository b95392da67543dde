"""The translations of a grid: a translation v of Z_dims moves rank r to r + v, digit by digit, and digits of slots likewise.

N ranks; the leading base-N digits of a slot are ranks, the rest of it stays.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64


@dataclass(frozen=True, slots=True)
class Translations:
    """What they do to ranks, and to slots of which so many leading digits are ranks."""

    dims: tuple[int, ...]
    n_slots: int
    slot_digits: int

    @property
    def n_ranks(self) -> int:
        """N."""
        return prod(self.dims)

    def rank(self, rank: ArrayLike, by: ArrayLike) -> I64:
        """Where each rank comes when rank 0 comes to `by`; the two are broadcast."""
        moved, place = np.asarray(np.add(rank, by), np.int64), self.n_ranks
        for digit, step, d in zip(self._digits(rank), self._digits(by), self.dims, strict=True):
            moved = moved - (digit + step >= d) * place  # that digit turns over
            place //= d
        return np.asarray(moved)

    def slot(self, slot: ArrayLike, by: ArrayLike) -> I64:
        """Where each slot comes when rank 0 comes to `by`; the two are broadcast."""
        rest, n = self.n_slots // self.n_ranks**self.slot_digits, self.n_ranks
        named = np.asarray(slot, np.int64)
        moved = np.asarray(named % rest + 0 * np.asarray(by))
        for place in (rest * n**i for i in range(self.slot_digits)):
            moved = moved + self.rank(named // place % n, by) * place
        return moved

    def opposite(self, rank: ArrayLike) -> I64:
        """The translation that brings each rank to 0."""
        back = tuple(-digit % d for digit, d in zip(self._digits(rank), self.dims, strict=True))
        return np.asarray(np.ravel_multi_index(back, self.dims))

    def _digits(self, rank: ArrayLike) -> tuple[I64, ...]:
        return tuple(np.asarray(digit) for digit in np.unravel_index(np.asarray(rank, np.int64), self.dims))
