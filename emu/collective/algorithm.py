"""The registry of algorithms: each builds the schedule of a collective operation."""

import difflib
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from inspect import getdoc
from itertools import chain, islice
from threading import Lock
from typing import Any, TypeVar

from cachetools import LRUCache, cached

from emu.collective.chooser_names import OWN_CHOOSERS, SYNTHESIZED
from emu.collective.claim import Claim
from emu.collective.operation import OPERATIONS, ROOTED, SLOTS_ARE_RANKS, check_root
from emu.collective.schedule import Schedule
from emu.collective.shape import Grid, PartialGrid, Shape, Shapes, any_rank_count, dims_of, ranks_of, show_shape
from emu.collective.transform import on_channels, rotate
from emu.errors import BareError, EmuError, InputError, must_be
from emu.registry import Registry, line_of, unknown
from emu.sources import of_edition

Build = Callable[[Any], Schedule]  # takes one kind of shape: a number of ranks, a grid or a partial grid
Takes = Callable[[Shape], bool]
B = TypeVar("B", bound=Build)
_FAR = 64  # an error names numbers of ranks that work up to this distance from n, or from 0 to 2 n where n is larger


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to do an operation on any number of ranks, such as ring; it is built for a shape: a number of ranks or a grid.

    `build(shape)` returns its schedule. The schedule of a rooted operation has root 0.
    """

    operation: str
    name: str
    build: Build
    claim: Claim | None  # the time that its paper promises; None: no promise
    summary: str  # the first line of the builder's docstring
    shapes: Shapes = any_rank_count  # yields the shapes of n ranks that the builder takes, the best first
    default: bool = False  # whether it serves the operation where no choice names another algorithm
    accepts: Takes | None = None  # says whether the builder takes a shape; None: it takes the shapes that `shapes` lists
    needs_adding: bool = False  # whether it needs switches that add; it is not built for a topology without them

    @property
    def key(self) -> str:
        """The name under which the registry files the algorithm: `operation/name`."""
        return f"{self.operation}/{self.name}"

    def fit(self, n: int, *grids: Grid) -> Shape:
        """Return the shape of n ranks for which the algorithm is built: the first of `grids` that it takes, else its best.

        Raises:
            InputError: The algorithm takes no shape of n ranks. The message names the nearest numbers of ranks that work.
        """
        for grid in grids:
            if isinstance(grid, PartialGrid) and ranks_of(grid) == n and self.takes(grid):
                return grid
        shapes = list(self.shapes(n))
        if shapes:
            of_dims = {dims_of(shape): shape for shape in reversed(shapes)}
            return next((of_dims[grid] for grid in grids if not isinstance(grid, PartialGrid) and grid in of_dims), shapes[0])
        near = chain.from_iterable((n - far, n + far) for far in range(1, max(n, _FAR)))
        works = sorted(islice((m for m in near if m > 0 and any(True for _ in self.shapes(m))), 2))
        mend = f"nearest that work: {', '.join(map(str, works))}" if works else f"nor any number to {n + max(n, _FAR) - 1}"
        raise InputError(f"{self.operation} {self.name}: cannot run on {n} ranks; {mend}")

    def takes(self, shape: Shape) -> bool:
        """Return whether the algorithm can be built for a shape."""
        return self.accepts(shape) if self.accepts else shape in self.shapes(ranks_of(shape))

    def check(self, shape: Shape) -> None:
        """Check that the algorithm can be built for a shape.

        Raises:
            InputError: It cannot. The message names a shape that works.
        """
        if not self.takes(shape):
            best = show_shape(self.fit(ranks_of(shape)))
            expected = " ".join((getdoc(self.accepts) or "").partition("\n\n")[2].split()) if self.accepts else ""
            line = f"{self.operation} {self.name}: does not take shape {show_shape(shape)}; {best} works"
            raise InputError(f"{line}. {expected.removesuffix('.')}" if expected else line)

    def schedule(self, shape: Shape, root: int = 0) -> Schedule:
        """Return the schedule on a shape, with every row stored.

        Args:
            shape: A number of ranks, the dims of a grid, or a partial grid.
            root: The root of a rooted operation.

        Raises:
            InputError: The shape or the root is invalid, or the algorithm does not take it.
        """
        return self.compact_schedule(shape, root).expand()

    def compact_schedule(self, shape: Shape, root: int = 0) -> Schedule:
        """Return the schedule on a shape without expanding translations: possibly only the rows of rank 0.

        Raises:
            InputError: See `schedule`.
        """
        check_root(self.operation, ranks_of(shape), root)
        self.check(shape)
        built = self._built(shape)
        if self.operation not in ROOTED:
            return built
        return rotate(built, root, slots_are_ranks=self.operation in SLOTS_ARE_RANKS)

    def on_channels(self, k: int) -> "Algorithm":
        """Return the algorithm with each of its channels split into k.

        Its claim is kept if it counts the ports of a rank or of a pair. It is dropped if it counts ports or links by channel.
        """
        claim = None if self.claim is None or self.claim.fabric in ("channel", "link") else self.claim
        build = partial(_build_on_channels, self.build, k)
        return replace(self, name=f"{self.name}@{k}", build=build, claim=claim, default=False)

    def _built(self, shape: Shape) -> Schedule:
        """Return the result of the builder for a shape.

        The message of an error names the algorithm and the builder's line.
        """
        where = f"{self.operation} {self.name} on {show_shape(shape)} ranks"
        try:
            built = self.build(shape)
        except EmuError:
            raise
        except Exception as error:  # whatever a user's builder does wrong
            raise InputError(f"{where}: {line_of(error)}{type(error).__name__}: {error}; mend its builder") from error
        if not isinstance(built, Schedule):
            raise must_be(where, "what its builder returns", "a Schedule", type(built).__name__, "return Schedule.build(...)")
        return built


def _build_on_channels(build: Build, k: int, shape: Shape) -> Schedule:
    """Return the schedule that `build` returns for a shape, with each channel split into k."""
    return on_channels(build(shape), k)


ALGORITHMS: Registry[Algorithm] = Registry("collective", "collectives")


def collective(
    operation: str,
    name: str,
    *,
    claim: Claim | None = None,
    shapes: Shapes = any_rank_count,
    takes: Takes | None = None,
    default: bool = False,
    needs_adding: bool = False,
) -> Callable[[B], B]:
    """Return a decorator that files a builder as an algorithm of `operation`.

    Args:
        operation: One of `OPERATIONS`.
        name: The name of the algorithm, in kebab-case.
        claim: The time that its paper promises; `verify` checks it on every shape. None: no promise.
        shapes: Yields, for n, the shapes of n ranks that the builder takes, the best first.
        takes: Says whether the builder takes a shape, where `shapes` lists only some. Where a shape is refused, the error has
            the second paragraph of its docstring. None: the builder takes the listed shapes.
        default: Whether the algorithm serves the operation where no other is named.
        needs_adding: Whether its helpers are switches that add. It is not built for a topology that has none.

    Raises:
        InputError: There is no such operation, or the name is taken.
    """
    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)

    def file(build: B) -> B:
        summary = (build.__doc__ or "").strip().partition("\n")[0]
        algorithm = Algorithm(operation, name, build, claim, summary, shapes, default, takes, needs_adding)
        ALGORITHMS.file(algorithm.key, algorithm, build)
        return build

    return file


def file_missing(algorithms: Iterable[Algorithm]) -> None:
    """Register algorithms that the registry lacks, such as a user's own that another process has sent."""
    there = dict(ALGORITHMS)
    for each in algorithms:
        if each.key not in there:
            ALGORITHMS.file(each.key, each)


_MADE: dict[str, Algorithm] = {}  # by key; schedules made for one place, which no list names and `auto` never tries


def keep_made(found: Algorithm) -> None:
    """Keep an algorithm that was made for one place, so that `algorithm` finds it by its name in this process."""
    _MADE[found.key] = found


def _schedule_cache() -> LRUCache[Hashable, Schedule]:
    """Return a cache for the most recent schedules, which together have at most 2**24 rows."""
    return LRUCache(2**24, getsizeof=lambda found: found.n_rows + 1)


def _unknown_algorithm(operation: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that no algorithm of an operation has.

    It names the operations that have one of that name, and the words of a choice that may stand in place of one. Where there is
    none, and no name is near, it may be one of the user's.
    """
    words = OWN_CHOOSERS
    if name.partition(":")[0] in words:
        mend = f"{', '.join(words)} are no algorithms; a choice takes them alone, without dims or channels"
        return must_be("algorithm", f"what serves {operation}", "an algorithm", name, mend)
    error = unknown(f"{operation} algorithm", name, [*known, *difflib.get_close_matches(name, words)])
    others = [each.operation for _, each in ALGORITHMS if each.name == name]
    if not others and error.mend.startswith("did you mean"):
        return error
    more = f"{name} is one of {', '.join(others)}" if others else "one of your own needs --import FILE.py"
    longer = BareError(f"{error}; {more}")
    longer.field, longer.value, longer.mend = error.field, error.value, f"{error.mend}; {more}"
    return longer


def algorithm(operation: str, name: str) -> Algorithm:
    """Return the algorithm with that name for an operation.

    Args:
        operation: One of `OPERATIONS`.
        name: `NAME`, or `NAME@K` for the algorithm with each of its channels split into K.

    Raises:
        InputError: There is no such operation or algorithm (the message names the nearest), or K is no number of channels.
    """
    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)
    filed, at, channels = name.partition("@")
    of_operation = {a.name: a for _, a in ALGORITHMS if a.operation == operation}
    if made := _MADE.get(f"{operation}/{name}"):
        return made
    if filed.startswith(f"{SYNTHESIZED}-") and filed not in of_operation:
        what = f"given as {SYNTHESIZED} or as an algorithm"
        mend = "a schedule that was synthesised for a topology is not known elsewhere"
        raise must_be("algorithm", f"what serves {operation}", what, name, mend)
    if filed not in of_operation:
        raise _unknown_algorithm(operation, filed, of_operation)
    if not at:
        return of_operation[filed]
    if not re.fullmatch(r"[1-9]\d{0,3}", channels):
        raise must_be("algorithm", "channels after the @", "a number of 1 to 9999", channels, f"such as {filed}@4")
    return of_operation[filed].on_channels(int(channels))


@cached(_schedule_cache(), key=of_edition, lock=Lock())
def schedule(operation: str, name: str, n: int, root: int = 0, dims: Grid = ()) -> Schedule:
    """Return the schedule of an algorithm among n ranks, with every row stored; the result is cached.

    Args:
        operation: One of `OPERATIONS`.
        name: The name of the algorithm.
        n: The number of ranks.
        root: The root of a rooted operation.
        dims: The grid to build it on, if the algorithm takes that grid; else it is built on its best shape.

    Raises:
        InputError: See `algorithm`, `Algorithm.fit` and `Algorithm.schedule`.
    """
    return compact_schedule(operation, name, n, root, dims).expand()


@cached(_schedule_cache(), key=of_edition, lock=Lock())
def compact_schedule(operation: str, name: str, n: int, root: int = 0, dims: Grid = ()) -> Schedule:
    """Return the cached schedule of an algorithm among n ranks, without expanding translations.

    If the builder declares translations, only the rows of rank 0 are stored. The arguments are those of `schedule`.

    Raises:
        InputError: See `schedule`.
    """
    found = algorithm(operation, name)
    check_root(operation, n, root)
    return found.compact_schedule(found.fit(n, dims), root)
