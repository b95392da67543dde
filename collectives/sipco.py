"""SiPCO(r, L), an all_reduce on SiPAC(r, L): all levels work at once, each on another group of the block.

Source: Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning, J. Opt. Commun. Netw.
16 (2024), section 4. N = r**L ranks, with two levels or more (with one it would be the direct all_reduce). Rank u has digits
u_0 .. u_(L-1), level 0 the fastest (the last of the dims), and its r - 1 level-l neighbours differ from it in digit l only. A
block is L groups of r chunks; slot g*r + c is chunk c of group g.

Flex-SiPCO, an all_reduce on whole rows of SiPAC(r, L): chunks that a rank outside the job would own take another level.

Source: Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning, J. Opt. Commun. Netw. 16
(2024), section 4 and Algorithm 1. A rank has digits u_0 .. u_(L-1), level 0 the fastest. Its neighbours on level l differ from
it in u_l only. A row is the r places that differ on level 0. L counts the levels up to the highest on which the job's places
differ. The job has all places of at least one digit of that level; where it has only some of other digits, it folds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends, check_rows
from emu.collective.shape import PartialGrid, Shape, cubes

_CLAIM = Claim("channel", alpha=lambda d: len(d) + 1, beta=lambda d: Fraction((len(d) + 1) * (d[0] - 1), d[0] * len(d)))


@collective("all_reduce", "sipco", claim=_CLAIM, shapes=cubes)
def all_reduce(dims: tuple[int, ...]) -> Schedule:
    """Give away, on each level, all chunks of a group but the rank's own, sum its own of each other group, and spread its sum.

    Step 0 leaves rank u with chunk u_l of each group l, summed along level l. In step v level l carries group v + l mod L.
    Ranks that share digit g own the same chunk of group g, and level g is done, so that all of a level's line may add. The
    channel is the level.
    """
    r, L = dims[0], len(dims)
    check_rows(r**L * (r - 1) * L * (L + 1))
    rank, level_step = np.arange(r**L)[:, None], r ** np.arange(L)[:, None, None]
    u = rank // level_step % r  # [L, N, 1] digits
    k = (u + np.arange(1, r)) % r  # [L, N, r - 1] digits of the neighbours
    neighbour = rank + (k - u) * level_step
    own = r * np.arange(L)[:, None, None] + u  # [L, N, 1] the slot of its chunk of each group

    def send(level: int, slot: I64, *, reduce: bool) -> Sends:
        return Sends(rank, neighbour[level], slot, reduce, channel=level)

    first = [send(level, level * r + k[level], reduce=True) for level in range(L)]
    sums = ([send(level, own[(v + level) % L], reduce=True) for level in range(L)] for v in range(1, L))
    last = [send(level, own[level], reduce=False) for level in range(L)]
    return Schedule.build(r**L, L * r, [first, *sums, last])


@dataclass(frozen=True, slots=True)
class _Job:
    """A job on a SiPAC, with the digits of the CU of each of its ranks."""

    r: int
    members: I64  # [N] CU of each rank, in rising order
    u: I64  # [L, N] digits up to the highest level on which they differ

    @property
    def of_digit(self) -> I64:
        """[r] the number of ranks that have each digit of the highest level."""
        return np.bincount(self.u[-1], minlength=self.r)

    @property
    def full(self) -> Bool:
        """[r] for each digit of the highest level, whether the job has all CUs with that digit."""
        return np.asarray(self.of_digit == self.r ** (len(self.u) - 1))

    @property
    def partial(self) -> Bool:
        """[r] for each digit of the highest level, whether the job has some, but not all, CUs with that digit."""
        return np.asarray((self.of_digit > 0) & ~self.full)

    def to(self, level: int, digit: ArrayLike) -> tuple[I64, Bool]:
        """Return, for each rank, the rank whose CU has another digit on a level, and whether the job has that CU.

        All other digits of the two CUs are equal. Where the job lacks the CU, the rank means nothing.
        """
        wanted = self.members + (digit - self.u[level]) * self.r**level
        at = np.minimum(np.searchsorted(self.members, wanted), len(self.members) - 1)
        return at, np.asarray(self.members[at] == wanted)

    def send(self, level: int, slot: I64, where: ArrayLike = True, *, reduce: bool = True) -> Sends:
        """Return the sends of each rank to all its neighbours on a level, on that level's channel.

        Args:
            level: The level on which they differ.
            slot: [N] or [r, N] the slot, by the digit of the receiver.
            where: Whether each is sent, with the shape of `slot`.
            reduce: Whether the receiver adds.
        """
        digit = np.arange(self.r)[:, None]
        dst, there = self.to(level, digit)
        sent = there & (digit != self.u[level]) & where
        src, slots = (np.broadcast_to(column, dst.shape)[sent] for column in (np.arange(len(self.members)), slot))
        return Sends(src, dst[sent], slots, reduce, channel=level)


def _job(part: PartialGrid) -> _Job:
    """Return the job that a partial grid describes, with the levels up to the highest on which its members differ."""
    r, members = part.dims[0], np.array(part.members)
    u = np.stack(np.unravel_index(members, part.dims)[::-1])
    differ = np.flatnonzero((u != u[:, :1]).any(axis=1))
    return _Job(r, members, u[: differ.max(initial=0) + 1])


def _takes(shape: Shape) -> bool:
    """Return whether the algorithm supports a shape.

    It takes ranks on a part of a grid of equal sizes, such as 4x4:0-7: two whole rows or more, which have all places of at
    least one digit of the first dim in which they differ.
    """
    if not isinstance(shape, PartialGrid) or len(set(shape.dims)) != 1 or not 2 <= shape.dims[0] <= len(shape.members) // 2:
        return False
    job = _job(shape)
    _, in_row = np.unique(job.members // job.r, return_counts=True)
    return len(job.u) > 1 and bool((in_row == job.r).all() and job.full.any())


def _rows(n: int) -> Iterator[PartialGrid]:
    """Yield jobs of consecutive rows of CUs, those on the fewest levels first.

    One job begins at the first CU, another one at the next digit of the highest level, and one ends at the last CU.
    """
    sides = ((_levels(r, n), r) for r in range(2, n // 2 + 1) if n % r == 0)
    for L, r in sorted(sides):
        first, last = r ** (L - 1), r**L - n
        yield from (PartialGrid((r,) * L, tuple(range(at, at + n))) for at in sorted({0, min(first, last), last}))


def _levels(r: int, n: int) -> int:
    """Return the least L with r**L >= n."""
    L = 1
    while r**L < n:
        L += 1
    return L


def _is_plain(part: PartialGrid) -> bool:
    """Return whether no digit of the highest level is only partly in the job, so that nothing is folded."""
    return not _job(part).partial.any()


def _is_whole(part: PartialGrid) -> bool:
    """Return whether the job has all CUs of each digit of its highest level of which it has any."""
    return bool(_job(part).full.all())


def _flex_steps(part: PartialGrid) -> int:
    """Return the claimed alpha: the number of rounds."""
    job = _job(part)
    L = len(job.u)
    return L + 1 if _is_plain(part) else L + 2 + (job.full.sum() > 1)


def _flex_beta(part: PartialGrid) -> Fraction:
    """Return the claimed beta: a link carries one chunk in each step, and at most two if some chunks are in transit.

    If the job is folded, it is the sum over phases of what the busiest port carries.
    """
    job = _job(part)
    r, L = job.r, len(job.u)
    if _is_plain(part):
        return Fraction((L + 1) * (r - 1), r * L) * (1 if job.full.all() else 2)
    return Fraction(L * (r - 1) + int(job.full.sum()) - 1 + 2 * int(job.partial.sum()), r)


_FLEX_CLAIM = Claim("channel", alpha=_flex_steps, beta=_flex_beta, exact=_is_whole)


@collective("all_reduce", "flex-sipco", claim=_FLEX_CLAIM, shapes=_rows, takes=_takes)
def flex_all_reduce(part: PartialGrid) -> Schedule:
    """Do SiPCO with chunks of ranks outside the job in transit; fold onto whole digits where the job has only a part of some.

    A block is L groups of r chunks; slot g*r + c is chunk c of group g, which a rank with u_g = c owns. Group g goes over the
    levels g, g - 1, .. g + 1 and g again, mod L: it is given away, summed by its owners, and spread. In the highest group, no
    rank of the job owns the chunks whose digit it lacks. These are in transit and go one level on: they are owned by u_0 = c,
    over level 0, L - 1, .. 1 and 0. The channel is the level.
    """
    if not _is_plain(part):
        return fold(part)
    job = _job(part)
    r, L, u = job.r, len(job.u), job.u
    check_rows(len(job.members) * (r - 1) * (L if _is_whole(part) else 1))  # the first round's, before it takes all memory
    k, top = np.arange(r)[:, None], r * (L - 1)
    in_transit = ~job.full

    def step(v: int) -> list[Sends]:
        groups = [(v + level) % L for level in range(L)]
        sums = [job.send(level, g * r + u[g], reduce=v < L) for level, g in enumerate(groups)]
        return [*sums, job.send(-v % L, top + u[0], in_transit[u[0]], reduce=v < L)]

    given = [job.send(level, level * r + k) for level in range(L)]
    first = [*given, job.send(0, top + k, in_transit[k])]
    return Schedule.build(len(job.members), r * L, [first, *map(step, range(1, L + 1))])


def fold(part: PartialGrid) -> Schedule:
    """Reduce along the rows, fold partial digits onto the first whole one, exchange level by level, unfold, gather by rows.

    A block is r chunks; the ranks with u_0 = c own chunk c. After the exchange each rank of a whole digit has the sum of its
    own chunk. The channel is the level; every message goes to a neighbour.

    Args:
        part: Any job that the algorithm takes, even one in which nothing is folded.
    """
    job = _job(part)
    N, r, top, own = len(job.members), job.r, len(job.u) - 1, job.u[0]
    k, whole = np.arange(r)[:, None], job.full[job.u[-1]]
    folds = np.flatnonzero(~whole)
    onto = job.to(top, int(np.argmax(job.full)))[0][folds]
    exchange = (job.send(level, own, whole & (job.full[k] | (level < top))) for level in range(1, top + 1))
    rounds = [
        job.send(0, k),
        Sends(folds, onto, own[folds], reduce=True, channel=top),
        *exchange,
        Sends(onto, folds, own[folds], channel=top),
        job.send(0, own, reduce=False),
    ]
    return Schedule.build(N, r, rounds)
