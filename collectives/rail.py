"""All-to-all of m nodes with g ranks each, where ranks of the same local index share a rail between the nodes.

The rail of an item is its sink's local index, so that all rails carry the same whatever m and g are. Source: Mandakolathur
and Jeaugey, Doubling all2all performance with NVIDIA Collective Communication Library 2.12 (2022): PXN, whose proxy is here a
rank. n = m*g ranks, rank = node*g + local.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import planes

_CLAIM = Claim("rank", alpha=lambda _: 2, beta=lambda dims: 2 - Fraction(1, dims[0]) - Fraction(1, dims[1]))


@collective("all_to_all", "rail", claim=_CLAIM, shapes=planes)
def all_to_all(dims: tuple[int, ...]) -> Schedule:
    """Each rank sends its node's ranks what is for their rails, then each sends every node what its own node has for it."""
    m, g = dims
    n = m * g
    local, node = np.arange(g), np.arange(m) * g
    inside = Sends(0, local[1:, None], slot=local[1:, None] + node)
    between = Sends(0, node[1:, None], slot=local * n + node[1:, None])
    return Schedule.build(n, n * n, [inside, between], translate=dims, slot_digits=2)
