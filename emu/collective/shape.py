"""Shapes for which an algorithm is built (a number of ranks, a grid, or some places of a grid), and gathers on grids.

The places of a grid are numbered with the last digit fastest (C order). A line is the ranks that differ in one digit. A gather
goes along the lines of one axis after another, around a ring or straight to all others; it is given by the rows of rank 0,
whose translations give the rows of the others. Letters: N ranks, which also name blocks; d ranks of a line.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, prod

from emu.arrays import I64
from emu.collective.schedule import Sends
from emu.errors import must_be

_PLACES = 2**31


@dataclass(frozen=True, slots=True)
class PartialGrid:
    """The shape of a job that has only some nodes of a grid: rank r is on node `members[r]`, in ascending order.

    Raises:
        InputError: There are no members, they do not ascend, or they are no nodes of the grid; or the grid has more than 2**31
            nodes.
    """

    dims: tuple[int, ...]
    members: tuple[int, ...]

    def __post_init__(self) -> None:
        if prod(self.dims) > _PLACES:
            raise must_be("shape", "dims", "a grid of at most 2**31 places", show_shape(self.dims))
        ascend = all(a < b for a, b in pairwise(self.members))
        if not self.members or not ascend or not 0 <= self.members[0] <= self.members[-1] < prod(self.dims):
            what = f"some of the places 0..{prod(self.dims) - 1} of {show_shape(self.dims)} in ascending order"
            raise must_be("shape", "members", what, _ranges(self.members) or "none")


Grid = tuple[int, ...] | PartialGrid  # () stands for no grid
Shape = int | Grid
Shapes = Callable[[int], Iterable[Shape]]  # the shapes of n ranks that an algorithm takes, the best first


def ranks_of(shape: Shape) -> int:
    """Return the number of ranks of a shape."""
    if isinstance(shape, PartialGrid):
        return len(shape.members)
    return shape if isinstance(shape, int) else prod(shape)


def dims_of(shape: Shape) -> tuple[int, ...]:
    """Return the dims of a shape's grid; a number of ranks is a grid of one dimension."""
    if isinstance(shape, PartialGrid):
        return shape.dims
    return (shape,) if isinstance(shape, int) else shape


def show_shape(shape: Shape) -> str:
    """Return a shape as text: `16`, `4x4`, or `4x4:0-7` for the first eight positions of a 4x4 grid."""
    dims = "x".join(map(str, dims_of(shape)))
    return f"{dims}:{_ranges(shape.members)}" if isinstance(shape, PartialGrid) else dims


def check_grid(where: str, grid: Grid | PartialGrid, n: int) -> None:
    """Check that a grid, the value of `--dims`, has a number of ranks.

    Raises:
        InputError: it has another number.
    """
    if ranks_of(grid) != n:
        raise must_be(where, "--dims", f"a grid of the {n} ranks", show_shape(grid))


def named_shape(name: str, dims: tuple[int, ...]) -> str:
    """Return an algorithm's name with the grid that it was built for, if any, such as `NAME 8x8`."""
    return f"{name} {show_shape(dims)}" if len(dims) > 1 else name


def _ranges(members: tuple[int, ...]) -> str:
    """Return numbers as text, with consecutive numbers as a range: `0-3,8`."""
    runs: list[list[int]] = []
    for m in members:
        if runs and runs[-1][-1] == m - 1:
            runs[-1][1:] = [m]
        else:
            runs.append([m])
    return ",".join("-".join(map(str, run)) for run in runs)


def parse_dims(text: str, name: str = "dims") -> tuple[int, ...]:
    """Return the dims in a text such as `4x4`.

    Raises:
        InputError: The text is not whole numbers of 1 or more joined by x.
    """
    if not re.fullmatch(r"\d{1,9}(x\d{1,9})*", text) or 0 in (dims := tuple(map(int, text.split("x")))):
        raise must_be("", name, "whole numbers of 1 or more joined by x, such as 4x4", text)
    return dims


def parse_grid(text: str, name: str = "dims") -> Grid:
    """Parse a grid such as `4x4`, or a partial grid such as `4x4:0-3,8`, and return it.

    Raises:
        InputError: See `parse_dims` and `PartialGrid`; or the text after the colon has no numbers or ranges of numbers.
    """
    grid, colon, places = text.partition(":")
    dims = parse_dims(grid, name)
    if not colon:
        return dims
    if not re.fullmatch(r"\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*", places):
        raise must_be("", name, "a grid and places of it, such as 4x4:0-3,8", text)
    runs = [[int(end) for end in run.split("-")] for run in places.split(",")]
    if max(run[-1] for run in runs) >= prod(dims):  # before a range is written out
        raise must_be("", name, f"places 0..{prod(dims) - 1} after the colon", text)
    return PartialGrid(dims, tuple(place for run in runs for place in range(run[0], run[-1] + 1)))


def any_rank_count(n: int) -> Iterator[Shape]:
    """Yield n, as the shape of an algorithm that works on any number of ranks."""
    yield n


def powers_of_two(n: int) -> Iterator[Shape]:
    """Yield n if it is a power of two, as the shape of an algorithm that needs that."""
    if n & (n - 1) == 0:
        yield n


def grids(n: int) -> Iterator[tuple[int, ...]]:
    """Yield the grids of n ranks with one to four dims of 2 or more.

    Grids of two dims come first, and of these the most even first.
    """
    found = _factorisations(n, 4) if n > 1 else [(1,)]
    yield from sorted(found, key=lambda dims: (len(dims) != 2, max(dims), len(dims), dims))


def planes(n: int) -> Iterator[tuple[int, ...]]:
    """Yield the grids of n ranks with exactly two dims, each of 2 or more, in both orders; the most even come first."""
    return (dims for dims in grids(n) if len(dims) == 2)


def cubes(n: int) -> Iterator[tuple[int, ...]]:
    """Yield the grids of n ranks with two to four equal dims of 2 or more, the fewest dims first."""
    return (dims for dims in sorted(grids(n), key=len) if len(set(dims)) == 1 and len(dims) > 1)


def _factorisations(n: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield the ordered factorisations of n into at most `most` factors of 2 or more.

    The first one is (n,), even for n = 1.
    """
    yield (n,)
    small = [d for d in range(2, isqrt(n) + 1) if n % d == 0] if most > 1 else []
    for first in sorted({*small, *(n // d for d in small)}):
        yield from ((first, *rest) for rest in _factorisations(n // first, most - 1))


Step = tuple[I64, I64]  # ranks to which rank 0 sends in a round, and the blocks that it sends them
LinePattern = Callable[[I64, int], Iterator[Step]]  # ([d, held] blocks of a line of ranks, rank 0 first; up) -> rounds


def around_ring(held: I64, up: int) -> Iterator[Step]:
    """Yield the sends of rank 0 around a ring: its own blocks first, then those received from the other side.

    Args:
        held: [d, blocks] the blocks of each rank of the line.
        up: The side to which rank 0 sends, 1 or -1.
    """
    d = len(held)
    return ((held[up % d, 0], held[-up * t % d]) for t in range(d - 1))


def to_all(held: I64, up: int) -> Iterator[Step]:
    """Yield the single send of rank 0 to all other ranks of its line."""
    yield held[1:, :1], held[0]


def gather_along(place: I64, patterns: Sequence[LinePattern], up: int = 1, part: int = 0, parts: int = 1) -> Iterator[Sends]:
    """Yield the rounds of rank 0 in one part of an all_gather, along one axis of the grid after another.

    Args:
        place: The grid of ranks; its axes are in the order in which they are gathered along.
        patterns: The pattern of each axis; axes after the last pattern are left out.
        up: The side to which rings send, 1 or -1.
        part: The number of the part, which is also its channel.
        parts: The number of parts of a block.
    """
    for axis, (d, pattern) in enumerate(zip(place.shape, patterns, strict=False)):
        # What the line holds: any digit along earlier axes, 0 along later ones; a rank's own block is first.
        held = place.reshape(prod(place.shape[:axis]), d, -1)[:, :, 0].T
        for ranks, blocks in pattern(held, up):
            yield Sends(0, ranks, blocks * parts + part, channel=part)
