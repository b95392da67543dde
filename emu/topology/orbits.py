"""What permutations bring to one another."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from emu.arrays import I64, column


def orbits(n: int, permutations: list[I64]) -> I64:
    """[n] the orbit that each number below n is in; orbits are numbered by their least.

    Args:
        n: How many numbers.
        permutations: [n] each, where every number is brought; of none each number is an orbit.
    """
    here = np.tile(np.arange(n), len(permutations))
    there = np.concatenate([np.empty(0, np.int64), *permutations])
    joined = csr_array((np.ones(len(here), np.int8), (here, there)), (n, n))
    return column(connected_components(joined, directed=False)[1], np.int64)
