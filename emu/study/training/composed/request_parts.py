"""The parts of each request of a step: for each algorithm, the groups that it serves; and their messages.

G groups of P members each, N ranks, Q distinct requests. The algorithm of a request depends on no other request of the step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64
from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.collective.operation import operation
from emu.fabric.lower import LoweredSchedule, delay_entries, lower_placed
from emu.memo import kept_by
from emu.study.isolated_request import RequestPart
from emu.study.training.composed.requests_by_place import DistinctRequest
from emu.topology.facts.facts import routes_spread
from emu.topology.topology import Topology
from emu.trace.matching.call_batch import BatchKey
from emu.trace.matching.role_requests import MESSAGE, packed_blocks
from emu.trace.replay.placed_request import place_request

# The communicator of all groups where routes do not depend on it, so that times are used again between axes and steps.
_ANY = 0


def parts_by_algorithm(requests: Sequence[DistinctRequest], choice: Choice, topology: Topology) -> list[list[RequestPart]]:
    """Return [Q] the parts of each request on a topology, one for each algorithm that serves some of its groups.

    A topology may spread routes by the number of the communicator. That number is the axis, as in the whole graph, so that
    routes are equal.
    """
    apart = routes_spread(topology)
    return [_parts(asked, choice, asked.axis if apart else _ANY) for asked in requests]


def _parts(asked: DistinctRequest, choice: Choice, communicator: int) -> list[RequestPart]:
    """Return the parts of one request, by the algorithm of each group in `choosing`."""
    n = asked.ranks.shape[1]
    if asked.name == MESSAGE:
        none = Request(MESSAGE, ())
        return [RequestPart(BatchKey(communicator, None, MESSAGE, n, 0, asked.size_bytes, 0, b""), asked.ranks, none)]
    alike: dict[AlgorithmOnDims, list[int]] = {}
    asks = [asked.of_group(i) for i in range(len(asked.choosing))]
    for i, request in enumerate(asks):
        alike.setdefault(choice.algorithm_for(request), []).append(i)
    amounts, parts = (asked.name, n, asked.root, asked.size_bytes, asked.elements, _blocks(asked)), []
    for by, groups in alike.items():
        ranks = asked.ranks if len(alike) == 1 else asked.ranks[groups]
        parts.append(RequestPart(BatchKey(communicator, by, *amounts), ranks, asks[groups[0]]._replace(groups=1)))
    return parts


def goes_round(splits: Sequence[int]) -> bool:
    """Return whether split sizes are those of a ring, in which the first member sends all its elements to one other member."""
    return bool(splits) and np.count_nonzero(splits) == 1 and not splits[0]


def _blocks(asked: DistinctRequest) -> bytes:
    """Return the block sizes of all members, packed as in a `BatchKey`; b"" if all blocks are equal.

    `asked.splits` has the elements that the first member gives to each member. Every member gives the same. Only where the
    first member gives all to the member `d` places after it, each other member also gives to the one `d` places after itself.
    """
    if not asked.splits:
        return b""
    n, ring = asked.ranks.shape[1], goes_round(asked.splits)
    given = [np.roll(asked.splits, member if ring else 0) for member in range(n)]
    return packed_blocks(asked.name, operation(asked.name, n, asked.root), given, asked.elements)


@dataclass(frozen=True, eq=False)
class RequestMessages:
    """The messages of all requests of a step; each request is lowered when it is first needed."""

    parts: Sequence[Sequence[RequestPart]]  # [Q]
    topology: Topology
    placement: I64  # [N]
    launch_fs: int  # ticks that each rank takes to enter a request

    @kept_by(lambda _, request: request)
    def of(self, request: int) -> list[tuple[I64, LoweredSchedule]]:
        """Return, for each algorithm that serves groups of a request, their ranks [G, P] and messages."""
        own = self.parts[request]
        laid = (lower_placed(place_request(part.what, self.topology, self.placement[part.ranks])) for part in own)
        return [(part.ranks, delay_entries(each, self.launch_fs)) for part, each in zip(own, laid, strict=True)]
