"""What is joined: by links, whichever way they go, or by permutations that bring one to another."""

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
    return column(np.unique(least, return_inverse=True)[1], np.int64)


def orbits(n: int, permutations: list[I64]) -> I64:
    """[n] the orbit that each number below n is in; orbits are numbered by their least.

    Args:
        n: How many numbers.
        permutations: [n] each, where every number is brought; of none each number is an orbit.
    """
    there = np.concatenate([np.empty(0, np.int64), *permutations])
    return components(n, np.tile(np.arange(n), len(permutations)), there)
