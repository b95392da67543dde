"""The change from one moment of a machine with faults to the next: events, lost ranks, and the system's reaction.

The state of a machine from moment to moment, where parts fail, slow down and come back while messages are under way.

A failed part carries nothing from then on, and a slow part carries less. Messages take other routes once the system has
reacted.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from emu.arrays import F64, I64
from emu.errors import InputError
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.machine_state import WHOLE, MachineState, machine_state, shares, speeds, total_faults
from emu.topology.topology import Topology
from emu.units import MAX_TICKS


class RepairAction(NamedTuple):
    """The reaction of a system to a change of its faults."""

    took_fs: int  # ticks that it takes
    told: str  # what the system does; "": nothing


def repair_action(topology: Topology, before: Sequence[Fault], now: Sequence[Fault], ranks: int) -> RepairAction:
    """Return the reaction of a system where parts have failed or are back since `before`.

    Raises:
        InputError: See `machine_state`.
    """
    if total_faults(before) == total_faults(now):
        return RepairAction(0, "")
    was = machine_state(topology, before, ranks).broken
    found = machine_state(topology, now, ranks, was)
    if found.broken == was:
        return RepairAction(0, "")
    return RepairAction(found.took_fs, found.told if found.broken.beyond(was) != WHOLE else f"back: {found.told}")


def events_of(before: Sequence[Fault], now: Sequence[Fault]) -> tuple[str, ...]:
    """Return the changes between two moments in words; of several faults of one part the worst counts."""
    was, found = _worst(before), _worst(now)
    changed = (fault.state for key, fault in found.items() if key not in was or was[key].share != fault.share)
    back = (f"{fault.what} is as before" for key, fault in was.items() if key not in found and fault.part != "rank")
    return (*changed, *back)


def states_of(faults: Sequence[Fault]) -> tuple[str, ...]:
    """Return the state of each part that is not whole, in words."""
    return tuple(fault.state for fault in _worst(faults).values())


def _worst(faults: Sequence[Fault]) -> dict[tuple[object, ...], Fault]:
    """Return the worst fault of each part; each kill of a rank counts by itself."""
    found: dict[tuple[object, ...], Fault] = {}
    for fault in faults:
        key = fault.part, tuple(sorted(fault.at)), fault.first if fault.part == "rank" else 0
        if key not in found or fault.share < found[key].share:
            found[key] = fault
    return found


def why_stopped(states: Sequence[str], cause: str) -> str:
    """Return the reason why a job ends where its system cannot react, in words."""
    return f"{', '.join(states)}, and the job cannot go on: {cause}"


class RankLoss(NamedTuple):
    """The loss of a rank as a step begins, or of all ranks, where the machine has no room for the job any more."""

    step: int  # number of the step, from 1 on
    rank: int | None  # None: all ranks, although none of their NPUs has failed
    why: str  # the cause
    then: str = ""  # what follows

    def __str__(self) -> str:
        """Return the loss in words."""
        return f"step {self.step}: {self.why}" + (f", and {self.then}" if self.then else "")


class LostRank(NamedTuple):
    """A rank that a fault has taken from the job."""

    fault: Fault
    rank: int


def lost_ranks(before: Sequence[Fault], now: Sequence[Fault], npus: I64, out: Collection[int] = ()) -> tuple[LostRank, ...]:
    """Return the ranks that new faults take: those that are killed, and those on an NPU that fails or is cut off.

    Args:
        before: The faults of the last moment.
        now: The faults of this moment.
        npus: [ranks] the NPU of each rank.
        out: Nodes of the machine that then no longer serve, as far as is known; failed NPUs count anyway.
    """
    new = [fault for fault in now if fault not in before and not fault.share]
    killed = {fault.at[0]: fault for fault in new if fault.part == "rank"}
    gone = {fault.at[0] for fault in new if fault.part == "npu"} | set(out)
    causes = [fault for fault in new if fault.part != "rank"]
    hit = {rank: _cause(causes, npu) for rank, npu in enumerate(npus.tolist()) if causes and npu in gone} | killed
    found = (LostRank(fault, rank) for rank, fault in hit.items() if rank < len(npus))
    return tuple(sorted(found, key=lambda each: new.index(each.fault)))


def _cause(faults: Sequence[Fault], npu: int) -> Fault:
    """Return the fault that takes an NPU: one of the NPU, its NIC or its links where there is one, else the first."""
    return next((fault for fault in faults if fault.part != "switch" and npu in fault.at), faults[0])


@dataclass(frozen=True, eq=False, slots=True)
class MachineMoment:
    """The state of a machine from one tick on."""

    time_fs: int
    found: MachineState  # the machine whose routes messages take; it does not include slower parts
    share: F64  # [L] share of each of its links' bandwidth that is left
    speed: F64  # [ranks] share of each NPU's speed that is left
    events: tuple[str, ...]  # what failed, slowed down or came back
    states: tuple[str, ...]  # the state of each part that is not whole
    mended_fs: int  # ticks that the system's reaction took, if it ends at this moment; else 0
    told: str  # what the system did; "": nothing
    taken: tuple[LostRank, ...]  # ranks that faults take
    stops: str  # why the job cannot go on; "": it can


class MachineHistory:
    """The sequence of states of a machine with faults.

    Args:
        topology: The whole machine.
        faults: Faults that are all at steps, or all at times.
        ranks: The number of ranks of the job.
    """

    def __init__(self, topology: Topology, faults: Sequence[Fault], ranks: int) -> None:
        self._topology, self._faults, self._ranks = topology, tuple(faults), ranks
        self._timed = bool(faults) and faults[0].timed
        at = {moment for fault in faults for moment in (fault.first, fault.last) if moment is not None}
        self._turns = sorted(at) if self._timed else []  # ticks at which parts change
        self._step = 0
        self._now: tuple[Fault, ...] = ()
        self._found = machine_state(topology, (), ranks)
        self._out: tuple[int, ...] = ()  # nodes that no longer serve
        self._mended: tuple[int, int, str] | None = None  # the reaction under way: its end, its ticks, what it does
        self.whole = self._moment(0, (), (0, ""), "")  # before anything has happened

    @property
    def next_fs(self) -> int:
        """The tick of the next change that is known at present; the last tick of the clock: there is none."""
        mended_fs = self._mended[0] if self._mended else MAX_TICKS
        return min([*self._turns[:1], mended_fs])

    def step(self, number: int, now_fs: int) -> None:
        """Begin a step of the job: from now on, the faults of the last step and of this one count."""
        if not self._timed and number > self._step:
            self._step = number
            if self._holding(number) != self._now:
                self._turns = [now_fs]

    def turn(self) -> MachineMoment:
        """Go to the next change, and return the state of the machine from then on."""
        time_fs, before, stops, took = self.next_fs, self._now, "", (0, "")
        if self._turns and self._turns[0] == time_fs:
            del self._turns[0]
            self._now = self._holding(time_fs if self._timed else self._step)
            stops = self._mend(time_fs, before)
        hit = lost_ranks(before, self._now, self._found.npus, self._out)
        if self._mended is not None and self._mended[0] == time_fs and not stops:
            took, self._mended = self._mended[1:], None
            self._found = machine_state(self._topology, total_faults(self._now), self._ranks)
        return self._moment(time_fs, events_of(before, self._now), took, stops, hit)

    def _moment(
        self, time_fs: int, events: tuple[str, ...], took: tuple[int, str], stops: str, hit: tuple[LostRank, ...] = ()
    ) -> MachineMoment:
        """Return the present state of the machine as the moment that begins at `time_fs`."""
        share, speed = shares(self._topology, self._found, self._now), speeds(self._found.npus, self._now)
        return MachineMoment(time_fs, self._found, share, speed, events, states_of(self._now), *took, hit, stops)

    def _mend(self, time_fs: int, before: tuple[Fault, ...]) -> str:
        """Start the system's reaction to what has changed; return why it is impossible, or ""."""
        if total_faults(before) == total_faults(self._now):
            return ""
        try:
            change = repair_action(self._topology, before, self._now, self._ranks)
            self._out = machine_state(self._topology, total_faults(self._now), self._ranks).broken.nodes
        except InputError as error:
            return str(error)
        ready_fs = max(time_fs + change.took_fs, self._mended[0] if self._mended else 0)
        self._mended = ready_fs, change.took_fs, change.told
        return ""

    def _holding(self, moment: int) -> tuple[Fault, ...]:
        """Return the faults that are present at a step or at a time."""
        return tuple(fault for fault in self._faults if fault.holds(moment))
