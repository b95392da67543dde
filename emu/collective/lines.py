"""Gathers along the lines of a grid of ranks, one axis after another: the rows of rank 0, whose translations give the others'.

A line is the ranks that differ in one digit. All that a rank has goes along its line, around a ring or straight to all others.
Letters: N ranks, which also name blocks; d ranks of a line.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod

from emu.arrays import I64
from emu.collective.schedule import Sends

Step = tuple[I64, I64]  # ranks to which rank 0 sends in a round, and the blocks that it sends them
LinePattern = Callable[[I64, int], Iterator[Step]]  # ([d, held] blocks of a line of ranks, rank 0 first; up) -> rounds


def around_ring(held: I64, up: int) -> Iterator[Step]:
    """Return the rounds of rank 0 around a ring: first what it has, then what came from the other side.

    A rank is named by its first block. `up` is 1 or -1, the side to which it sends.
    """
    d = len(held)
    return ((held[up % d, 0], held[-up * t % d]) for t in range(d - 1))


def to_all(held: I64, up: int) -> Iterator[Step]:
    """Yield the round in which rank 0 sends all others of its line what it has."""
    yield held[1:, :1], held[0]


def gather_along(place: I64, patterns: Sequence[LinePattern], up: int = 1, part: int = 0, parts: int = 1) -> Iterator[Sends]:
    """Yield the rounds of rank 0 in one part of an all_gather, along one axis of the grid after another.

    Args:
        place: The grid of ranks, with its axes in the order in which they are gathered along.
        patterns: The pattern of each axis; axes behind the last pattern are left out.
        up: The side to which rings send, 1 or -1.
        part: The number of the part, which is also its channel.
        parts: The number of parts of a block.
    """
    for axis, (d, pattern) in enumerate(zip(place.shape, patterns, strict=False)):
        # What the line holds: any digit along earlier axes, 0 along later ones; a rank's own block is first.
        held = place.reshape(prod(place.shape[:axis]), d, -1)[:, :, 0].T
        for ranks, blocks in pattern(held, up):
            yield Sends(0, ranks, blocks * parts + part, channel=part)
