"""The history of a machine on which parts fail, slow down and come back while messages are under way.

A failed part carries nothing from then on, and a slow part carries less. Messages take other routes once the system has
reacted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64
from emu.errors import InputError
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.machine_state import (
    LostRank,
    MachineState,
    events_of,
    failed_parts,
    lost_ranks,
    machine_state,
    reaction,
    shares,
    speeds,
    states_of,
    total_faults,
)
from emu.topology.topology import FailedParts, Topology
from emu.units import MAX_TICKS


@dataclass(frozen=True, eq=False, slots=True)
class MachineMoment:
    """The state of a machine from one tick until its next change: its parts, the NPUs of ranks, and their speeds."""

    time_fs: int
    found: MachineState  # the machine whose routes messages take; it does not include slower parts
    share: F64  # [L] share of each of its links' bandwidth that is left
    speed: F64  # [ranks] share of each NPU's speed that is left
    events: tuple[str, ...]  # what failed, slowed down or came back
    states: tuple[str, ...]  # the state of each part that is not whole
    mended_fs: int  # ticks that the system's reaction took, the longest of those that end at this moment; else 0
    told: str  # what the system did; "": nothing
    taken: tuple[LostRank, ...]  # ranks that faults take
    stops: str  # why the job cannot go on; "": it can
    waits: bool  # whether a rank is on an NPU that does not serve, until a reaction replaces it


class _PendingReaction(NamedTuple):
    """The reaction of a system that is under way: the tick of its end, its ticks, what it does, and the machine after it."""

    ready_fs: int
    took_fs: int
    told: str
    found: MachineState


class MachineHistory:
    """The sequence of states of a machine with faults.

    Args:
        topology: The whole machine.
        faults: Faults that are all at steps, or all at times.
        ranks: The number of ranks of the job.
        detect_fs: Ticks from a change of the failed parts to the beginning of the system's reaction.
    """

    def __init__(self, topology: Topology, faults: Sequence[Fault], ranks: int, detect_fs: int = 0) -> None:
        self._topology, self._faults, self._ranks, self._detect_fs = topology, tuple(faults), ranks, detect_fs
        self._timed = bool(faults) and faults[0].timed
        at = {moment for fault in faults for moment in (fault.first, fault.last) if moment is not None}
        self._turns = sorted(at) if self._timed else []  # ticks at which parts change
        self._step = 0
        self._now: tuple[Fault, ...] = ()
        # A part that flaps brings the same failed parts again and again: a machine is built once.
        self._known: dict[tuple[FailedParts, FailedParts], MachineState] = {}
        self._found = machine_state(topology, (), ranks)  # the last to which a reaction has ended
        self._out: tuple[int, ...] = ()  # nodes that no longer serve
        self._could = self._found  # the last that the system could react to
        self._stops = ""  # why it cannot react to the present ones
        self._pending: list[_PendingReaction] = []  # the reactions under way, in the order in which they end
        self.whole = self._moment(0, (), [])  # before anything has happened

    @property
    def next_fs(self) -> int:
        """The tick of the next known change of the machine; the last tick of the clock if there is none."""
        return min([*self._turns[:1], *(each.ready_fs for each in self._pending[:1])], default=MAX_TICKS)

    def step(self, number: int, now_fs: int) -> None:
        """Begin step `number` of the job, with the faults that last from the step before and those of this step."""
        if not self._timed and number > self._step:
            self._step = number
            if self._holding(number) != self._now:
                self._turns = [now_fs]

    def turn(self) -> MachineMoment:
        """Advance to the next change, and return the state of the machine from then on."""
        time_fs, before, out = self.next_fs, self._now, self._out
        ended = self._end_reactions(time_fs)
        if self._turns and self._turns[0] == time_fs:
            del self._turns[0]
            self._now = self._holding(time_fs if self._timed else self._step)
            self._mend(time_fs, before)
        hit = lost_ranks(before, self._now, self._found.npus, set(self._out) - set(out))
        ended += self._end_reactions(time_fs)
        return self._moment(time_fs, events_of(before, self._now), ended, hit)

    def _end_reactions(self, time_fs: int) -> list[_PendingReaction]:
        """Remove and return the reactions that end at a tick; messages take the routes of the last of them."""
        ended = [each for each in self._pending if each.ready_fs == time_fs]
        if ended:
            self._pending, self._found = self._pending[len(ended) :], ended[-1].found
        return ended

    def _moment(
        self, time_fs: int, events: tuple[str, ...], ended: list[_PendingReaction], hit: tuple[LostRank, ...] = ()
    ) -> MachineMoment:
        """Return the present state of the machine as a moment that begins at a tick.

        Args:
            time_fs: The tick.
            events: The failures, slowdowns and returns of parts at this tick, in words.
            ended: The system's reactions that end at this tick.
            hit: The ranks that the faults of this tick take from the job.
        """
        share, speed = shares(self._topology, self._found, self._now), speeds(self._found.npus, self._now)
        took = max((each.took_fs for each in ended), default=0), "; ".join(dict.fromkeys(e.told for e in ended if e.told))
        waits = bool(np.isin(self._found.npus, self._out).any())
        return MachineMoment(time_fs, self._found, share, speed, events, states_of(self._now), *took, hit, self._stops, waits)

    def _mend(self, time_fs: int, before: tuple[Fault, ...]) -> None:
        """Start the system's reaction to a change of faults, and note why it cannot react if that is so.

        Reactions that are under way go on, and this one ends after them.
        """
        if total_faults(before) == total_faults(self._now):
            return
        try:
            found = self._after_reaction()
        except InputError as error:
            if self._pending:  # the reactions under way are broken off, and begin again when the stop ends
                self._could = self._found
            self._stops, self._pending = str(error), []
            return
        took_fs, told = reaction(self._could.broken, found)
        noticed_fs = time_fs + (self._detect_fs if told else 0)
        ready_fs = max([noticed_fs + took_fs, *(each.ready_fs for each in self._pending[-1:])])
        self._out, self._could, self._stops = found.broken.nodes, found, ""
        self._pending.append(_PendingReaction(ready_fs, took_fs, told, found))

    def _after_reaction(self) -> MachineState:
        """Return the machine with the failed parts of now, after its system has reacted to them.

        Raises:
            InputError: See `machine_state`.
        """
        faults, was = total_faults(self._now), self._could.broken
        key = failed_parts(self._topology, faults), was
        if key not in self._known:
            self._known[key] = machine_state(self._topology, faults, self._ranks, was)
        return self._known[key]

    def _holding(self, moment: int) -> tuple[Fault, ...]:
        """Return the faults that are present at a step or at a time."""
        return tuple(fault for fault in self._faults if fault.holds(moment))
