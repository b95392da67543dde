"""What an algorithm is built for: so many ranks, the dims of a grid of them, or some members of such a grid.

A grid's places are numbered with the last digit fastest (C order).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, prod

from emu.errors import must_be

_PLACES = 2**31


@dataclass(frozen=True, slots=True)
class Part:
    """A job on some places of a grid; rank r is on the place `members[r]`, and they ascend.

    Raises:
        InputError: members that do not ascend, that are no places of the grid, or none; or more than 2**31 places.
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


Grid = tuple[int, ...] | Part  # as it is asked for; () is none
Shape = int | Grid
Shapes = Callable[[int], Iterable[Shape]]  # the shapes of n ranks that an algorithm takes, the best first


def ranks_of(shape: Shape) -> int:
    """How many ranks a shape has."""
    if isinstance(shape, Part):
        return len(shape.members)
    return shape if isinstance(shape, int) else prod(shape)


def dims_of(shape: Shape) -> tuple[int, ...]:
    """The dims of the grid; of so many ranks, one dimension."""
    if isinstance(shape, Part):
        return shape.dims
    return (shape,) if isinstance(shape, int) else shape


def show_shape(shape: Shape) -> str:
    """`16`, `4x4`, or `4x4:0-7` for the first eight places of a grid."""
    dims = "x".join(map(str, dims_of(shape)))
    return f"{dims}:{_ranges(shape.members)}" if isinstance(shape, Part) else dims


def named_shape(name: str, dims: tuple[int, ...]) -> str:
    """An algorithm's name, and its grid if it was built for one: `NAME 8x8`."""
    return f"{name} {show_shape(dims)}" if len(dims) > 1 else name


def _ranges(members: tuple[int, ...]) -> str:
    runs: list[list[int]] = []
    for m in members:
        if runs and runs[-1][-1] == m - 1:
            runs[-1][1:] = [m]
        else:
            runs.append([m])
    return ",".join("-".join(map(str, run)) for run in runs)


def parse_dims(text: str, name: str = "dims") -> tuple[int, ...]:
    """Dims from `4x4`.

    Raises:
        InputError: not whole numbers of 1 or more joined by x.
    """
    if not re.fullmatch(r"\d{1,9}(x\d{1,9})*", text) or 0 in (dims := tuple(map(int, text.split("x")))):
        raise must_be("shape", name, "whole numbers of 1 or more joined by x, such as 4x4", text)
    return dims


def parse_grid(text: str, name: str = "dims") -> Grid:
    """A grid from `4x4`, or some places of it from `4x4:0-3,8`, as `show_shape` writes them.

    Raises:
        InputError: as `parse_dims` and `Part`, or places that are not numbers and ranges of them.
    """
    grid, colon, places = text.partition(":")
    dims = parse_dims(grid, name)
    if not colon:
        return dims
    if not re.fullmatch(r"\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*", places):
        raise must_be("shape", name, "a grid and places of it, such as 4x4:0-3,8", text)
    runs = [[int(end) for end in run.split("-")] for run in places.split(",")]
    if max(run[-1] for run in runs) >= prod(dims):  # before a range is written out
        raise must_be("shape", name, f"places 0..{prod(dims) - 1} after the colon", text)
    return Part(dims, tuple(place for run in runs for place in range(run[0], run[-1] + 1)))


def every(n: int) -> Iterator[Shape]:
    """Any number of ranks."""
    yield n


def powers_of_two(n: int) -> Iterator[Shape]:
    """Numbers of ranks that are powers of two."""
    if n & (n - 1) == 0:
        yield n


def grids(n: int) -> Iterator[tuple[int, ...]]:
    """Grids of one to four dims of 2 or more: two dims first, the most even first."""
    found = _factorisations(n, 4) if n > 1 else [(1,)]
    yield from sorted(found, key=lambda dims: (len(dims) != 2, max(dims), len(dims), dims))


def planes(n: int) -> Iterator[tuple[int, ...]]:
    """Grids of two dims of 2 or more, the most even first."""
    return (dims for dims in grids(n) if len(dims) == 2)


def cubes(n: int) -> Iterator[tuple[int, ...]]:
    """Grids of two to four equal dims r of 2 or more, the fewest dims first."""
    return (dims for dims in sorted(grids(n), key=len) if len(set(dims)) == 1 and len(dims) > 1)


def _factorisations(n: int, most: int) -> Iterator[tuple[int, ...]]:
    """Ordered, of at most so many factors of 2 or more."""
    yield (n,)
    small = [d for d in range(2, isqrt(n) + 1) if n % d == 0] if most > 1 else []
    for first in sorted({*small, *(n // d for d in small)}):
        yield from ((first, *rest) for rest in _factorisations(n // first, most - 1))
