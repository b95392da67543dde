"""Collectives around many rings of a full mesh K_n at once, so that all of its n(n-1) directed links carry the same.

Source: Liao et al., UB-Mesh (arXiv:2503.20377, 2025), 5.1. R rings, each through all ranks and with an R-th of every block;
the channel is the ring.

- Odd n: Walecki's (n-1)/2 undirected cycles, both ways (in Alspach, The wonderful Walecki construction, Bull. ICA 52, 2008).
- Even n of 8 or more: undirected cycles leave a perfect matching idle, n-1 directed ones do not (Tillson, A Hamiltonian
  decomposition of K*_2m, J. Combin. Theory B 29, 1980); found here by search.
- n = 4 and 6 have no such directed cycles: the n-1 undirected ones of K_n doubled, both ways, so that two rings share a link.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import exp
from random import Random

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import then

_DOUBLED = {4: ("0123", "0132", "0213"), 6: ("012345", "012345", "024153", "025314", "031524")}
_MOST = 128  # ranks: the search takes some seconds there, and the rows reach 2**24 soon after
_TEMPERATURE = 0.2  # at 0 the search can stick where no exchange of two factors helps

Map = list[int]  # what follows each rank


def _few(n: int) -> Iterator[int]:
    if n <= _MOST:
        yield n


# Of one rank nothing is sent.
_HALF = Claim("pair", alpha=lambda n: n - 1, beta=lambda n: Fraction(min(n - 1, 1), n))
_BOTH = Claim("pair", alpha=lambda n: 2 * (n - 1), beta=lambda n: Fraction(2 * min(n - 1, 1), n))


@collective("reduce_scatter", "multi-ring", claim=_HALF, shapes=_few)
def reduce_scatter(n: int) -> Schedule:
    """On each ring, in round t, a rank passes its part of the block of the rank t+1 places before; the next adds it."""
    return Schedule.build(n, n * len(rings(n)), (_pass(n, t + 1, reduce=True) for t in range(n - 1)))


@collective("all_gather", "multi-ring", claim=_HALF, shapes=_few)
def all_gather(n: int) -> Schedule:
    """On each ring, in round t, a rank passes its part of the block of the rank t places before: first of its own."""
    return Schedule.build(n, n * len(rings(n)), (_pass(n, t, reduce=False) for t in range(n - 1)))


@collective("all_reduce", "multi-ring", claim=_BOTH, shapes=_few)
def all_reduce(n: int) -> Schedule:
    """A reduce_scatter around all rings at once, then an all_gather."""
    return then(reduce_scatter(n), all_gather(n))


def _pass(n: int, back: int, *, reduce: bool) -> Sends:
    """Each rank of each ring sends the next one its part of the block of the rank `back` places before."""
    order = rings(n)
    ring = np.arange(len(order))[:, None]
    # A block is named by the rank at its place of the ring, or the halves would leave it with another one.
    block = np.roll(order, back, axis=1)
    return Sends(order, np.roll(order, -1, axis=1), block * len(order) + ring, reduce, channel=ring)


@lru_cache(maxsize=_MOST)
def rings(n: int) -> I64:
    """[R, n] the ranks in the order of each ring; each directed link is on one of them, for n = 4 and 6 on two."""
    if n <= 2:
        return np.arange(n)[None]
    if n in _DOUBLED:
        return _both_ways(np.array([[int(rank) for rank in cycle] for cycle in _DOUBLED[n]]))
    if n % 2:
        return _both_ways(_walecki(n // 2))
    return np.array([_order(F) for F in _factors(n)])


def _both_ways(cycles: I64) -> I64:
    return np.concatenate((cycles, cycles[:, ::-1]))


def _order(F: Map) -> list[int]:
    return list(accumulate(F[1:], lambda x, _: F[x], initial=0))


def _walecki(M: int) -> I64:
    """[M, 2M + 1] cycle i is z, i, i-1, i+1, i-2 .. i-M mod 2M, where z is the last vertex."""
    k = np.arange(2 * M)
    zigzag = np.where(k % 2, -(k + 1) // 2, k // 2)
    return np.insert((np.arange(M)[:, None] + zigzag) % (2 * M), 0, 2 * M, axis=1)


def _factors(n: int) -> list[Map]:
    """[n - 1] maps of n ranks, n even and >= 8, each one cycle through all, which take each rank to each other once.

    Begins with the shifts x + d and exchanges two of them on some parts, until none falls into several cycles.
    """
    rng = Random(n)
    F = [[(x + d) % n for x in range(n)] for d in range(n)]  # F[0], the identity, stays: it is no factor
    if n % 4 == 0:
        _flip(F, rng)
    excess = [0, *(_cycles(f) - 1 for f in F[1:])]
    while any(excess):
        p, q = next(d for d in range(n) if excess[d]), rng.randrange(1, n)
        P, Q = _exchanged(F[p], F[q], rng)
        after = _cycles(P) - 1, _cycles(Q) - 1
        rise = sum(after) - excess[p] - excess[q]
        if p != q and (rise <= 0 or rng.random() < exp(-rise / _TEMPERATURE)):
            F[p], F[q], (excess[p], excess[q]) = P, Q, after
    return F[1:]


def _flip(F: list[Map], rng: Random) -> None:
    """Flip the product of the factors' signs, which no exchange of two factors can.

    Each exchange multiplies both signs alike; n-1 cycles of even n have the product -1, the shifts have (-1)**(n/2). So
    two ranks are exchanged on an odd number of factors, which is a transposition in each of these.
    """
    while True:
        p, q = rng.sample(range(1, len(F)), 2)  # shifts alone may have no odd part
        F[p], F[q] = _exchanged(F[p], F[q], rng)
        x, y = rng.sample(range(len(F)), 2)
        X, Y = ([f[rank] for f in F] for rank in (x, y))
        for part in _parts(X, Y):
            if len(part) % 2 and 0 not in part:
                for d in part:
                    F[d][x], F[d][y] = Y[d], X[d]
                return


def _exchanged(P: Map, Q: Map, rng: Random) -> tuple[Map, Map]:
    """P and Q, exchanged on each of their parts with probability 1/2."""
    P_new, Q_new = P.copy(), Q.copy()
    for part in _parts(P, Q):
        if rng.random() < 0.5:
            for x in part:
                P_new[x], Q_new[x] = Q[x], P[x]
    return P_new, Q_new


def _parts(P: Map, Q: Map) -> list[list[int]]:
    """The smallest sets that P and Q take to the same values, so that exchanged on one both stay one-to-one."""
    source = {y: x for x, y in enumerate(Q)}
    left, parts = set(range(len(P))), []
    for first in range(len(P)):
        x, part = first, []
        while x in left:
            left.remove(x)
            part.append(x)
            x = source[P[x]]
        parts += [part] if part else []
    return parts


def _cycles(P: Map) -> int:
    return len(_parts(P, list(range(len(P)))))
