"""All-to-all dimension by dimension, where all ranks of a line of the grid are linked: one round a dimension.

Source: Ahn, Binkert, Davis, McLaren and Schreiber, HyperX: topology, routing, and packaging of efficient large-scale
networks, SC (2009): its dimension-order routing, here of whole items. N ranks, dims of size d.
"""

from fractions import Fraction
from math import prod

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import grids

_CLAIM = Claim(
    "rank",
    alpha=lambda dims: sum(d > 1 for d in dims),
    beta=lambda dims: sum((1 - Fraction(1, d) for d in dims), Fraction(0)),
)


def _round(dims: tuple[int, ...], i: int) -> Sends:
    """Return the sends of rank 0 along dimension i.

    Earlier digits of an item are already the sink's, later ones still the source's.
    """
    after = prod(dims[i + 1 :])
    s = np.arange(prod(dims[:i])).reshape(-1, 1, 1) * dims[i] * after
    dst = np.arange(1, dims[i]).reshape(-1, 1) * after
    return Sends(0, dst, slot=s * prod(dims) + dst + np.arange(after))


@collective("all_to_all", "dimension-ordered", claim=_CLAIM, shapes=grids)
def all_to_all(dims: tuple[int, ...]) -> Schedule:
    """Send, dimension by dimension, every item that a rank holds to the rank of its line with the sink's digit."""
    n = prod(dims)
    rounds = (_round(dims, i) for i in range(len(dims)))
    return Schedule.build(n, n * n, rounds, translate=dims, slot_digits=2)
