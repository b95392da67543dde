"""Coordinates of a choice for a step: each axis, operation and class of sizes is served in one way."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from emu.collective.algorithm import AlgorithmOnDims as Served
from emu.collective.algorithm import Chooser, Request, algorithm
from emu.dtypes import item_bytes
from emu.study.choice.equal_groups import first_alike
from emu.study.choice.site import Site
from emu.topology.topology import Topology

_CLASS_BITS = 4  # sizes of one class differ by less than a factor of 2**4


class Coordinate(NamedTuple):
    """The axis, operation and class of sizes of requests that are served in one way."""

    axis: str
    operation: str
    size_class: int

    @staticmethod
    def of(request: Request) -> "Coordinate":
        """Return the coordinate of a request; its size is as it ran, whatever it is timed as."""
        size = request.elements * item_bytes(request.dtype)
        return Coordinate(request.axis, request.operation, size.bit_length() // _CLASS_BITS)


class Option(NamedTuple):
    """One way to serve the requests of a coordinate."""

    name: str  # of an algorithm, or of what chooses for each request
    chooser: Chooser


@dataclass(frozen=True, eq=False, slots=True)
class ServedByName:
    """A chooser of one algorithm for every group that takes it, on the shape that suits the group; of nothing for others."""

    name: str
    topology: Topology
    npus: tuple[int, ...]  # of each rank

    def __call__(self, request: Request) -> Served | None:
        """Return what serves a request."""
        group = tuple(self.npus[rank] for rank in request.ranks)
        site, found = Site.of(self.topology, first_alike(self.topology, group)), algorithm(request.operation, self.name)
        if not site.takes(found):
            return None
        shape = found.fit(len(group), site.grid)
        return Served(self.name, () if isinstance(shape, int) else shape)


@dataclass(frozen=True, eq=False, slots=True)
class StepChooser:
    """A chooser for a whole step: the option of a request's coordinate chooses, else what is the fastest alone serves."""

    alone: Chooser
    options: Mapping[Coordinate, Option]

    def __call__(self, request: Request) -> Served | None:
        """Return what serves a request."""
        option = self.options.get(Coordinate.of(request))
        return (option.chooser(request) if option is not None else None) or self.alone(request)
