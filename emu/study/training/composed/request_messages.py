"""The messages of a request on the fabric, by all ranks that make it.

G groups of P members each, N ranks, Q distinct requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.fabric.lower import LoweredSchedule, delay_entries, lower_placed
from emu.study.training.composed.place_requests import PlaceRequests
from emu.study.training.composed.request_parts import RequestPart
from emu.topology.topology import Topology
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.replay.replay import lay_request


class LoweredPart(NamedTuple):
    """Groups of a request that one algorithm serves, as messages."""

    piece: LoweredSchedule
    ranks: I64  # [G, P]
    member: I64  # [G, P] the participant of the piece that each is


@dataclass(slots=True)
class RequestMessages:
    """The messages of all requests; each request is lowered when it is first needed."""

    asked: PlaceRequests
    parts: Sequence[Sequence[RequestPart]]  # [Q]
    topology: Topology
    placement: I64  # [N]
    launch_fs: int
    known: dict[int, tuple[LoweredPart, ...]] = field(default_factory=dict)

    def of(self, request: int) -> tuple[LoweredPart, ...]:
        """Return all groups of a request, one entry for each algorithm."""
        if request not in self.known:
            self.known[request] = tuple(self._lowered(part) for part in self.parts[request])
        return self.known[request]

    def _lowered(self, part: RequestPart) -> LoweredPart:
        """Return the messages of one part."""
        piece = delay_entries(lower_placed(lay_request(part.what, self.topology, self.placement[part.ranks])), self.launch_fs)
        size, n = piece.schedule.n_participants, part.ranks.shape[1]
        return LoweredPart(piece, part.ranks, np.arange(piece.alike.size).reshape(-1, size)[:, :n])

    def of_event(self, part: LoweredPart, request: int, place: int, *, sends: bool) -> Bool:
        """Return [G, P] whether each member belongs to an event of a place: one end of a message, or a member in the place."""
        if self.asked.requests[request].name == MESSAGE:
            return np.broadcast_to(np.arange(2) == (not sends), part.ranks.shape)
        return np.asarray(self.asked.of.place_of_rank[part.ranks] == place)
