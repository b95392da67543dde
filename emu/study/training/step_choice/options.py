"""The options of a choice for a step: the algorithms that are worth a try for each coordinate.

Requests of one axis, operation and class of sizes are one coordinate: they are decided together, and get one option.

An algorithm slows other requests by the number of its messages that cross its busiest link at one time. If this number is n, a
message of another request on that link gets a share of 1 / (n + 1). An algorithm is worth a try if no other one is better in
both its time and this number, or if it is one of the few fastest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple, Self

from emu.arrays import I64
from emu.collective.algorithm import algorithm
from emu.collective.choice import AlgorithmOnDims, Choice, Chooser, Request
from emu.collective.libraries import LIBRARIES
from emu.dtypes import item_bytes
from emu.errors import InputError
from emu.fabric.lowering.circuit_turns import TornError
from emu.study.choice.chooser import ChooserOnNpus
from emu.study.choice.fastest import Entrant, bounds
from emu.study.choice.site import Requirement, Site, canonical_group
from emu.study.isolated_request import IsolatedRequest
from emu.study.training.composed.distinct_times import time_requests
from emu.study.training.composed.request_parts import parts_by_algorithm
from emu.study.training.composed.requests_by_place import DistinctRequest
from emu.topology.topology import Topology

_CLASS_BITS = 4  # sizes of one class differ by less than a factor of 2**4
DEFAULTS, RAN = "defaults", "as it ran"
SLOWER = 4.0  # times the time of the present algorithm that another may take at most
FEW, MANY = 3, 10  # numbers of the fastest algorithms that are tried in any case: other requests may be on other links
_MESSAGES = 2**18  # limit of an algorithm's messages in all groups: some seconds to time


class Coordinate(NamedTuple):
    """A set of requests that get one option: those of one axis, one operation and one class of sizes."""

    axis: str
    operation: str
    size_class: int

    @staticmethod
    def of(request: Request) -> "Coordinate":
        """Return the coordinate of a request; its size is the size in the dtype of the run, not in the timed dtype."""
        size = request.elements * item_bytes(request.dtype)
        return Coordinate(request.axis, request.operation, size.bit_length() // _CLASS_BITS)


class Option(NamedTuple):
    """A choice for the requests of a coordinate: one algorithm, or one library's chooser."""

    name: str  # name of an algorithm or of a chooser
    chooser: Chooser


def step_chooser(alone: Chooser | None, options: Mapping[Coordinate, Option]) -> Chooser:
    """Return a chooser for a whole step: the option of a request's coordinate, or else the fastest algorithm alone."""

    def choose(request: Request) -> AlgorithmOnDims | None:
        option = options.get(Coordinate.of(request))
        return (option.chooser(request) if option is not None else None) or (alone(request) if alone else None)

    return choose


# An algorithm, several of which are tried in this order: the ticks of its request, its messages that cross the busiest link at
# one time, and its name.
AlgorithmTime = tuple[float, float, str]


@dataclass(frozen=True, eq=False)
class ServedFabric:
    """A topology with the NPU of each rank, and the choice of algorithms that serves the requests of a step there."""

    choice: Choice
    topology: Topology
    npus: I64  # [ranks]
    launch_fs: int  # ticks that each rank takes to enter a request

    def isolated_times(self, requests: Sequence[DistinctRequest]) -> list[IsolatedRequest]:
        """Return the time of each request by itself, all groups at once.

        Raises:
            InputError: a request cannot be timed.
        """
        parts = parts_by_algorithm(requests, self.choice, self.topology)
        return time_requests(requests, parts, self.topology, self.npus, self.launch_fs)

    def isolated(self, asked: DistinctRequest) -> IsolatedRequest:
        """Return the time of one request if nothing else runs, all its groups at one time; errors as in `isolated_times`."""
        return self.isolated_times([asked])[0]

    def algorithm(self, name: str) -> Option:
        """Return an algorithm as an option, in the shape that fits each group.

        A group that the algorithm does not fit gets none.
        """
        topology, npu_of_rank = self.topology, tuple(self.npus.tolist())

        def choose(request: Request) -> AlgorithmOnDims | None:
            group = tuple(npu_of_rank[rank] for rank in request.ranks)
            site, found = Site.of(topology, canonical_group(topology, group)), algorithm(request.operation, name)
            if not site.takes(found):
                return None
            return AlgorithmOnDims(name, site.dims_for(found))

        return Option(name, choose)

    def served_by(self, asked: DistinctRequest, option: Option) -> Self:
        """Return a copy of the fabric in which an option (an algorithm) serves a free request.

        Groups that the option does not fit keep their algorithm.
        """
        chooser = step_chooser(self.choice.chooser, {Coordinate.of(asked.of_group(0)): option})
        return replace(self, choice=replace(self.choice, chooser=chooser))

    def bounds(self, asked: DistinctRequest, within_fs: float) -> Iterator[Entrant]:
        """Yield the `bounds` of the algorithms for the first group of a request, up to a bound of `within_fs` ticks."""
        site = Site.of(self.topology, canonical_group(self.topology, tuple(self.npus[asked.choosing[0]].tolist())))
        item = max(1, asked.size_bytes // max(1, asked.elements))
        wanted = Requirement(asked.name, asked.root, asked.elements, item, groups=len(asked.ranks))
        return takewhile(lambda bound: bound.bound_fs <= within_fs, bounds(site, wanted))

    def with_algorithm(self, asked: DistinctRequest, bound: Entrant) -> IsolatedRequest | None:
        """Return the time of a request by itself, served by an algorithm.

        None is returned where the algorithm has too many messages, or needs an optical switch in two states at one time.
        """
        with suppress(TornError):
            if bound.messages <= _MESSAGES:
                return self.served_by(asked, self.algorithm(bound.name)).isolated(asked)
        return None

    def options(self, asked: DistinctRequest, fastest: int = FEW) -> list[Option]:
        """Return the algorithms that may serve a request better within its step, the fastest first.

        Args:
            asked: The request, on all groups that ask for it at once.
            fastest: How many of the fastest algorithms are returned in any case.
        """
        found = list[AlgorithmTime]()
        for bound in self.bounds(asked, SLOWER * self.isolated(asked).ticks):
            if (alone := self.with_algorithm(asked, bound)) is not None:
                found.append((alone.ticks, alone.flows, bound.name))
        worth = sorted({*pareto_front(found), *sorted(found)[:fastest]})
        return [self.algorithm(name) for _, _, name in worth]

    def least_ticks(self, asked: DistinctRequest, others: Iterable[Chooser]) -> int:
        """Return the least time of a request by itself, all groups at once, in ticks.

        Args:
            asked: The request.
            others: Choosers that may serve the request, besides each algorithm and the present chooser.
        """
        least = self.isolated(asked).ticks
        for each in others:
            with suppress(InputError):  # the chooser of a run may fit no other topology
                least = min(least, replace(self, choice=replace(self.choice, chooser=each)).isolated(asked).ticks)
        for bound in self.bounds(asked, least):
            if bound.bound_fs >= least:
                break
            if (alone := self.with_algorithm(asked, bound)) is not None:
                least = min(least, alone.ticks)
        return least


def pareto_front(candidates: Sequence[AlgorithmTime]) -> list[AlgorithmTime]:
    """Return the algorithms on the Pareto front of time and messages, fastest first."""
    found: list[AlgorithmTime] = []
    for each in sorted(candidates):
        if not found or each[1] < found[-1][1]:
            found.append(each)
    return found


def other_choosers(topology: Topology, dtype: str, npus: I64, ran: Chooser | None = None) -> Mapping[str, Chooser]:
    """Return choosers by name: the default of each operation, each library, and the chooser of the recorded run, if any.

    Args:
        topology: The topology on which the step runs.
        dtype: The dtype as which float32 is timed.
        npus: [ranks] the NPU of each rank.
        ran: The chooser of the recorded run; None if there is none, or if it is not known.
    """
    libraries = {name: ChooserOnNpus(topology, dtype, npus=npus, name=name) for name, _ in LIBRARIES}
    found: dict[str, Chooser] = {DEFAULTS: Choice().algorithm_for, **libraries}
    return found if ran is None else {**found, RAN: ran}
