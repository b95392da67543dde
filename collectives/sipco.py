"""SiPCO(r, L), an all_reduce on SiPAC(r, L): all levels work at once, each on another group of the block.

Source: Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning, J. Opt. Commun. Netw.
16 (2024), section 4. N = r**L ranks, with two levels or more (with one it would be the direct all_reduce). Rank u has digits
u_0 .. u_(L-1), level 0 the fastest (the last of the dims), and its r - 1 level-l neighbours differ from it in digit l only. A
block is L groups of r chunks; slot g*r + c is chunk c of group g.
"""

from fractions import Fraction

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends, check_rows
from emu.collective.shape import cubes

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
