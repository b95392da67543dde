"""Collectives level by level: first inside a node, then between nodes, then between racks, and back.

Each level moves only what the level inside it has reduced, so that the links of the outer levels carry the least. Source: Cho
et al., BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy, MLSys (2019). The dims are the
levels, the outermost first (racks x nodes x ranks of a node). There may be up to four levels. In each level ranks form a ring,
or each sends to all others; or the latter in the innermost level, and rings outside it. Letters: N ranks, N blocks.
"""

from collections.abc import Callable
from fractions import Fraction
from math import prod

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule
from emu.collective.shape import LinePattern, around_ring, gather_along, grids, to_all
from emu.collective.transform import concatenate, dual

Dims = tuple[int, ...]


def _share(dims: Dims) -> Fraction:
    """Return the claimed beta, which is the share of the size that each rank sends."""
    n = prod(dims)
    return Fraction(n - 1, n)


def _file(
    name: str, inner: LinePattern, outer: LinePattern, alpha: Callable[[Dims], int], summaries: tuple[str, str, str]
) -> None:
    """File the all_gather, the reduce_scatter and the all_reduce of one pattern of levels.

    Args:
        name: The name of the algorithm, after `hierarchical-`.
        inner: The pattern of the innermost level.
        outer: The pattern of the other levels.
        alpha: The number of rounds of a half, by the dims. With one port a rank, levels cost no more bytes.
        summaries: A line for each of the three, as `emu list collectives` shows them.
    """

    def gather(dims: Dims, up: int = 1) -> Schedule:  # rank 0's rows: translations give the other ranks'
        n = prod(dims)
        levels = gather_along(np.arange(n).reshape(dims), [*[outer] * (len(dims) - 1), inner], up)
        return Schedule.build(n, n, levels, translate=dims)

    def reduce(dims: Dims) -> Schedule:  # its dual turns each send round: of rings downwards, so that these go upwards too
        return dual(gather(dims, up=-1))

    def both(dims: Dims) -> Schedule:
        return concatenate(reduce(dims), gather(dims))

    half = Claim("rank", alpha=alpha, beta=_share)
    whole = Claim("rank", alpha=lambda dims: 2 * alpha(dims), beta=lambda dims: 2 * _share(dims))
    filed = (("all_gather", gather, half), ("reduce_scatter", reduce, half), ("all_reduce", both, whole))
    for (operation, build, claim), summary in zip(filed, summaries, strict=True):
        build.__doc__ = summary
        collective(operation, f"hierarchical-{name}", claim=claim, shapes=grids)(build)


_file(
    "ring",
    around_ring,
    around_ring,
    lambda dims: sum(d - 1 for d in dims),
    (
        "Pass all that a rank has around its ring of each level, from the outermost to the innermost.",
        "Pass partial sums around each rank's ring, from the innermost level to the outermost; rank r ends with block r.",
        "Do a reduce_scatter around rings from the innermost level outwards, then an all_gather back inwards.",
    ),
)
_file(
    "direct",
    to_all,
    to_all,
    lambda dims: sum(d > 1 for d in dims),
    (
        "Send all that a rank has to its peers of each level, from the outermost to the innermost.",
        "Send each peer what it reduces on, from the innermost level to the outermost; rank r ends with block r.",
        "Do a direct reduce_scatter from the innermost level outwards, then a direct all_gather back inwards.",
    ),
)
_file(
    "direct-ring",
    to_all,
    around_ring,
    lambda dims: sum(d - 1 for d in dims[:-1]) + (dims[-1] > 1),
    (
        "Pass all that a rank has around its ring of each outer level, then send it to its peers of the innermost.",
        "Send each peer of the innermost level what it reduces on, then pass partial sums around the outer rings.",
        "Do a reduce_scatter, direct inside and around rings outside, then an all_gather back.",
    ),
)
