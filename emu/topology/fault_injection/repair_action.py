"""The change from one moment of a machine with faults to the next: events, lost ranks, and the system's reaction."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from emu.arrays import I64
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.machine_state import WHOLE, machine_state, total_faults
from emu.topology.topology import Topology


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
