"""What ends a job when: ranks on an NPU that fails or that are killed, and a machine that has no room for it any more."""

from collections.abc import Callable, Sequence

import numpy as np

from emu.errors import InputError
from emu.model.plan.plan import Plan
from emu.model.plan.rank_axes import AXES, EXPERT_AXES, group_rows
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.machine_state import MachineState as Fabric
from emu.topology.fault_injection.machine_state import machine_state as fabric
from emu.topology.fault_injection.repair_action import RankLoss as Loss
from emu.topology.fault_injection.repair_action import events_of
from emu.topology.fault_injection.repair_action import lost_ranks as taken
from emu.topology.topology import Topology


def losses(topology: Topology, faults: Sequence[Fault], ranks: int, steps: int) -> tuple[Loss, ...]:
    """The ranks that are lost as steps begin, in that order, until the machine has no room for the job.

    Args:
        topology: The whole machine.
        faults: Of the job; of those at times nobody knows ahead in which step they come.
        ranks: Of the job.
        steps: Of the job.
    """
    found = _ends(faults, steps, 0, lambda now: fabric(topology, now, ranks))
    return tuple(loss for loss in found if loss.rank is not None)


def ends(topology: Topology, faults: Sequence[Fault], plan: Plan, steps: int, since: int = 0) -> tuple[Loss, ...]:
    """What ends a job as steps begin, in that order: ranks that are lost, and last a machine that has no room for it.

    Args:
        topology: The whole machine.
        faults: As of `losses`.
        plan: Of the job.
        steps: Of the job.
        since: Of the steps after this one only; the machine has room for the job then.
    """
    return _ends(faults, steps, since, lambda now: room(topology, now, plan))


def room(topology: Topology, faults: Sequence[Fault], plan: Plan) -> Fabric:
    """Return what a job has around faults.

    Raises:
        InputError: there is no room for it, or ranks of a group do not reach one another.
    """
    found = fabric(topology, faults, plan.world)
    placed = found.topology.place(plan.world)
    for axis in (*AXES, *EXPERT_AXES, "cp+dp"):
        rows = placed[group_rows(axis, plan.sizes)]
        src, dst = (rows[:, at].ravel() for at in np.nonzero(~np.eye(rows.shape[1], dtype=bool)))
        if len(src):
            found.topology.routes(src, dst, np.zeros_like(src))
    return found


def _ends(faults: Sequence[Fault], steps: int, since: int, on: Callable[[Sequence[Fault]], Fabric]) -> tuple[Loss, ...]:
    faults = [fault for fault in faults if not fault.timed]
    found, before = list[Loss](), [fault for fault in faults if fault.holds(since)]
    at = on(before)
    for step in range(since + 1, steps + 1):
        now = [fault for fault in faults if fault.holds(step)]
        if now == before:
            continue
        try:
            then = on(now)
        except InputError as error:
            why = ", ".join(events_of(before, now))
            return (*found, *_lost(step, before, now, at), Loss(step, None, why, f"the job cannot go on: {error}"))
        found += _lost(step, before, now, at, then.broken.nodes)
        before, at = now, then
    return tuple(found)


def _lost(step: int, before: Sequence[Fault], now: Sequence[Fault], at: Fabric, out: Sequence[int] = ()) -> list[Loss]:
    """Return the ranks that are lost as a step begins."""
    hit = taken(before, now, at.npus, out)
    return [Loss(step, rank, fault.state, f"rank {rank} with it" * (fault.part != "rank")) for fault, rank in hit]
