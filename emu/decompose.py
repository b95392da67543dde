"""Hamiltonian decompositions of the complete directed graph K*_n: n-1 directed cycles that use every directed edge once.

- Odd n: Walecki's (n-1)/2 undirected cycles, both ways (in Alspach, The wonderful Walecki construction, Bull. ICA 52, 2008).
- Even n of 8 or more: Tillson, A Hamiltonian decomposition of K*_2m, J. Combin. Theory B 29 (1980); found here by search.
- n = 4 and 6 have none.
"""

from functools import lru_cache
from itertools import accumulate
from math import exp
from random import Random

import numpy as np

from emu.arrays import I64
from emu.errors import must_be

MOST = 128  # largest even number of vertices: the search then takes some seconds
NONE = (4, 6)  # numbers of vertices for which there is no decomposition
_TEMPERATURE = 0.2  # at 0 the search can stick where no exchange of two factors helps

Map = list[int]  # the successor of each vertex


@lru_cache(maxsize=MOST)
def directed_cycles(n: int) -> I64:
    """Return [n - 1, n] the vertices of each cycle, in order; every directed edge is on exactly one cycle.

    For n = 1 there is one cycle.

    Raises:
        InputError: n is 4 or 6, below 1, or even and above 128.
    """
    if n in NONE or n < 1 or (n > MOST and n % 2 == 0):
        raise must_be("decomposition", "vertices", f"odd, or even and at most {MOST} but not 4 or 6, which have none", n)
    if n <= 2:
        cycles = np.arange(n)[None]
    else:
        cycles = both_ways(_walecki(n // 2)) if n % 2 else np.array([_order(F) for F in _factors(n)])
    cycles.setflags(write=False)
    return cycles


def both_ways(cycles: I64) -> I64:
    """Return undirected cycles [C, n] as directed ones [2C, n]."""
    return np.concatenate((cycles, cycles[:, ::-1]))


def _order(F: Map) -> list[int]:
    """Return the vertices of a cycle, from vertex 0 on, in the order in which map F leads from one to the next."""
    return list(accumulate(F[1:], lambda x, _: F[x], initial=0))


def _walecki(M: int) -> I64:
    """Return [M, 2M + 1] the cycles of Walecki's construction: cycle i is z, i, i-1, i+1, i-2 .. i-M mod 2M; z is last."""
    k = np.arange(2 * M)
    zigzag = np.where(k % 2, -(k + 1) // 2, k // 2)
    return np.insert((np.arange(M)[:, None] + zigzag) % (2 * M), 0, 2 * M, axis=1)


def _factors(n: int) -> list[Map]:
    """Return [n - 1] maps of n vertices, n even and >= 8.

    Each is one cycle through all; together they take each vertex to each other.

    The search begins with the shifts x + d and exchanges two maps on some parts, until none falls into several cycles.
    """
    rng = Random(n)
    F = [[(x + d) % n for x in range(n)] for d in range(n)]  # F[0], the identity, stays: it is no factor
    if n % 4 == 0:
        _flip(F, rng)
    excess = [0, *(_cycles(f) - 1 for f in F[1:])]
    while any(excess):
        p, q = next(d for d in range(n) if excess[d]), rng.randrange(1, n)
        P, Q = _exchange_parts(F[p], F[q], rng)
        after = _cycles(P) - 1, _cycles(Q) - 1
        rise = sum(after) - excess[p] - excess[q]
        if p != q and (rise <= 0 or rng.random() < exp(-rise / _TEMPERATURE)):
            F[p], F[q], (excess[p], excess[q]) = P, Q, after
    return F[1:]


def _flip(F: list[Map], rng: Random) -> None:
    """Flip the product of the maps' signs, which no exchange of two maps can do.

    Each exchange multiplies both signs by the same factor; n-1 cycles of even n have the product -1, the shifts have
    (-1)**(n/2). So two vertices are exchanged on an odd number of maps, which is a transposition in each of these.
    """
    while True:
        p, q = rng.sample(range(1, len(F)), 2)  # shifts alone may have no odd part
        F[p], F[q] = _exchange_parts(F[p], F[q], rng)
        x, y = rng.sample(range(len(F)), 2)
        X, Y = ([f[vertex] for f in F] for vertex in (x, y))
        for part in _exchangeable_sets(X, Y):
            if len(part) % 2 and 0 not in part:
                for d in part:
                    F[d][x], F[d][y] = Y[d], X[d]
                return


def _exchange_parts(P: Map, Q: Map, rng: Random) -> tuple[Map, Map]:
    """Return P and Q with the images of each of their `_exchangeable_sets` exchanged with probability 1/2."""
    P_new, Q_new = P.copy(), Q.copy()
    for part in _exchangeable_sets(P, Q):
        if rng.random() < 0.5:
            for x in part:
                P_new[x], Q_new[x] = Q[x], P[x]
    return P_new, Q_new


def _exchangeable_sets(P: Map, Q: Map) -> list[list[int]]:
    """Return the smallest sets on which maps P and Q have the same images, so that an exchange there keeps both one-to-one."""
    source = [0] * len(Q)
    for x, y in enumerate(Q):
        source[y] = x
    return _cycle_lists([source[y] for y in P])


def _cycle_lists(P: Map) -> list[list[int]]:
    """Return the vertices of each cycle of a permutation, from its least vertex on."""
    is_left, found = bytearray(b"1" * len(P)), []
    for first in range(len(P)):
        x, cycle = first, []
        while is_left[x]:
            is_left[x] = 0
            cycle.append(x)
            x = P[x]
        found += [cycle] if cycle else []
    return found


def _cycles(P: Map) -> int:
    """Return the number of cycles of a permutation."""
    return len(_cycle_lists(P))
