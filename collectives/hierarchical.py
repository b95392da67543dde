"""Collectives level by level: reduce inside the node, then between nodes what is left, then between racks, and back.

Each level moves only what the level inside it has reduced, so that the links of the outer levels carry the least. Source: Cho
et al., BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy, MLSys (2019). dims are the
levels, the outermost first (racks x nodes x ranks of a node); N ranks, N blocks. There may be up to four levels, with a ring in
each, all to all others in each, or the latter in the innermost and rings outside it.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import prod

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import grids
from emu.collective.transform import concatenate, dual

Dims = tuple[int, ...]
Level = Callable[[I64, int], Iterator[Sends]]  # ([d, held] blocks of rank 0 and its peers of a level, up) -> sends


def _share(dims: Dims) -> Fraction:
    """Return the claimed beta: the share of the size that each rank sends."""
    n = prod(dims)
    return Fraction(n - 1, n)


def _ring(held: I64, up: int) -> Iterator[Sends]:
    """Return the sends of rank 0 around a ring: first what it has, then what came from the other side.

    A rank is named by its first block.
    """
    d = len(held)
    return (Sends(0, held[up % d, 0], held[-up * t % d]) for t in range(d - 1))


def _direct(held: I64, up: int) -> Iterator[Sends]:
    """Yield the sends of rank 0 to all its peers, with what it has."""
    yield Sends(0, held[1:, :1], held[0])


def _levels(dims: Dims, inner: Level, outer: Level, up: int) -> Iterator[Sends]:
    """Yield the rounds of an all_gather from the outermost level to the innermost; each level has its own algorithm."""
    for level, d in enumerate(dims):
        within = prod(dims[level + 1 :])
        own = np.arange(prod(dims[:level])) * d * within  # what the outer levels have brought to rank 0
        yield from (inner if within == 1 else outer)(own + np.arange(d)[:, None] * within, up)


def _file(name: str, inner: Level, outer: Level, alpha: Callable[[Dims], int], summaries: tuple[str, str, str]) -> None:
    """File the all_gather, the reduce_scatter and the all_reduce of one way to go through the levels.

    Args:
        name: The name of the algorithm, after `hierarchical-`.
        inner: The sends in the innermost level.
        outer: The sends in the other levels.
        alpha: The rounds of a half on dims. With one port a rank, nesting costs no bytes.
        summaries: A line for each of the three, as `emu list collectives` shows them.
    """

    def gather(dims: Dims, up: int = 1) -> Schedule:  # rank 0's rows: translations give the other ranks'
        n = prod(dims)
        return Schedule.build(n, n, _levels(dims, inner, outer, up), translate=dims)

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
    _ring,
    _ring,
    lambda dims: sum(d - 1 for d in dims),
    (
        "Pass all that a rank has around its ring of each level, from the outermost to the innermost.",
        "Pass partial sums around each rank's ring, from the innermost level to the outermost; rank r ends with block r.",
        "Do a reduce_scatter around rings from the innermost level outwards, then an all_gather back inwards.",
    ),
)
_file(
    "direct",
    _direct,
    _direct,
    lambda dims: sum(d > 1 for d in dims),
    (
        "Send all that a rank has to its peers of each level, from the outermost to the innermost.",
        "Send each peer what it reduces on, from the innermost level to the outermost; rank r ends with block r.",
        "Do a direct reduce_scatter from the innermost level outwards, then a direct all_gather back inwards.",
    ),
)
_file(
    "direct-ring",
    _direct,
    _ring,
    lambda dims: sum(d - 1 for d in dims[:-1]) + (dims[-1] > 1),
    (
        "Pass all that a rank has around its ring of each outer level, then send it to its peers of the innermost.",
        "Send each peer of the innermost level what it reduces on, then pass partial sums around the outer rings.",
        "Do a reduce_scatter, direct inside and around rings outside, then an all_gather back.",
    ),
)
