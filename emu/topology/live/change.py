"""From one moment of a machine with faults to the next: what happens, whom it takes, and what the system does about it."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from emu.arrays import I64
from emu.topology.live.fault import Fault
from emu.topology.live.mended import WHOLE, fabric, failed
from emu.topology.topology import Topology


class Change(NamedTuple):
    """What a system does from one moment to the next."""

    took_fs: int
    told: str  # "": nothing


def mending(topology: Topology, before: Sequence[Fault], now: Sequence[Fault], ranks: int) -> Change:
    """Return what a system does where parts have failed since, or are back, and how long that takes.

    Raises:
        InputError: as `fabric`.
    """
    if failed(before) == failed(now):
        return Change(0, "")
    was = fabric(topology, before, ranks).broken
    found = fabric(topology, now, ranks, was)
    if found.broken == was:
        return Change(0, "")
    return Change(found.took_fs, found.told if found.broken.beyond(was) != WHOLE else f"back: {found.told}")


def events_of(before: Sequence[Fault], now: Sequence[Fault]) -> tuple[str, ...]:
    """Return what is otherwise than it was; of several faults of one part the worst counts."""
    was, found = _worst(before), _worst(now)
    changed = (fault.state for key, fault in found.items() if key not in was or was[key].share != fault.share)
    back = (f"{fault.what} is as before" for key, fault in was.items() if key not in found and fault.part != "rank")
    return (*changed, *back)


def states_of(faults: Sequence[Fault]) -> tuple[str, ...]:
    """Return how each part is that is not whole."""
    return tuple(fault.state for fault in _worst(faults).values())


def _worst(faults: Sequence[Fault]) -> dict[tuple[object, ...], Fault]:
    """Return the worst fault of each part; a rank that is killed again is killed anew."""
    found: dict[tuple[object, ...], Fault] = {}
    for fault in faults:
        key = fault.part, tuple(sorted(fault.at)), fault.first if fault.part == "rank" else 0
        if key not in found or fault.share < found[key].share:
            found[key] = fault
    return found


def why_stopped(states: Sequence[str], cause: str) -> str:
    """Why a job ends where its system cannot mend itself."""
    return f"{', '.join(states)}, and the job cannot go on: {cause}"


class Loss(NamedTuple):
    """A rank that is lost as a step begins; or all, where the machine has no room for the job any more."""

    step: int  # from 1 on
    rank: int | None  # None: each of them, though none of their NPUs has failed
    why: str
    then: str = ""  # what follows

    def __str__(self) -> str:
        """In words."""
        return f"step {self.step}: {self.why}" + (f", and {self.then}" if self.then else "")


class Taken(NamedTuple):
    """A rank that a fault has taken."""

    fault: Fault
    rank: int


def taken(before: Sequence[Fault], now: Sequence[Fault], npus: I64, out: Collection[int] = ()) -> tuple[Taken, ...]:
    """Return the ranks that new faults take: those that are killed, and those on an NPU that fails or is cut off.

    Args:
        before: The faults that held.
        now: Those that hold.
        npus: [ranks] on which they are.
        out: Nodes of the machine that then serve no more, as far as is known; NPUs that fail are among them anyway.
    """
    new = [fault for fault in now if fault not in before and not fault.share]
    killed = {fault.at[0]: fault for fault in new if fault.part == "rank"}
    gone = {fault.at[0] for fault in new if fault.part == "npu"} | set(out)
    causes = [fault for fault in new if fault.part != "rank"]
    hit = {rank: _cause(causes, npu) for rank, npu in enumerate(npus.tolist()) if causes and npu in gone} | killed
    found = (Taken(fault, rank) for rank, fault in hit.items() if rank < len(npus))
    return tuple(sorted(found, key=lambda each: new.index(each.fault)))


def _cause(faults: Sequence[Fault], npu: int) -> Fault:
    """Return the fault that takes an NPU: one of itself, of its NIC or of its links where there is one, else the first."""
    return next((fault for fault in faults if fault.part != "switch" and npu in fault.at), faults[0])
