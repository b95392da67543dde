"""Which ranks of a job are lost when: those on an NPU that fails, and those that are killed."""

from collections.abc import Sequence

from emu.errors import InputError
from emu.topology.live.change import Loss, taken
from emu.topology.live.fault import Fault
from emu.topology.live.mended import fabric
from emu.topology.topology import Topology


def losses(topology: Topology, faults: Sequence[Fault], ranks: int, steps: int, since: int = 0) -> tuple[Loss, ...]:
    """The ranks that are lost as steps begin, in that order, until the machine has no room for the job.

    Args:
        topology: The whole machine.
        faults: Of the job; of those at times nobody knows ahead in which step they come.
        ranks: Of the job.
        steps: Of the job.
        since: Of the steps after this one only.
    """
    faults = [fault for fault in faults if not fault.timed]
    found, before = list[Loss](), tuple(fault for fault in faults if fault.holds(since) and fault.part != "rank")
    for step in range(since + 1, steps + 1):
        now = tuple(fault for fault in faults if fault.holds(step))
        try:
            npus = fabric(topology, before, ranks).npus
        except InputError:
            break
        found += [Loss(step, rank, fault.state) for fault, rank in taken(before, now, npus)]
        before = now
    return tuple(found)
