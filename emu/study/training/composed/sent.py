"""The messages of a request on the fabric, by all ranks that ask for it.

G groups of P members each, N ranks; p the places whose ranks ask.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.fabric.lower import Piece, launched, lowered
from emu.study.training.composed.asked import Asked
from emu.study.training.composed.parts import Part
from emu.topology.topology import Topology
from emu.trace.meet.requests import MESSAGE
from emu.trace.replay.replay import lay_request


class Piecemeal(NamedTuple):
    """Groups of a request that one algorithm serves, as messages."""

    piece: Piece
    ranks: I64  # [G, P]
    member: I64  # [G, P] the participant of the piece that each is


@dataclass(slots=True)
class Sending:
    """The messages of all requests; each request is lowered when it is first needed."""

    asked: Asked
    parts: Sequence[Sequence[Part]]  # [Q]
    topology: Topology
    placement: I64  # [N]
    launch_fs: int
    known: dict[int, tuple[Piecemeal, ...]] = field(default_factory=dict)

    def of(self, request: int) -> tuple[Piecemeal, ...]:
        """Return all groups of a request."""
        if request not in self.known:
            self.known[request] = tuple(self._lowered(part) for part in self.parts[request])
        return self.known[request]

    def _lowered(self, part: Part) -> Piecemeal:
        piece = launched(lowered(lay_request(part.what, self.topology, self.placement[part.ranks])), self.launch_fs)
        size, n = piece.schedule.n_participants, part.ranks.shape[1]
        return Piecemeal(piece, part.ranks, np.arange(piece.alike.size).reshape(-1, size)[:, :n])

    def of_event(self, part: Piecemeal, request: int, place: int, *, sends: bool) -> Bool:
        """Return [G, P] the members that an event of a place belongs to: one end of a message, or the members in the place."""
        if self.asked.requests[request].name == MESSAGE:
            return np.broadcast_to(np.arange(2) == (not sends), part.ranks.shape)
        return np.asarray(self.asked.of.place_of_rank[part.ranks] == place)
