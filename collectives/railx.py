"""RailX's hierarchical collectives: first among the G chips of a node, then between p x p nodes in two halves, and back.

Source: Feng et al., RailX: a flexible, scalable, and low-cost network architecture for hyper-scale LLM training systems (2025),
eq. 8 (rings along the rails) and appendix A.2, eq. 12-13 (all nodes of a row or column at once). N = p p G ranks: a node's
place in Y and X, then the chip's number, the fastest digit. N blocks, each in four parts. Part c reduces inside the node, then
among chips of the same number along X and Y (c < 2) or Y and X, and gathers backwards. It is on channel c, and goes upwards
where c is even and downwards where it is odd.

On p x p x G the chips of a node are a ring, which a mesh of m x m chips has for even m only. On p x p x m x m they are a mesh,
for any m, and part c reduces along rows and then columns (c < 2) or columns and then rows: lines, without a link that wraps.

Links have two classes: inside a node, k n B in the paper, and between nodes, n B / m. Against the exact time, eq. 8 leaves out
the local latency and the terms in 1/G and 1/p^2, and rounds 4(p - 1) up to 4p.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import prod

import numpy as np

from emu.arrays import I64, column
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends, check_rows
from emu.collective.shape import LinePattern, around_ring, gather_along, grids, to_all
from emu.collective.transform import concatenate, dual

Dims = tuple[int, ...]  # p, p, G or p, p, m, m
_MESH = 4  # the channel of all parts in a mesh: in one queue of a chip no link serves two steps at once


def _squares(n: int) -> Iterator[tuple[int, ...]]:
    """Yield grids p x p x G and p x p x m x m with dims of 2 or more, rings first, the most even first."""
    square = (dims for dims in grids(n) if len(dims) > 2 and dims[0] == dims[1])
    yield from sorted((dims for dims in square if len(dims) == 3 or dims[2] == dims[3]), key=len)


def _chips(dims: Dims) -> int:
    """Return the number of chips of a node, G."""
    return prod(dims[2:])


def _local(dims: Dims) -> Fraction:
    """Return the share of the data on the busiest link inside a node in a reduce_scatter or all_gather.

    Two parts go each way; all four use one link if left and right are the same neighbour. In a mesh the busiest links are those
    at the ends of a line: in both steps together they carry as much as a link of a ring of as many chips.
    """
    g = _chips(dims)
    return Fraction(g - 1, g) / (1 if g == 2 else 2)


def _rails(dims: Dims) -> Fraction:
    """Return the share of the data on a rail in one half of the all_reduce."""
    p = dims[0]
    return Fraction(p * p - 1, p * p * 4 * _chips(dims)) * (2 if p == 2 else 1)


def _row(dims: Dims) -> Fraction:
    """Return the share of the data on the link between two nodes in one half of the all_reduce."""
    p = dims[0]
    return Fraction(p + 1, p * p * 2 * _chips(dims))


def _rounds_in_node(dims: Dims) -> int:
    """Return the number of rounds in which the chips of one node pass blocks on to one another in one half of an all_reduce.

    A node is a ring of G chips (dims p, p, G: G - 1 rounds), or a mesh of m x m chips (dims p, p, m, m: 2 (m - 1) rounds).
    """
    return dims[2] - 1 if len(dims) == 3 else 2 * (dims[2] - 1)


def _link_class(dims: Dims, src: I64, dst: I64) -> I64:
    """Return the class of each pair: 0 inside a node, 1 between nodes."""
    g = _chips(dims)
    return column(src // g != dst // g, np.int64)


def _claims(steps: Callable[[Dims], int], share: Callable[[Dims], Fraction]) -> tuple[Claim, Claim]:
    """Return the claim of a reduce_scatter or all_gather, and that of an all_reduce, which is twice as much.

    Args:
        steps: A function that returns the number of rounds between nodes.
        share: A function that returns the share of the whole on a link between nodes in one half.
    """

    def of(halves: int) -> Claim:
        return Claim(
            "pair",
            alpha=lambda dims: (halves * _rounds_in_node(dims), halves * steps(dims)),
            beta=lambda dims: (halves * _local(dims), halves * share(dims)),
            link_class=_link_class,
        )

    return of(1), of(2)


_RING, _BOTH_RING = _claims(lambda dims: 2 * (dims[0] - 1), _rails)
_DIRECT, _BOTH_DIRECT = _claims(lambda _: 2, _row)


def _gather(dims: Dims, between: LinePattern, *, turned: bool = False) -> Schedule:
    """Return the schedule of an all_gather: first between nodes, then inside each node."""
    n, g = prod(dims), _chips(dims)
    grid = (*dims[:2], g)
    place, ring = np.arange(n).reshape(grid), len(dims) == 3
    patterns = [between, between, *[around_ring] * ring]
    nodes, sides = (place.swapaxes(0, 1), place), [1 if (c % 2 == 0) != turned else -1 for c in range(4)]
    parts = (gather_along(nodes[c // 2], patterns, up, c, 4) for c, up in enumerate(sides))
    built = Schedule.build(n, 4 * n, zip(*parts, strict=True), translate=grid)
    return built if ring else concatenate(built, _mesh(dims))


def _mesh(dims: Dims) -> Schedule:
    """Return the rows of every chip: parts 0 and 1 along columns and then rows, parts 2 and 3 along rows and then columns."""
    n, m = prod(dims), dims[2]
    check_rows(n * (n - dims[0] * dims[1]) * 4)
    place = np.arange(n).reshape(-1, m, m).transpose(1, 2, 0)
    steps = zip(_lines(place, 0), _lines(place.transpose(1, 0, 2), 2), strict=True)
    return Schedule.build(n, 4 * n, ((*a, *b) for a, b in steps))


def _lines(place: I64, part: int) -> Iterator[tuple[Sends, Sends]]:
    """Yield the sends of two parts, round by round.

    They go along lines of the first axis with each chip's own blocks, then along lines of the second with the blocks of a line.
    """
    m, _, nodes = place.shape
    one = np.broadcast_to(place[:, :, None, :], (m, m, nodes, nodes))  # [i, j, node, held]
    all_of_line = np.broadcast_to(place.transpose(1, 0, 2).reshape(m, 1, 1, -1), (m, m, nodes, m * nodes))
    yield from _line(place, one, part)
    yield from _line(place.transpose(1, 0, 2), all_of_line, part)


def _line(chips: I64, held: I64, part: int) -> Iterator[tuple[Sends, Sends]]:
    """Yield each chip's sends to either side: first its own blocks, then those received from the other side.

    Args:
        chips: [m, ..] the ranks by their position on a line.
        held: [m, .., h] the blocks that each rank has.
        part: The first of the two parts.
    """
    m, rank, slot = len(chips), chips[..., None, None], held[..., None] * 4 + part + np.arange(2)
    for t in range(m - 1):
        upwards = Sends(rank[t : m - 1], rank[t + 1 :], slot[: m - 1 - t], channel=_MESH)
        yield upwards, Sends(rank[1 : m - t], rank[: m - 1 - t], slot[t + 1 :], channel=_MESH)


@collective("all_gather", "railx-ring", claim=_RING, shapes=_squares)
def ring_all_gather(dims: Dims) -> Schedule:
    """Pass, in each part, all that a rank has around its rings of nodes, one after the other, then inside its node."""
    return _gather(dims, around_ring)


@collective("all_gather", "railx-hyperx", claim=_DIRECT, shapes=_squares)
def hyperx_all_gather(dims: Dims) -> Schedule:
    """Send, in each part, all that a rank has to its row and column of nodes, then pass it on inside its node."""
    return _gather(dims, to_all)


@collective("reduce_scatter", "railx-ring", claim=_RING, shapes=_squares)
def ring_reduce_scatter(dims: Dims) -> Schedule:
    """Pass, in each part, partial sums on inside nodes, then around the rings of nodes; rank r ends with block r."""
    return dual(_gather(dims, around_ring, turned=True))  # turned: the dual turns each send round, a part keeps its direction


@collective("reduce_scatter", "railx-hyperx", claim=_DIRECT, shapes=_squares)
def hyperx_reduce_scatter(dims: Dims) -> Schedule:
    """Pass partial sums on inside nodes in each part, then send every chip the sums that it reduces further."""
    return dual(_gather(dims, to_all, turned=True))


@collective("all_reduce", "railx-ring", claim=_BOTH_RING, shapes=_squares)
def ring_all_reduce(dims: Dims) -> Schedule:
    """Do a reduce_scatter in four parts at once, inside nodes and then around rings of nodes, then an all_gather back."""
    return concatenate(ring_reduce_scatter(dims), ring_all_gather(dims))


@collective("all_reduce", "railx-hyperx", claim=_BOTH_DIRECT, shapes=_squares)
def hyperx_all_reduce(dims: Dims) -> Schedule:
    """Do a reduce_scatter inside nodes and then all at once between them, then an all_gather back."""
    return concatenate(hyperx_reduce_scatter(dims), hyperx_all_gather(dims))
