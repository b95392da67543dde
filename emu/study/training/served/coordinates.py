"""The coordinates of a choice for a step: requests of one axis, operation and class of sizes get one option."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from emu.collective.algorithm import AlgorithmOnDims, Chooser, Request, algorithm
from emu.dtypes import item_bytes
from emu.study.choice.equal_groups import canonical_group
from emu.study.choice.site import Site
from emu.topology.topology import Topology

_CLASS_BITS = 4  # sizes of one class differ by less than a factor of 2**4


class Coordinate(NamedTuple):
    """An axis, an operation and a class of sizes; all requests of one coordinate get one option."""

    axis: str
    operation: str
    size_class: int

    @staticmethod
    def of(request: Request) -> "Coordinate":
        """Return the coordinate of a request; its size is the size in the dtype of the run, not in the timed dtype."""
        size = request.elements * item_bytes(request.dtype)
        return Coordinate(request.axis, request.operation, size.bit_length() // _CLASS_BITS)


class Option(NamedTuple):
    """A named chooser for the requests of a coordinate."""

    name: str  # name of an algorithm or of a chooser
    chooser: Chooser


@dataclass(frozen=True, eq=False, slots=True)
class AlgorithmChooser:
    """A chooser of one algorithm, in the shape that fits the group; it chooses nothing for groups that it does not fit."""

    name: str
    topology: Topology
    npus: tuple[int, ...]  # the NPU of each rank

    def __call__(self, request: Request) -> AlgorithmOnDims | None:
        """Return the algorithm for a request; None if it does not fit the group."""
        group = tuple(self.npus[rank] for rank in request.ranks)
        site, found = Site.of(self.topology, canonical_group(self.topology, group)), algorithm(request.operation, self.name)
        if not site.takes(found):
            return None
        shape = found.fit(len(group), site.grid)
        return AlgorithmOnDims(self.name, () if isinstance(shape, int) else shape)


@dataclass(frozen=True, eq=False, slots=True)
class StepChooser:
    """A chooser for a whole step: the option of a request's coordinate, or else the fastest algorithm alone."""

    alone: Chooser
    options: Mapping[Coordinate, Option]

    def __call__(self, request: Request) -> AlgorithmOnDims | None:
        """Return the algorithm for a request; None where the default serves it."""
        option = self.options.get(Coordinate.of(request))
        return (option.chooser(request) if option is not None else None) or self.alone(request)
