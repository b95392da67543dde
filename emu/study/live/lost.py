"""Which ranks of a job are lost when: those on an NPU that fails, and those that are killed."""

from collections.abc import Sequence

import numpy as np

from emu.errors import InputError
from emu.study.training.program import Loss
from emu.topology.live.fault import Fault
from emu.topology.live.mended import fabric
from emu.topology.topology import Topology


def losses(topology: Topology, faults: Sequence[Fault], ranks: int, steps: int, since: int = 0) -> tuple[Loss, ...]:
    """The ranks that are lost as steps begin, in that order, until the machine has no room for the job.

    Args:
        topology: The whole machine.
        faults: Of the job.
        ranks: Of the job.
        steps: Of the job.
        since: Of the steps after this one only.
    """
    found, before = list[Loss](), tuple(fault for fault in faults if fault.holds(since) and fault.part != "rank")
    for step in range(since + 1, steps + 1):
        now = tuple(fault for fault in faults if fault.holds(step))
        new = [fault for fault in now if fault not in before and not fault.share]
        try:
            npus = fabric(topology, before, ranks).npus
        except InputError:
            break
        at = {"rank": np.arange(ranks), "npu": npus}
        hit = [(fault, np.flatnonzero(at[fault.part] == fault.at[0])) for fault in new if fault.part in at]
        found += [Loss(step, int(rank[0]), fault.state) for fault, rank in hit if len(rank)]
        before = now
    return tuple(found)
