"""RailX's hierarchical collectives on G x p x p: a ring of the G chips of a node, then the p x p nodes in two halves.

Source: Feng et al., RailX: a flexible, scalable, and low-cost network architecture for hyper-scale LLM training systems (2025),
eq. 8 (rings along the rails) and appendix A.2, eq. 12-13 (all nodes of a row or column at once). N = G p p ranks, the chip's
number the slowest digit; N blocks, each in four parts. Part c is on channel c: it reduces around the local ring, up where c is
even and down where it is odd, then among chips of the same number along X and Y (c < 2) or Y and X, and gathers backwards.

Eq. 8 leaves out the local latency, 2(G - 1) steps, and rounds 4(p - 1) up to 4p. A mesh of m x m chips has a local ring for
even m only.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import grids
from emu.collective.transform import dual, then

Dims = tuple[int, int, int]  # G, p, p
Line = Callable[[I64, int, int], Iterator[Sends]]  # of [d, held] what a line of ranks holds, rank 0 first; channel, up


def _squares(n: int) -> Iterator[tuple[int, ...]]:
    """Grids G x p x p of 2 or more, the most even first."""
    return (dims for dims in grids(n) if len(dims) == 3 and dims[1] == dims[2])


def _local(dims: Dims) -> Fraction:
    """Of the whole, what a local link carries in one half: two parts each way, all four where left is right."""
    return Fraction(dims[0] - 1, dims[0]) / (1 if dims[0] == 2 else 2)


def _rails(dims: Dims) -> Fraction:
    """Of the whole, what a rail carries in one half: one part each way at a time, two where left is right."""
    g, p, _ = dims
    return Fraction(p * p - 1, p * p * 4 * g) * (2 if p == 2 else 1)


def _steps(dims: Dims) -> int:
    return dims[0] - 1 + 2 * (dims[1] - 1)


def _row(dims: Dims) -> Fraction:
    """Of the whole, what the link between two nodes carries in one half where all send at once: two parts at a time."""
    g, p, _ = dims
    return Fraction(p + 1, p * p * 2 * g)


def _claims(steps: Callable[[Dims], int], between: Callable[[Dims], Fraction]) -> tuple[Claim, Claim]:
    """Of a half and of both, on links all of one rate."""
    half = Claim("pair", alpha=steps, beta=lambda dims: _local(dims) + between(dims))
    return half, Claim("pair", alpha=lambda d: 2 * steps(d), beta=lambda d: 2 * (_local(d) + between(d)))


_RING, _BOTH_RING = _claims(_steps, _rails)
_DIRECT, _BOTH_DIRECT = _claims(lambda dims: dims[0] - 1 + 2, _row)


def _ring(held: I64, channel: int, up: int) -> Iterator[Sends]:
    """Rank 0 passes to its neighbour first what it has, then what came from the other one."""
    d = len(held)
    return (Sends(0, held[up % d, 0], held[-up * t % d] * 4 + channel, channel=channel) for t in range(d - 1))


def _direct(held: I64, channel: int, up: int) -> Iterator[Sends]:
    """Rank 0 sends what it has to all others of its line."""
    yield Sends(0, held[1:, :1], held[0] * 4 + channel, channel=channel)


def _gather(dims: Dims, between: Line, *, turned: bool = False) -> Schedule:
    """Rank 0's rows; translations give the others'."""
    n = dims[0] * dims[1] * dims[2]
    place = np.arange(n).reshape(dims)
    axes = (place.transpose(2, 1, 0), place.transpose(1, 2, 0))
    parts = (_part(axes[c // 2], between, c, 1 if (c % 2 == 0) != turned else -1) for c in range(4))
    return Schedule.build(n, 4 * n, zip(*parts, strict=True), translate=dims)


def _part(place: I64, between: Line, channel: int, up: int) -> Iterator[Sends]:
    """The steps of one part: along the first axis, along the second with all of the first's, then around the local ring."""
    p, _, g = place.shape
    yield from between(place[:, 0, 0, None], channel, up)
    yield from between(place[:, :, 0].T, channel, up)
    yield from _ring(place.reshape(p * p, g).T, channel, up)


@collective("all_gather", "railx-ring", claim=_RING, shapes=_squares)
def ring_all_gather(dims: Dims) -> Schedule:
    """In each part, rank r passes all it has around its rings of nodes, one after the other, then around its local ring."""
    return _gather(dims, _ring)


@collective("all_gather", "railx-hyperx", claim=_DIRECT, shapes=_squares)
def hyperx_all_gather(dims: Dims) -> Schedule:
    """In each part, rank r sends all it has to its row and column of nodes, then passes it around its local ring."""
    return _gather(dims, _direct)


@collective("reduce_scatter", "railx-ring", claim=_RING, shapes=_squares)
def ring_reduce_scatter(dims: Dims) -> Schedule:
    """In each part, rank r passes partial sums around its local ring, then around its rings of nodes; it ends with block r."""
    return dual(_gather(dims, _ring, turned=True))  # turned: the dual turns each send round, a part keeps its direction


@collective("reduce_scatter", "railx-hyperx", claim=_DIRECT, shapes=_squares)
def hyperx_reduce_scatter(dims: Dims) -> Schedule:
    """In each part, rank r passes partial sums around its local ring, then sends each node's chip what that reduces on."""
    return dual(_gather(dims, _direct, turned=True))


@collective("all_reduce", "railx-ring", claim=_BOTH_RING, shapes=_squares)
def ring_all_reduce(dims: Dims) -> Schedule:
    """A reduce_scatter in four parts at once, from the local ring to those of nodes, then an all_gather back."""
    return then(ring_reduce_scatter(dims), ring_all_gather(dims))


@collective("all_reduce", "railx-hyperx", claim=_BOTH_DIRECT, shapes=_squares)
def hyperx_all_reduce(dims: Dims) -> Schedule:
    """A reduce_scatter around the local ring and at once between nodes, then an all_gather back."""
    return then(hyperx_reduce_scatter(dims), hyperx_all_gather(dims))
