"""Flex-SiPCO, an all_reduce on a part of SiPAC(r, 2): what a rank outside the job would own goes by another level.

Source: Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning, J. Opt. Commun. Netw.
16 (2024), section 4 and Algorithm 1. A rank has digits u_0 and u_1, and neighbours on level 0 (its row: the other u_0) and
on level 1 (the other u_1). The job is m >= 2 whole rows. A block is 2 groups of r chunks; slot g*r + c is chunk c of group g.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import Part


def _rows(n: int) -> Iterator[Part]:
    """Rows one after another from any row on, the smallest r first."""
    for r in range(2, n // 2 + 1):
        if n % r == 0 and n <= r * r:
            yield from (Part((r, r), tuple(range(first, first + n))) for first in range(0, r * r - n + 1, r))


def _steps(part: Part) -> int:
    return 3


def _whole(part: Part) -> bool:
    return len(part.members) == part.dims[0] ** 2


def _beta(part: Part) -> Fraction:
    """A link takes one chunk a step, and two at most where some are in transit."""
    r = part.dims[0]
    return Fraction(3 * (r - 1), 2 * r) * (1 if _whole(part) else 2)


_CLAIM = Claim("channel", alpha=_steps, beta=_beta, exact=_whole)


@collective("all_reduce", "flex-sipco", claim=_CLAIM, shapes=_rows)
def all_reduce(part: Part) -> Schedule:
    """On each level a rank gives away a group's chunks, sums its own of the other group, spreads its sum; some by the row.

    A rank owns chunk u_0 of group 0, summed over level 0, then 1, and chunk u_1 of group 1, over level 1, then 0. No row of
    the job owns chunk c of group 1 where none has u_1 = c: such a chunk is in transit, owned by the ranks of u_0 = c, and
    summed over level 0, then 1. The channel is the level.
    """
    r, members = part.dims[0], np.array(part.members)
    rank, u_0, u_1 = (column[:, None] for column in (np.arange(len(members)), members % r, members // r))
    digits = np.unique(u_1)  # of level 1, of the rows of the job
    in_transit = ~np.isin(np.arange(r), digits)
    k = (u_0 + np.arange(1, r)) % r  # [N, r - 1] digits of the neighbours on level 0
    row = (rank // r + np.arange(1, len(digits))) % len(digits)  # [N, m - 1] rows of those on level 1
    neighbours = (rank - u_0 + k, row * r + u_0)

    def send(level: int, slot: ArrayLike, where: ArrayLike = True, *, reduce: bool = True) -> Sends:
        src, dst, slots, which = np.broadcast_arrays(rank, neighbours[level], slot, where)
        return Sends(src[which], dst[which], slots[which], reduce, channel=level)

    rounds = [
        [send(0, k), send(0, r + k, in_transit[k]), send(1, r + digits[row])],
        [send(0, r + u_1), send(1, u_0), send(1, r + u_0, in_transit[u_0])],
        [send(0, u_0, reduce=False), send(0, r + u_0, in_transit[u_0], reduce=False), send(1, r + u_1, reduce=False)],
    ]
    return Schedule.build(len(members), 2 * r, rounds)
