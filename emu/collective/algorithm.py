"""The registry of collectives, and which of them serves which request."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from typing import Any, TypeVar

from emu.collective.claim import Claim
from emu.collective.operation import OPERATIONS, ROOTED, SLOTS_ARE_RANKS, check_root
from emu.collective.schedule import Schedule
from emu.collective.shape import Shape, Shapes, dims_of, every, parse_dims, ranks_of, show_shape
from emu.collective.transform import rotate
from emu.errors import InputError, must_be
from emu.registry import Registry, unknown

Build = Callable[[Any], Schedule]  # of one kind of shape
B = TypeVar("B", bound=Build)
_FAR = 64  # how far from n a number of ranks that works is looked for


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to do an operation: `build(shape)` gives its schedule (root 0 where there is a root)."""

    operation: str
    name: str
    build: Build
    claim: Claim
    summary: str  # the first line of the builder's docstring
    shapes: Shapes = every  # those of n ranks that it takes, the best first
    default: bool = False  # serves the operation where no choice names another

    @property
    def key(self) -> str:
        """`operation/name`, as it is filed."""
        return f"{self.operation}/{self.name}"

    def fit(self, n: int, dims: tuple[int, ...] = ()) -> Shape:
        """The shape of n ranks that it is built for: `dims` if it takes them, else its best.

        Raises:
            InputError: it takes no shape of n ranks; the message names the nearest numbers that work.
        """
        shapes = list(self.shapes(n))
        if shapes:
            return next((s for s in shapes if dims_of(s) == dims), shapes[0])
        near = chain.from_iterable((n - far, n + far) for far in range(1, _FAR))
        works = sorted(islice((m for m in near if m > 0 and any(True for _ in self.shapes(m))), 2))
        raise InputError(f"{self.operation} {self.name}: takes no {n} ranks; nearest that work: {', '.join(map(str, works))}")

    def check(self, shape: Shape) -> None:
        """Refuse a shape that it does not take.

        Raises:
            InputError: the message names one that works.
        """
        if shape not in self.shapes(ranks_of(shape)):
            best = show_shape(self.fit(ranks_of(shape)))
            raise InputError(f"{self.operation} {self.name}: does not take shape {show_shape(shape)}; {best} works")

    def schedule(self, shape: Shape, root: int = 0) -> Schedule:
        """The schedule on a shape, every row stored.

        Raises:
            InputError: a shape or a root that cannot be, or that the algorithm does not take.
        """
        check_root(self.operation, ranks_of(shape), root)
        self.check(shape)
        built = self.build(shape).expand()
        if self.operation not in ROOTED:
            return built
        return rotate(built, root, slots_are_ranks=self.operation in SLOTS_ARE_RANKS)


ALGORITHMS: Registry[Algorithm] = Registry("collective", "collectives")


def collective(operation: str, name: str, *, claim: Claim, shapes: Shapes = every, default: bool = False) -> Callable[[B], B]:
    """File a builder as an algorithm of `operation`, with what its paper claims of it.

    Args:
        operation: One of `OPERATIONS`.
        name: Kebab-case, as it is asked for.
        claim: Held by `verify` on every shape.
        shapes: From n, the shapes of n ranks that the builder takes, the best first.
        default: Whether it serves the operation where nothing else is named.

    Raises:
        InputError: no such operation, or the name is taken.
    """
    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)

    def file(build: B) -> B:
        summary = (build.__doc__ or "").strip().partition("\n")[0]
        algorithm = Algorithm(operation, name, build, claim, summary, shapes, default)
        ALGORITHMS.file(algorithm.key, algorithm)
        return build

    return file


def algorithm(operation: str, name: str) -> Algorithm:
    """The algorithm filed under that operation and name.

    Raises:
        InputError: no such operation or algorithm; the message names the nearest.
    """
    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)
    of_operation = {a.name: a for _, a in ALGORITHMS if a.operation == operation}
    if name not in of_operation:
        raise unknown(f"{operation} algorithm", name, of_operation)
    return of_operation[name]


@lru_cache(maxsize=256)
def schedule(operation: str, name: str, n: int, root: int = 0, dims: tuple[int, ...] = ()) -> Schedule:
    """The schedule of the algorithm of that name among n ranks, on `dims` where it takes them; built once.

    Raises:
        InputError: as `algorithm`, `Algorithm.fit` and `Algorithm.schedule`.
    """
    found = algorithm(operation, name)
    check_root(operation, n, root)
    return found.schedule(found.fit(n, dims), root)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which algorithm serves each operation, on which dims; what is not named takes the catalogue's default."""

    by_operation: Mapping[str, str] = field(default_factory=dict)
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of groups of that size; others take the best

    @staticmethod
    def parse(words: tuple[str, ...]) -> "Choice":
        """From words such as `all_reduce=direct`, or `OPERATION=ALGORITHM:4x4` for one on a grid.

        Raises:
            InputError: not OPERATION=ALGORITHM[:DIMS], or an unknown one of either.
        """
        named, dims = {}, {}
        for word in words:
            operation, equals, served = word.partition("=")
            if not equals:
                raise must_be("--algorithm", "a choice", "OPERATION=ALGORITHM", word, "e.g. all_reduce=direct")
            name, colon, grid = served.partition(":")
            named[operation] = algorithm(operation, name).name
            if colon:
                dims[operation] = parse_dims(grid)
        return Choice(named, dims)

    def name(self, operation: str) -> str:
        """The algorithm that serves `operation`.

        Raises:
            InputError: no such operation.
        """
        if operation not in OPERATIONS:
            raise unknown("operation", operation, OPERATIONS)
        return self.by_operation.get(operation) or _default(operation)

    def schedule(self, operation: str, n: int, root: int = 0) -> Schedule:
        """The schedule that serves `operation` among n ranks."""
        return schedule(operation, self.name(operation), n, root, self.dims.get(operation, ()))


def _default(operation: str) -> str:
    return next(a.name for _, a in ALGORITHMS if a.operation == operation and a.default)
