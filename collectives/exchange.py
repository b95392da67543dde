"""All-to-all where each item goes straight from its source to its sink.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, Int. J. High Perform.
Comput. Appl. 19 (2005). Its n - 1 latencies of pairwise are those of a blocking exchange; here a round does not wait for
the answer to the one before.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends

_CLAIM = Claim("rank", alpha=lambda n: min(n - 1, 1), beta=lambda n: Fraction(n - 1, n))


@collective("all_to_all", "pairwise", claim=_CLAIM)
def pairwise(n: int) -> Schedule:
    """In round t, rank r sends its item for rank r+t to it."""
    src = np.arange(n)
    sinks = ((src + t) % n for t in range(1, n))
    return Schedule.build(n, n * n, (Sends(src, dst, slot=src * n + dst) for dst in sinks))


@collective("all_to_all", "at-once", claim=_CLAIM, default=True)
def at_once(n: int) -> Schedule:
    """Every rank sends every item to its sink in the one round."""
    src, dst = np.nonzero(~np.eye(n, dtype=np.bool_))
    return Schedule.build(n, n * n, [Sends(src, dst, slot=src * n + dst)])
