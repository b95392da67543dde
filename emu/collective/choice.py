"""The choice of an algorithm for a request: by name, by default, or by a chooser."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from emu.collective.algorithm import ALGORITHMS, algorithm, schedule
from emu.collective.chooser_names import AUTO
from emu.collective.operation import OPERATIONS
from emu.collective.schedule import Schedule
from emu.collective.shape import Grid, parse_grid, show_shape
from emu.errors import must_be
from emu.registry import unknown


class Request(NamedTuple):
    """One call of a collective by a process group, for which a choice finds an algorithm.

    `groups` is the number of groups of the axis that make the same request at the same time.
    """

    operation: str
    ranks: tuple[int, ...]  # global, in group-rank order
    root: int = 0  # the group rank that is the root of a rooted operation
    elements: int = 0  # number of elements in the largest buffer of any member
    dtype: str = "float32"
    groups: int = 1  # number of groups of the axis that make the same request at the same time
    axis: str = ""  # axis of the group, as a trace names it: an axis of the plan, "world", or "" where it is unknown

    @property
    def word(self) -> str:
        """The name of the request's axis and operation in a choice: `AXIS.OPERATION`."""
        return f"{self.axis}.{self.operation}"


class AlgorithmOnDims(NamedTuple):
    """The name of an algorithm, with the dims on which it is built if it takes any."""

    algorithm: str
    dims: Grid = ()

    def __str__(self) -> str:
        """Return `NAME`, or `NAME:4x4`, as `AlgorithmOnDims.parse` reads it."""
        return f"{self.algorithm}:{show_shape(self.dims)}" if self.dims else self.algorithm

    @staticmethod
    def parse(operation: str, word: str) -> "AlgorithmOnDims":
        """Return the algorithm and the dims that `NAME` or `NAME:4x4` names.

        Raises:
            InputError: `operation` has no such algorithm, or the text after the colon is no grid.
        """
        name, colon, grid = word.partition(":")
        return AlgorithmOnDims(algorithm(operation, name).name, parse_grid(grid) if colon else ())


Chooser = Callable[[Request], AlgorithmOnDims | None]


@dataclass(frozen=True, slots=True)
class Choice:
    """The rule that says which algorithm serves each request, and on which dims.

    An algorithm that is named wins, else the chooser picks one, else the default of the operation serves. A name for one axis
    (`dp.all_gather`) wins over a name for all axes (`all_gather`). The chooser is a pure function of the request, so that every
    rank and every engine picks the same algorithm.
    """

    by_operation: Mapping[str, str] = field(default_factory=dict)  # algorithm or AUTO, by OPERATION or AXIS.OPERATION
    dims: Mapping[str, Grid] = field(default_factory=dict)  # grid by the same keys; a group of another size takes its best
    chooser: Chooser | None = None

    @staticmethod
    def parse(words: tuple[str, ...]) -> "Choice":
        """Parse words such as `all_reduce=direct`, `dp.all_reduce=direct` or `all_reduce=torus:4x4`, and return the choice.

        Raises:
            InputError: A word is not `[AXIS.]OPERATION=ALGORITHM[:DIMS]`, or it has an unknown operation or algorithm.
        """
        named, dims = {}, {}
        for word in words:
            asked, equals, served = word.partition("=")
            if not equals:
                mend = "e.g. all_reduce=direct, or for one axis dp.all_reduce=direct"
                raise must_be("--algorithm", "a choice", "auto or OPERATION=ALGORITHM", word, mend)
            named[asked], grid = AlgorithmOnDims.parse(operation_of(asked), served)
            if grid:
                dims[asked] = grid
        return Choice(named, dims)

    def name(self, operation: str) -> str:
        """Return the name of the algorithm that serves an operation when no chooser is set.

        Raises:
            InputError: There is no such operation.
        """
        if operation not in OPERATIONS:
            raise unknown("operation", operation, OPERATIONS)
        return self.by_operation.get(operation) or _default(operation)

    def named(self, request: Request) -> AlgorithmOnDims | None:
        """Return the algorithm that the choice names for a request; None if the chooser or the default decides."""
        word = request.word if request.word in self.by_operation else request.operation
        named = self.by_operation.get(word, AUTO)
        return None if named == AUTO else AlgorithmOnDims(named, self.dims.get(word, ()))

    def algorithm_for(self, request: Request) -> AlgorithmOnDims:
        """Return the algorithm that serves a request, with its dims."""
        named = self.named(request)
        if named is not None:
            return named
        chosen = self.chooser(request) if self.chooser is not None else None
        return chosen or AlgorithmOnDims(self.name(request.operation), self.dims.get(request.operation, ()))

    def schedule(self, request: Request) -> Schedule:
        """Return the schedule that serves a request, with every row stored."""
        name, dims = self.algorithm_for(request)
        return schedule(request.operation, name, len(request.ranks), request.root, dims)


def operation_of(asked: str) -> str:
    """Return the operation in a text of the form `OPERATION` or `AXIS.OPERATION`, such as `dp.all_gather`."""
    return asked.rpartition(".")[2]


def _default(operation: str) -> str:
    """Return the name of the default algorithm of an operation."""
    return next(a.name for _, a in ALGORITHMS if a.operation == operation and a.default)
