"""Collectives around many rings at once: in a full mesh K_n all n(n-1) directed links carry the same, or a switch helps.

Source: Liao et al., UB-Mesh (arXiv:2503.20377, 2025), 5.1, and Borrow in 6.3. There are R rings, each through all ranks. Ring
i, whose slowest link has bandwidth B_i, carries the share B_i / sum B of every block, so that all rings end together. The
channel is the number of the ring.

- Odd n: (n-1)/2 undirected cycles of a Hamiltonian decomposition, in both directions.
- Even n of 8 or more: n-1 directed cycles; undirected ones would leave a perfect matching idle.
- n = 4 and 6 have no such directed cycles: the n-1 undirected ones of K_n with every link doubled, in both directions, so that
  two rings share a link.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import gcd, inf, lcm

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import concatenate
from emu.decompose import MOST, both_ways, directed_cycles
from emu.errors import must_be

_DOUBLED = {4: ("0123", "0132", "0213"), 6: ("012345", "012345", "024153", "025314", "031524")}
_MOST_SHARES = 2**20  # so that a share of any count stays within int64


def _small_enough(n: int) -> Iterator[int]:
    """Yield n if rings over n ranks have no more rows than a schedule may have; else nothing."""
    if n <= MOST:  # the rows reach 2**24 soon after
        yield n


# A single rank sends nothing.
_HALF = Claim("pair", alpha=lambda n: n - 1, beta=lambda n: Fraction(min(n - 1, 1), n))
_BOTH = Claim("pair", alpha=lambda n: 2 * (n - 1), beta=lambda n: Fraction(2 * min(n - 1, 1), n))


@collective("reduce_scatter", "multi-ring", claim=_HALF, shapes=_small_enough)
def reduce_scatter(n: int) -> Schedule:
    """Pass, on each ring in round t, a rank's part of the block of the rank t+1 places before to the next, which adds it."""
    return _reduce_scatter(rings(n), ())


@collective("all_gather", "multi-ring", claim=_HALF, shapes=_small_enough)
def all_gather(n: int) -> Schedule:
    """Pass, on each ring in round t, a rank's part of the block of the rank t places before to the next: first its own."""
    return _all_gather(rings(n), ())


@collective("all_reduce", "multi-ring", claim=_BOTH, shapes=_small_enough)
def all_reduce(n: int) -> Schedule:
    """Do a reduce_scatter around all rings at once, then an all_gather."""
    return concatenate(reduce_scatter(n), all_gather(n))


def _rings_worth(n: int) -> int:
    """Return the bandwidth of all rings of `borrowed_rings` together, in links of the mesh."""
    return max(1, n - 1) + 2


_BORROWED_HALF = Claim("link", alpha=lambda n: n - 1, beta=lambda n: Fraction(n - 1, n) / _rings_worth(n))
_BORROWED = Claim("link", alpha=lambda n: 2 * (n - 1), beta=lambda n: Fraction(2 * (n - 1), n) / _rings_worth(n))


@collective("reduce_scatter", "multi-ring-borrowed", claim=_BORROWED_HALF, shapes=_small_enough)
def reduce_scatter_borrowed(n: int) -> Schedule:
    """Do a reduce_scatter around the rings of the mesh and two that borrow ports to a switch, each with its share."""
    order, B = borrowed_rings(n)
    return _reduce_scatter(order, _shares(B))


@collective("all_gather", "multi-ring-borrowed", claim=_BORROWED_HALF, shapes=_small_enough)
def all_gather_borrowed(n: int) -> Schedule:
    """Do an all_gather around the rings of the mesh and two that borrow ports to a switch, each with its share."""
    order, B = borrowed_rings(n)
    return _all_gather(order, _shares(B))


@collective("all_reduce", "multi-ring-borrowed", claim=_BORROWED, shapes=_small_enough)
def all_reduce_borrowed(n: int) -> Schedule:
    """Do an all_reduce around the rings of the mesh and two that borrow ports to a switch, each with its share."""
    return rings_all_reduce(*borrowed_rings(n))


def borrowed_rings(n: int) -> tuple[I64, list[Fraction]]:
    """Return the rings of the mesh, two rings over a switch, and the bandwidth of each in links of the mesh.

    A port to the switch is as fast as two links: in a UB-Mesh pod a rack has 256 lanes up to the switches, 4 of each NPU, and
    128 to each other rack of its row. So each of the two rings has the bandwidth of a link; rings that share a link have half
    of one.
    """
    of_mesh, both = rings(n), both_ways(np.arange(n)[None])
    B = [Fraction(max(1, n - 1), len(of_mesh))] * len(of_mesh) + [Fraction(1)] * len(both)
    return np.concatenate((of_mesh, both)), B


def rings_all_reduce(rings: Iterable[Iterable[int]], bandwidths: Sequence[Fraction | float]) -> Schedule:
    """Return an all_reduce around given rings at once, which takes 2(n-1) rounds and 2(n-1)/n V / sum B for a block of V bytes.

    Args:
        rings: [R, n] the ranks in the order of each ring.
        bandwidths: [R] bandwidth B_i of the slowest link of each ring, in any one unit.

    Raises:
        InputError: There is no ring, a ring does not go through every rank once, or bandwidths are not positive, not one for
            each ring, or in no ratio of whole numbers that add up to 2**20 at most.
    """
    lists = [list(ring) for ring in rings]
    n = max(map(len, lists), default=0)
    for i, ring in enumerate(lists):
        if sorted(ring) != list(range(n)):
            raise must_be("multi-ring", f"ring {i}", f"each of the ranks 0..{n - 1} once", ring)
    if not n or len(bandwidths) != len(lists):
        raise must_be("multi-ring", "bandwidths", f"one for each of the rings, which are {len(lists)}", len(bandwidths))
    order, shares = np.array(lists), _shares(bandwidths) * n
    return concatenate(_reduce_scatter(order, shares), _all_gather(order, shares))


def _shares(bandwidths: Sequence[Fraction | float]) -> tuple[int, ...]:
    """Return bandwidths as the smallest whole numbers of the same ratio; () if all are equal."""
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
    """Return the reduce_scatter over rings at once, each with its share of the blocks."""
    n = order.shape[1]
    return Schedule.build(n, order.size, (_pass(order, t + 1, reduce=True) for t in range(n - 1)), shares=shares)


def _all_gather(order: I64, shares: tuple[int, ...]) -> Schedule:
    """Return the all_gather over rings at once, each with its share of the blocks."""
    n = order.shape[1]
    return Schedule.build(n, order.size, (_pass(order, t, reduce=False) for t in range(n - 1)), shares=shares)


def _pass(order: I64, back: int, *, reduce: bool) -> Sends:
    """Return the sends of each rank to the next rank of each ring: a part of the block of the rank `back` positions before."""
    ring = np.arange(len(order))[:, None]
    # A block is named by the rank at its place of the ring; else the two halves would leave it with different ranks.
    block = np.roll(order, back, axis=1)
    return Sends(order, np.roll(order, -1, axis=1), block * len(order) + ring, reduce, channel=ring)


def rings(n: int) -> I64:
    """Return [R, n] the order of ranks in each ring; each directed link is on one ring (on two for n = 4 and 6)."""
    if n in _DOUBLED:
        return both_ways(np.array([[int(rank) for rank in cycle] for cycle in _DOUBLED[n]]))
    return directed_cycles(n)
