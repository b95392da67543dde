"""The registry of collectives, and which of them serves which request."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from emu.collective.claim import Claim
from emu.collective.operation import OPERATIONS, ROOTED, SLOTS_ARE_RANKS, check_root
from emu.collective.schedule import Schedule
from emu.collective.transform import rotate
from emu.errors import must_be
from emu.registry import Registry, unknown

Build = Callable[[int], Schedule]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to do an operation: `build(n)` gives its schedule among n ranks (root 0 where there is a root)."""

    operation: str
    name: str
    build: Build
    claim: Claim
    summary: str  # the first line of the builder's docstring
    default: bool = False  # serves the operation where no choice names another

    @property
    def key(self) -> str:
        """`operation/name`, as it is filed."""
        return f"{self.operation}/{self.name}"

    def schedule(self, n: int, root: int = 0) -> Schedule:
        """The schedule among n ranks, every row stored.

        Raises:
            InputError: a number of ranks or a root that cannot be, or that the algorithm does not take.
        """
        check_root(self.operation, n, root)
        built = self.build(n).expand()
        if self.operation not in ROOTED:
            return built
        return rotate(built, root, slots_are_ranks=self.operation in SLOTS_ARE_RANKS)


ALGORITHMS: Registry[Algorithm] = Registry("collective", "collectives")


def collective(operation: str, name: str, *, claim: Claim, default: bool = False) -> Callable[[Build], Build]:
    """File a builder as an algorithm of `operation`, with what its paper claims of it.

    Raises:
        InputError: no such operation, or the name is taken.
    """
    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)

    def file(build: Build) -> Build:
        summary = (build.__doc__ or "").strip().partition("\n")[0]
        algorithm = Algorithm(operation, name, build, claim, summary, default)
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
def schedule(operation: str, name: str, n: int, root: int = 0) -> Schedule:
    """The schedule of the algorithm of that name; built once.

    Raises:
        InputError: as `algorithm` and `Algorithm.schedule`.
    """
    return algorithm(operation, name).schedule(n, root)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which algorithm serves each operation; what is not named takes the catalogue's default."""

    by_operation: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def parse(words: tuple[str, ...]) -> "Choice":
        """From words such as `all_reduce=direct`.

        Raises:
            InputError: not OPERATION=ALGORITHM, or an unknown one of either.
        """
        named = {}
        for word in words:
            operation, equals, name = word.partition("=")
            if not equals:
                raise must_be("--algorithm", "a choice", "OPERATION=ALGORITHM", word, "e.g. all_reduce=direct")
            named[operation] = algorithm(operation, name).name
        return Choice(named)

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
        return schedule(operation, self.name(operation), n, root)


def _default(operation: str) -> str:
    return next(a.name for _, a in ALGORITHMS if a.operation == operation and a.default)
