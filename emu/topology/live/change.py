"""From one moment of a machine with faults to the next: what happens, whom it takes, and what the system does about it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.topology.live.fault import Fault
from emu.topology.live.mended import fabric
from emu.topology.topology import Topology


class Change(NamedTuple):
    """What a system does from one moment to the next."""

    took_fs: int
    told: str  # "": nothing


def mending(topology: Topology, before: Sequence[Fault], now: Sequence[Fault], ranks: int) -> Change:
    """What the parts that have failed since take to be mended, or those that are back to serve again; of several the longest.

    Raises:
        InputError: as `fabric`.
    """
    failed = [fault for fault in now if fault not in before and not fault.share]
    back = [fault for fault in before if fault not in now and not fault.share]
    there, away = fabric(topology, failed, ranks), fabric(topology, back, ranks)
    told = there.told or (f"back: {away.told}" if away.told else "")
    return Change(max(there.took_fs, away.back_fs), told)


def events_of(before: Sequence[Fault], now: Sequence[Fault]) -> tuple[str, ...]:
    """What is otherwise than it was."""
    back = (f"{fault.what} is as before" for fault in before if fault not in now and fault.part != "rank")
    return (*(fault.state for fault in now if fault not in before), *back)


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


def taken(before: Sequence[Fault], now: Sequence[Fault], npus: I64) -> tuple[Taken, ...]:
    """The ranks that new faults take: those that are killed, and those on an NPU that fails.

    Args:
        before: The faults that held.
        now: Those that hold.
        npus: [ranks] on which they are.
    """
    at = {"rank": np.arange(len(npus)), "npu": npus}
    new = [fault for fault in now if fault not in before and not fault.share and fault.part in at]
    hit = [(fault, np.flatnonzero(at[fault.part] == fault.at[0])) for fault in new]
    return tuple(Taken(fault, int(rank[0])) for fault, rank in hit if len(rank))
