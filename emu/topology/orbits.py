"""What is joined: by links, whichever way they go, or by permutations that bring one to another."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, column


def components(n: int, a: ArrayLike, b: ArrayLike) -> I64:
    """[n] the component that each number below n is in, where each of `a` [L] is joined to its `b`; numbered by their least.

    Shiloach and Vishkin, An O(log n) parallel connectivity algorithm, J. Algorithms 3 (1982): components that touch become
    one, and every number is told the least of its own.
    """
    one, other = column(a, np.int64), column(b, np.int64)
    least, before = np.arange(n), np.empty(0, np.int64)
    while not np.array_equal(least, before):
        before = least.copy()
        low, high = np.minimum(least[one], least[other]), np.maximum(least[one], least[other])
        np.minimum.at(least, high, low)
        while not np.array_equal(least, least[least]):
            least = least[least]
    return column((np.cumsum(least == np.arange(n)) - 1)[least], np.int64)


def orbits(n: int, permutations: list[I64]) -> I64:
    """[n] the orbit that each number below n is in; orbits are numbered by their least.

    Args:
        n: How many numbers.
        permutations: [n] each, where every number is brought; of none each number is an orbit.
    """
    there = np.concatenate([np.empty(0, np.int64), *permutations])
    return components(n, np.tile(np.arange(n), len(permutations)), there)


class Orbits(NamedTuple):
    """What several permutations bring to one another, orbits numbered by their least."""

    number: I64  # of each its orbit
    first: I64  # [O] the least of each
    size: I64  # [O]

    @staticmethod
    def each(count: int) -> "Orbits":
        """Each of `count` things for itself."""
        every = np.arange(count)
        return Orbits(every, every, np.ones_like(every))

    @staticmethod
    def of(count: int, permutations: list[I64]) -> "Orbits":
        """Those of `count` things."""
        number = orbits(count, permutations)
        most = np.maximum.accumulate(number)  # as numbers are given in the order of their least, a new one is the largest yet
        first = np.flatnonzero(np.diff(most, prepend=-1))
        return Orbits(number, column(first, np.int64), column(np.bincount(number), np.int64))

    @staticmethod
    def numbered(number: I64) -> "Orbits":
        """Those of things that are numbered alike; the numbers are given anew."""
        _, first, again, size = np.unique(number, return_index=True, return_inverse=True, return_counts=True)
        return Orbits(column(again, np.int64), column(first, np.int64), column(size, np.int64))
