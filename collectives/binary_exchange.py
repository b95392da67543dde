"""All-to-all by halving the distance: p = 2**q ranks, and in each of q rounds one partner, who takes half of what a rank holds.

Source: InfiniteHBD (SIGCOMM 2025), Algorithm 6, with two corrections: the destinations sent in the round of bit b begin at
the partner with its low b bits cleared (the print keeps only bit b, which is wrong from the second round on), and their
end is exclusive.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends, check_rows
from emu.collective.shape import powers_of_two


def _q(p: int) -> int:
    """Return the base-2 logarithm of a power of two, or of the largest one below p."""
    return p.bit_length() - 1


_CLAIM = Claim("rank", alpha=_q, beta=lambda p: Fraction(_q(p), 2))


def _round(p: int, b: int) -> Sends:
    """Return rows [rank i, source s, destination d]: from ranks that i has heard of to those that agree with r above bit b."""
    i = np.arange(p).reshape(-1, 1, 1)
    r = i ^ (1 << b)
    s = i % (2 << b) + np.arange(0, p, 2 << b).reshape(-1, 1)  # Commset(i): it differs from i only above bit b
    d = r >> b << b | np.arange(1 << b)
    return Sends(i, r, slot=s * p + d)


@collective("all_to_all", "binary-exchange", claim=_CLAIM, shapes=powers_of_two)
def all_to_all(p: int) -> Schedule:
    """Send, in the round of bit b, from the highest down, all that rank i holds for ranks with that bit to rank i ^ 2**b."""
    check_rows(p * p // 2 * _q(p))
    return Schedule.build(p, p * p, (_round(p, b) for b in reversed(range(_q(p)))))
