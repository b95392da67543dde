"""The losses of a job: ranks whose NPU fails, ranks that are killed, and the step at which the machine has no room left."""

from collections.abc import Callable, Sequence

import numpy as np

from emu.errors import InputError
from emu.model.plan.plan import Plan
from emu.model.plan.rank_axes import AXES, EXPERT_AXES, group_rows
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.machine_state import MachineState, machine_state
from emu.topology.fault_injection.repair_action import RankLoss, events_of, lost_ranks
from emu.topology.topology import Topology


def losses(topology: Topology, faults: Sequence[Fault], ranks: int, steps: int) -> tuple[RankLoss, ...]:
    """Return the ranks that are lost as steps begin, in that order, until the machine has no room for the job.

    Args:
        topology: The whole machine.
        faults: The faults of the job; those at times are left out, because their step is not known before the run.
        ranks: The ranks of the job.
        steps: The number of steps.
    """
    found = _ends(faults, steps, 0, lambda now: machine_state(topology, now, ranks))
    return tuple(loss for loss in found if loss.rank is not None)


def job_ends(topology: Topology, faults: Sequence[Fault], plan: Plan, steps: int, since: int = 0) -> tuple[RankLoss, ...]:
    """Return the losses that end a job as steps begin, in that order; last comes the step at which there is no room for it.

    Args:
        topology: The whole machine.
        faults: The faults of the job; those at times are left out.
        plan: The plan of the job.
        steps: The number of steps.
        since: Only steps after this one count; the machine has room for the job then.
    """
    return _ends(faults, steps, since, lambda now: check_room_for_job(topology, now, plan))


def check_room_for_job(topology: Topology, faults: Sequence[Fault], plan: Plan) -> MachineState:
    """Return the machine around faults; refuse one that has no room for the job.

    Raises:
        InputError: There is no room for it, or ranks of a group do not reach one another.
    """
    found = machine_state(topology, faults, plan.world)
    placed = found.topology.place(plan.world)
    for axis in (*AXES, *EXPERT_AXES, "cp+dp"):
        rows = placed[group_rows(axis, plan.sizes)]
        src, dst = (rows[:, at].ravel() for at in np.nonzero(~np.eye(rows.shape[1], dtype=bool)))
        if len(src):
            found.topology.routes(src, dst, np.zeros_like(src))
    return found


def _ends(
    faults: Sequence[Fault], steps: int, since: int, on: Callable[[Sequence[Fault]], MachineState]
) -> tuple[RankLoss, ...]:
    """Return the losses after a step, given a function that returns the machine around faults or raises InputError."""
    faults = [fault for fault in faults if not fault.timed]
    found, before = list[RankLoss](), [fault for fault in faults if fault.holds(since)]
    at = on(before)
    for step in range(since + 1, steps + 1):
        now = [fault for fault in faults if fault.holds(step)]
        if now == before:
            continue
        try:
            then = on(now)
        except InputError as error:
            why = ", ".join(events_of(before, now))
            return (*found, *_lost(step, before, now, at), RankLoss(step, None, why, f"the job cannot go on: {error}"))
        found += _lost(step, before, now, at, then.broken.nodes)
        before, at = now, then
    return tuple(found)


def _lost(
    step: int, before: Sequence[Fault], now: Sequence[Fault], at: MachineState, out: Sequence[int] = ()
) -> list[RankLoss]:
    """Return the ranks that are lost as a step begins."""
    hit = lost_ranks(before, now, at.npus, out)
    return [RankLoss(step, rank, fault.state, f"rank {rank} with it" * (fault.part != "rank")) for fault, rank in hit]
