"""The translations of a grid: translation v of Z_dims moves rank r to r + v, digit by digit, and the digits of slots likewise.

Letter: N ranks. The leading base-N digits of a slot are ranks; the rest of a slot stays.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64


@dataclass(frozen=True, slots=True)
class Translations:
    """The translations of a grid of ranks, and of slots whose leading digits are ranks."""

    dims: tuple[int, ...]
    n_slots: int
    slot_digits: int  # number of leading digits of a slot that are ranks

    @property
    def n_ranks(self) -> int:
        """The number of ranks, N."""
        return prod(self.dims)

    def rank(self, rank: ArrayLike, by: ArrayLike) -> I64:
        """Return where each rank goes when rank 0 goes to `by`; the two are broadcast."""
        moved, place = np.asarray(np.add(rank, by), np.int64), self.n_ranks
        for digit, step, d in zip(self._digits(rank), self._digits(by), self.dims, strict=True):
            moved = moved - (digit + step >= d) * place  # that digit turns over
            place //= d
        return np.asarray(moved)

    def slot(self, slot: ArrayLike, by: ArrayLike) -> I64:
        """Return where each slot goes when rank 0 goes to `by`; the two are broadcast."""
        rest, n = self.n_slots // self.n_ranks**self.slot_digits, self.n_ranks
        named = np.asarray(slot, np.int64)
        moved = np.asarray(named % rest + 0 * np.asarray(by))
        for place in (rest * n**i for i in range(self.slot_digits)):
            moved = moved + self.rank(named // place % n, by) * place
        return moved

    def opposite(self, rank: ArrayLike) -> I64:
        """Return the translation that brings each rank to 0."""
        back = tuple(-digit % d for digit, d in zip(self._digits(rank), self.dims, strict=True))
        return np.asarray(np.ravel_multi_index(back, self.dims))

    def _digits(self, rank: ArrayLike) -> tuple[I64, ...]:
        """Return the digits of ranks over the grid, one array for each dimension."""
        return tuple(np.asarray(digit) for digit in np.unravel_index(np.asarray(rank, np.int64), self.dims))
