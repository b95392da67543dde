"""The registry of collectives, and which of them serves which request."""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from cachetools import LRUCache, cached

from emu.collective.claim import Claim
from emu.collective.operation import OPERATIONS, ROOTED, SLOTS_ARE_RANKS, check_root
from emu.collective.schedule import Schedule
from emu.collective.shape import Grid, Part, Shape, Shapes, dims_of, every, parse_grid, ranks_of, show_shape
from emu.collective.transform import on_channels, rotate
from emu.errors import EmuError, InputError, must_be
from emu.registry import Registry, line_of, unknown
from emu.sources import of_edition

Build = Callable[[Any], Schedule]  # of one kind of shape
Takes = Callable[[Shape], bool]
B = TypeVar("B", bound=Build)
_FAR = 64  # how far from n a number of ranks that works is looked for at least: else to 0 and to 2 n


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to do an operation: `build(shape)` gives its schedule (root 0 where there is a root)."""

    operation: str
    name: str
    build: Build
    claim: Claim | None  # None: nothing is claimed of it
    summary: str  # the first line of the builder's docstring
    shapes: Shapes = every  # those of n ranks that it takes, the best first
    default: bool = False  # serves the operation where no choice names another
    any_of: Takes | None = None  # which shapes it takes; None: those that `shapes` lists
    needs_adding: bool = False  # whether switches must add for it: where none does, it is not built to see that

    @property
    def key(self) -> str:
        """`operation/name`, as it is filed."""
        return f"{self.operation}/{self.name}"

    def fit(self, n: int, dims: Grid = ()) -> Shape:
        """The shape of n ranks that it is built for: `dims` if it takes them, else its best.

        Raises:
            InputError: it takes no shape of n ranks; the message names the nearest numbers that work.
        """
        if isinstance(dims, Part) and ranks_of(dims) == n and self.takes(dims):
            return dims
        shapes = list(self.shapes(n))
        if shapes:
            return next((s for s in shapes if dims_of(s) == dims), shapes[0])
        near = chain.from_iterable((n - far, n + far) for far in range(1, max(n, _FAR)))
        works = sorted(islice((m for m in near if m > 0 and any(True for _ in self.shapes(m))), 2))
        mend = f"nearest that work: {', '.join(map(str, works))}" if works else f"nor any number to {n + max(n, _FAR) - 1}"
        raise InputError(f"{self.operation} {self.name}: cannot run on {n} ranks; {mend}")

    def takes(self, shape: Shape) -> bool:
        """Whether it can be built for a shape."""
        return self.any_of(shape) if self.any_of else shape in self.shapes(ranks_of(shape))

    def check(self, shape: Shape) -> None:
        """Refuse a shape that it does not take.

        Raises:
            InputError: the message names one that works.
        """
        if not self.takes(shape):
            best = show_shape(self.fit(ranks_of(shape)))
            raise InputError(f"{self.operation} {self.name}: does not take shape {show_shape(shape)}; {best} works")

    def schedule(self, shape: Shape, root: int = 0) -> Schedule:
        """The schedule on a shape, every row stored.

        Raises:
            InputError: a shape or a root that cannot be, or that the algorithm does not take.
        """
        return self.stored(shape, root).expand()

    def stored(self, shape: Shape, root: int = 0) -> Schedule:
        """The schedule on a shape as it is built: only the rows of rank 0 where translations give the others.

        Raises:
            InputError: as `schedule`.
        """
        check_root(self.operation, ranks_of(shape), root)
        self.check(shape)
        built = self._built(shape)
        if self.operation not in ROOTED:
            return built
        return rotate(built, root, slots_are_ranks=self.operation in SLOTS_ARE_RANKS)

    def on_channels(self, k: int) -> "Algorithm":
        """The same with each of its channels parted in k; of their ports nothing is claimed, of what shares one the same."""
        claim = None if self.claim is None or self.claim.fabric in ("channel", "link") else self.claim
        build = partial(_parted, self.build, k)
        return replace(self, name=f"{self.name}@{k}", build=build, claim=claim, default=False)

    def _built(self, shape: Shape) -> Schedule:
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


def _parted(build: Build, k: int, shape: Shape) -> Schedule:
    return on_channels(build(shape), k)


ALGORITHMS: Registry[Algorithm] = Registry("collective", "collectives")


def collective(
    operation: str,
    name: str,
    *,
    claim: Claim | None = None,
    shapes: Shapes = every,
    takes: Takes | None = None,
    default: bool = False,
    needs_adding: bool = False,
) -> Callable[[B], B]:
    """File a builder as an algorithm of `operation`, with what its paper claims of it.

    Args:
        operation: One of `OPERATIONS`.
        name: Kebab-case, as it is asked for.
        claim: Held by `verify` on every shape; None: nothing is claimed.
        shapes: From n, the shapes of n ranks that the builder takes, the best first.
        takes: Which shapes it takes, where `shapes` lists only some of them; None: those listed.
        default: Whether it serves the operation where nothing else is named.
        needs_adding: Whether its helpers are switches that add; said here, it is not built where none does.

    Raises:
        InputError: no such operation, or the name is taken.
    """
    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)

    def file(build: B) -> B:
        summary = (build.__doc__ or "").strip().partition("\n")[0]
        algorithm = Algorithm(operation, name, build, claim, summary, shapes, default, takes, needs_adding)
        ALGORITHMS.file(algorithm.key, algorithm)
        return build

    return file


def file_missing(algorithms: Iterable[Algorithm]) -> None:
    """File those that are not there: a user's own, in a process that has not read the user's file."""
    there = dict(ALGORITHMS)
    for each in algorithms:
        if each.key not in there:
            ALGORITHMS.file(each.key, each)


def _last_asked() -> LRUCache[Hashable, Schedule]:
    """Room for the schedules that were asked for last, with 2**24 rows together: of large ones few."""
    return LRUCache(2**24, getsizeof=lambda found: found.n_rows + 1)


def algorithm(operation: str, name: str) -> Algorithm:
    """The algorithm filed under that operation and name; `NAME@K` is it on K channels for each of its own.

    Raises:
        InputError: no such operation or algorithm; the message names the nearest. Or no number of channels after the @.
    """
    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)
    filed, at, channels = name.partition("@")
    of_operation = {a.name: a for _, a in ALGORITHMS if a.operation == operation}
    if filed not in of_operation:
        raise unknown(f"{operation} algorithm", filed, of_operation)
    if not at:
        return of_operation[filed]
    if not re.fullmatch(r"[1-9]\d{0,3}", channels):
        raise must_be("algorithm", "channels after the @", "a number of 1 to 9999", channels, f"such as {filed}@4")
    return of_operation[filed].on_channels(int(channels))


@cached(_last_asked(), key=of_edition, lock=Lock())
def schedule(operation: str, name: str, n: int, root: int = 0, dims: Grid = ()) -> Schedule:
    """The schedule of the algorithm of that name among n ranks, on `dims` where it takes them; built once.

    Raises:
        InputError: as `algorithm`, `Algorithm.fit` and `Algorithm.schedule`.
    """
    return stored(operation, name, n, root, dims).expand()


@cached(_last_asked(), key=of_edition, lock=Lock())
def stored(operation: str, name: str, n: int, root: int = 0, dims: Grid = ()) -> Schedule:
    """The same as it is built: only the rows of rank 0 where translations give the others'.

    Raises:
        InputError: as `schedule`.
    """
    found = algorithm(operation, name)
    check_root(operation, n, root)
    return found.stored(found.fit(n, dims), root)


class Request(NamedTuple):
    """What is asked of an algorithm: one operation of a group."""

    operation: str
    ranks: tuple[int, ...]  # global, in group-rank order
    root: int = 0  # of a rooted operation; a group rank
    elements: int = 0  # of the largest buffer of any member
    dtype: str = "float32"
    groups: int = 1  # of one axis, that ask at once and are served alike
    axis: str = ""  # of its group, as a trace names it: a plan's word, "world", or "" where it is not known

    @property
    def word(self) -> str:
        """`AXIS.OPERATION`, as a choice names it that is for one axis."""
        return f"{self.axis}.{self.operation}"


class Served(NamedTuple):
    """An algorithm by its name, and the dims that it is built on where it takes them."""

    algorithm: str
    dims: Grid = ()

    def __str__(self) -> str:
        """`NAME`, or `NAME:4x4`, as `Served.parse` reads it."""
        return f"{self.algorithm}:{show_shape(self.dims)}" if self.dims else self.algorithm

    @staticmethod
    def parse(operation: str, word: str) -> "Served":
        """From `NAME` or `NAME:4x4`.

        Raises:
            InputError: `operation` has no such algorithm, or no dims after the colon.
        """
        name, colon, grid = word.partition(":")
        return Served(algorithm(operation, name).name, parse_grid(grid) if colon else ())


Chooser = Callable[[Request], Served | None]
AUTO = "auto"  # in place of an algorithm: what the chooser says


@dataclass(frozen=True, slots=True)
class Choice:
    """Which algorithm serves each request, on which dims: what is named, else what the chooser says, else the default.

    What is named for one axis (`dp.all_gather`) counts more than what is named for all (`all_gather`). The chooser is a pure
    function of the request, so that every rank and every engine is served alike.
    """

    by_operation: Mapping[str, str] = field(default_factory=dict)  # by OPERATION or AXIS.OPERATION; AUTO: the chooser's
    dims: Mapping[str, Grid] = field(default_factory=dict)  # of groups of that size, by the same; others take the best
    chooser: Chooser | None = None

    @staticmethod
    def parse(words: tuple[str, ...]) -> "Choice":
        """From words such as `all_reduce=direct`, `dp.all_reduce=direct`, or `OPERATION=ALGORITHM:4x4` for one on a grid.

        Raises:
            InputError: not [AXIS.]OPERATION=ALGORITHM[:DIMS], or an unknown operation or algorithm.
        """
        named, dims = {}, {}
        for word in words:
            asked, equals, served = word.partition("=")
            if not equals:
                mend = "e.g. all_reduce=direct, or for one axis dp.all_reduce=direct"
                raise must_be("--algorithm", "a choice", "auto or OPERATION=ALGORITHM", word, mend)
            named[asked], grid = Served.parse(operation_of(asked), served)
            if grid:
                dims[asked] = grid
        return Choice(named, dims)

    def name(self, operation: str) -> str:
        """The algorithm that serves `operation` where no chooser is asked.

        Raises:
            InputError: no such operation.
        """
        if operation not in OPERATIONS:
            raise unknown("operation", operation, OPERATIONS)
        return self.by_operation.get(operation) or _default(operation)

    def named(self, request: Request) -> Served | None:
        """What is named for a request; None: the chooser is asked, or the default serves."""
        word = request.word if request.word in self.by_operation else request.operation
        named = self.by_operation.get(word, AUTO)
        return None if named == AUTO else Served(named, self.dims.get(word, ()))

    def served(self, request: Request) -> Served:
        """What serves a request."""
        named = self.named(request)
        if named is not None:
            return named
        chosen = self.chooser(request) if self.chooser is not None else None
        return chosen or Served(self.name(request.operation), self.dims.get(request.operation, ()))

    def schedule(self, request: Request) -> Schedule:
        """The schedule that serves a request."""
        name, dims = self.served(request)
        return schedule(request.operation, name, len(request.ranks), request.root, dims)


def operation_of(asked: str) -> str:
    """The operation of `OPERATION` or `AXIS.OPERATION`."""
    return asked.rpartition(".")[2]


def _default(operation: str) -> str:
    return next(a.name for _, a in ALGORITHMS if a.operation == operation and a.default)
