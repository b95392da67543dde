"""Collectives around many rings at once: of a full mesh K_n all n(n-1) directed links carry the same, or a switch helps.

Source: Liao et al., UB-Mesh (arXiv:2503.20377, 2025), 5.1, and Borrow in 6.3. R rings, each through all ranks; ring i, whose
slowest link has bandwidth B_i, takes the share B_i / sum B of every block, so that all end together. The channel is the ring.

- Odd n: Walecki's (n-1)/2 undirected cycles, both ways (in Alspach, The wonderful Walecki construction, Bull. ICA 52, 2008).
- Even n of 8 or more: undirected cycles leave a perfect matching idle, n-1 directed ones do not (Tillson, A Hamiltonian
  decomposition of K*_2m, J. Combin. Theory B 29, 1980); found here by search.
- n = 4 and 6 have no such directed cycles: the n-1 undirected ones of K_n doubled, both ways, so that two rings share a link.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import exp, gcd, inf, lcm
from random import Random

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import then
from emu.errors import must_be

_DOUBLED = {4: ("0123", "0132", "0213"), 6: ("012345", "012345", "024153", "025314", "031524")}
_MOST = 128  # ranks: the search takes some seconds there, and the rows reach 2**24 soon after
_MOST_SHARES = 2**20  # so that a share of any count stays within int64
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
    return _reduce_scatter(rings(n), ())


@collective("all_gather", "multi-ring", claim=_HALF, shapes=_few)
def all_gather(n: int) -> Schedule:
    """On each ring, in round t, a rank passes its part of the block of the rank t places before: first of its own."""
    return _all_gather(rings(n), ())


@collective("all_reduce", "multi-ring", claim=_BOTH, shapes=_few)
def all_reduce(n: int) -> Schedule:
    """A reduce_scatter around all rings at once, then an all_gather."""
    return then(reduce_scatter(n), all_gather(n))


_BORROWED_HALF = Claim("link", alpha=lambda n: n - 1, beta=lambda n: Fraction(n - 1, n) / sum(borrowed(n)[1]))
_BORROWED = Claim("link", alpha=lambda n: 2 * (n - 1), beta=lambda n: Fraction(2 * (n - 1), n) / sum(borrowed(n)[1]))


@collective("reduce_scatter", "multi-ring-borrowed", claim=_BORROWED_HALF, shapes=_few)
def reduce_scatter_borrowed(n: int) -> Schedule:
    """A reduce_scatter around the rings of the mesh and two that borrow the ranks' ports to a switch, each with its share."""
    order, B = borrowed(n)
    return _reduce_scatter(order, _shares(B))


@collective("all_gather", "multi-ring-borrowed", claim=_BORROWED_HALF, shapes=_few)
def all_gather_borrowed(n: int) -> Schedule:
    """An all_gather around the rings of the mesh and two that borrow the ranks' ports to a switch, each with its share."""
    order, B = borrowed(n)
    return _all_gather(order, _shares(B))


@collective("all_reduce", "multi-ring-borrowed", claim=_BORROWED, shapes=_few)
def all_reduce_borrowed(n: int) -> Schedule:
    """An all_reduce around the rings of the mesh and two that borrow the ranks' ports to a switch, each with its share."""
    return rings_all_reduce(*borrowed(n))


def borrowed(n: int) -> tuple[I64, list[Fraction]]:
    """The rings of the mesh and two that go over a switch, one each way, with their bandwidths in links of the mesh.

    A port to the switch is as fast as two links: in a UB-Mesh pod a rack has 256 lanes up to them, 4 of each NPU, and 128 to
    each other rack of its row. So each of the two rings has the bandwidth of a link; those that share a link have half of one.
    """
    of_mesh, both = rings(n), _both_ways(np.arange(n)[None])
    B = [Fraction(max(1, n - 1), len(of_mesh))] * len(of_mesh) + [Fraction(1)] * len(both)
    return np.concatenate((of_mesh, both)), B


def rings_all_reduce(rings: Iterable[Iterable[int]], bandwidths: Sequence[Fraction | float]) -> Schedule:
    """An all_reduce around any rings at once: in 2(n-1) rounds, 2(n-1)/n V / sum B of a block of V bytes.

    Args:
        rings: [R, n] the ranks in the order of each ring.
        bandwidths: [R] B_i, of the slowest link of each ring, in any one unit.

    Raises:
        InputError: no ring, one that does not go through every rank once, or bandwidths that are not positive, not one a
            ring, or in no ratio of whole numbers that add up to 2**20 at most.
    """
    lists = [list(ring) for ring in rings]
    n = max(map(len, lists), default=0)
    for i, ring in enumerate(lists):
        if sorted(ring) != list(range(n)):
            raise must_be("multi-ring", f"ring {i}", f"each of the ranks 0..{n - 1} once", ring)
    if not n or len(bandwidths) != len(lists):
        raise must_be("multi-ring", "bandwidths", f"one for each of the rings, which are {len(lists)}", len(bandwidths))
    order, shares = np.array(lists), _shares(bandwidths) * n
    return then(_reduce_scatter(order, shares), _all_gather(order, shares))


def _shares(bandwidths: Sequence[Fraction | float]) -> tuple[int, ...]:
    """In the smallest whole numbers; () where all are equal."""
    if not all(0 < b < inf for b in bandwidths):
        raise must_be("multi-ring", "bandwidths", "positive", list(map(float, bandwidths)))
    exact = [Fraction(b) for b in bandwidths]
    unit = Fraction(gcd(*(b.numerator for b in exact)), lcm(*(b.denominator for b in exact)))
    shares = tuple(int(b / unit) for b in exact)
    if sum(shares) > _MOST_SHARES:
        what = "in a ratio of whole numbers that add up to 2**20 at most"
        raise must_be("multi-ring", "bandwidths", what, list(map(float, bandwidths)), "round them, such as to 1, 1 and 4")
    return shares if len(set(shares)) > 1 else ()


def _reduce_scatter(order: I64, shares: tuple[int, ...]) -> Schedule:
    n = order.shape[1]
    return Schedule.build(n, order.size, (_pass(order, t + 1, reduce=True) for t in range(n - 1)), shares=shares)


def _all_gather(order: I64, shares: tuple[int, ...]) -> Schedule:
    n = order.shape[1]
    return Schedule.build(n, order.size, (_pass(order, t, reduce=False) for t in range(n - 1)), shares=shares)


def _pass(order: I64, back: int, *, reduce: bool) -> Sends:
    """Each rank of each ring sends the next one its part of the block of the rank `back` places before."""
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
