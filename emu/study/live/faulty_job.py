"""A job during which parts of the machine fail: each step is timed on the machine as it is at that step.

A fault counts from the beginning of its step: the system repairs itself, then the step runs on the result. So a step takes
its time on a fabric built without the part, and the first such step takes the time of the repair too.
The job loses ranks whose NPU fails and ranks that are killed, and it ends when the machine has no room left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from emu.cluster.pace.timeliness import PaceFigures
from emu.collective.choice import Choice
from emu.errors import InputError
from emu.model.plan.plan import AXES, COPIES, EXPERT_AXES, Plan, group_rows
from emu.model.stack.stack import Stack
from emu.study.training.axes import slots_of
from emu.study.training.composed.software_costs import costed_topology
from emu.study.training.estimate import EstimateRequest, estimate_and_times
from emu.study.training.step.step import LEFT_OUT, time_trace
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.machine_state import (
    MachineState,
    RankLoss,
    events_of,
    lost_ranks,
    machine_state,
    repair_action,
    why_stopped,
)
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import Trace
from emu.units import seconds

ASSUMED = (
    "a fault counts from the beginning of its step: nothing of the step is lost, and no state is read back where a rank "
    "goes on on another NPU (`emu train --elastic` does both)",
    "algorithms are chosen anew for the fabric that is left",
)
StepTimes = Callable[[MachineState], Sequence[float]]  # seconds of every step of a job on a fabric; of one step: of each alike
# What is left around faults, and the steps' times there.
_On = Callable[[tuple[Fault, ...]], tuple[MachineState, Sequence[float]]]


@dataclass(frozen=True, slots=True)
class LiveStep:
    """A step of a job with faults: its seconds, the events during it, and the seconds of the system's reaction to them."""

    step: int
    time_s: float  # with the mending
    mending_s: float  # until the system was as it then is
    events: tuple[str, ...]  # what failed, slowed down or came back as the step began
    told: str  # what the system did about it; "": nothing
    topology: str  # that the step ran on


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The recovery from a loss of ranks: the step that the checkpoint has, the plan from then on, and the repeated steps."""

    step: int  # as which began it was lost
    lost: str
    went_on_from: int  # steps that the checkpoint had; 0: from the beginning
    plan: str
    ranks: int
    lost_steps: int  # that were done again
    recovery_s: float  # of virtual time: the system's mending, and those steps


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyJob:
    """The result of a job with faults on one topology: its steps, with virtual times."""

    topology: str
    device: str
    ranks: int
    faults: tuple[str, ...]
    steps: tuple[LiveStep, ...]  # that were done
    undisturbed_s: float  # that these steps take without faults
    mending_s: float  # of all steps
    goodput: float  # the first of the two over the time of the steps; 1: nothing was lost
    stopped: str | None = None  # why the job ended before its last step; None: it did not
    assumptions: tuple[str, ...]
    loss: tuple[float, ...] | None = field(default=None, metadata=LEFT_OUT)  # by step, of a job that ran; None: it did not
    reference_loss: tuple[float, ...] | None = field(default=None, metadata=LEFT_OUT)  # of one process without faults
    recoveries: tuple[Recovery, ...] | None = field(default=None, metadata=LEFT_OUT)  # of an elastic job
    timed: str | None = field(default=None, metadata=LEFT_OUT)  # in which dtypes, as `timed_dtypes_text` says; None: not said
    paced: PaceFigures | None = field(default=None, metadata=LEFT_OUT)  # how far this host kept up; None: the run was not paced


def time_faulty_job(
    topology: Topology, faults: Sequence[Fault], ranks: int, steps: int, timed: StepTimes, device: str
) -> FaultyJob:
    """Return the steps of a job, one after another, with the faults.

    Args:
        topology: The whole machine.
        faults: Faults that `check_faults` has accepted.
        ranks: The ranks of the job.
        steps: The number of steps.
        timed: A function that gives the times of the steps on a machine.
        device: The name of the device.

    Raises:
        InputError: The job cannot be timed without faults.
    """

    @cache
    def on(now: tuple[Fault, ...]) -> tuple[MachineState, Sequence[float]]:
        found = machine_state(topology, now, ranks)
        return found, timed(found)

    _, whole = on(())
    done, stopped = _steps(topology, faults, ranks, steps, on)
    whole_s = sum(_nth(whole, step.step) for step in done)
    return job_of_steps(topology, faults, done, whole_s, ASSUMED, device=device, ranks=ranks, stopped=stopped)


def job_of_steps(
    topology: Topology,
    faults: Sequence[Fault],
    steps: Sequence[LiveStep],
    undisturbed_s: float,
    assumptions: Sequence[str],
    **others: Any,
) -> FaultyJob:
    """Return the result of a job with faults from its steps; `others` are further fields of `FaultyJob`."""
    took_s = sum(step.time_s for step in steps)
    return FaultyJob(
        topology=topology.name,
        faults=tuple(map(str, faults)),
        steps=tuple(steps),
        undisturbed_s=undisturbed_s,
        mending_s=sum(step.mending_s for step in steps),
        goodput=undisturbed_s / took_s if took_s else 1.0,
        assumptions=(*topology.assumptions, *assumptions),
        **others,
    )


def _steps(topology: Topology, faults: Sequence[Fault], ranks: int, steps: int, on: _On) -> tuple[list[LiveStep], str | None]:
    """Return the finished steps, and the reason why the job ended early; None if it finished."""
    done, before = list[LiveStep](), tuple[Fault, ...]()
    for step in range(1, steps + 1):
        now = faults_at(faults, step)
        events = events_of(before, now)
        stopped = _cannot(on, step, now, events)
        if stopped is not None:
            return done, stopped
        found, times = on(now)
        took_fs, told = repair_action(topology, before, now, ranks)
        mending_s = seconds(took_fs)
        done.append(LiveStep(step, _nth(times, step) + mending_s, mending_s, events, told, found.topology.name))
        before = now
    return done, None


def faults_at(faults: Sequence[Fault], step: int) -> tuple[Fault, ...]:
    """Return the faults that are in effect at a step."""
    return tuple(fault for fault in faults if fault.holds(step))


def _nth(times: Sequence[float], step: int) -> float:
    return times[0] if len(times) == 1 else times[step - 1]


def _cannot(on: _On, step: int, now: tuple[Fault, ...], events: tuple[str, ...]) -> str | None:
    """Return the reason why a job ends at a step; None if it continues."""
    killed = [fault for fault in now if fault.part == "rank"]
    if killed:
        return f"step {step}: {kill_reason(killed[0])}"
    try:
        on(now)
    except InputError as error:
        return f"step {step}: {why_stopped(events, str(error))}"
    return None


def kill_reason(fault: Fault) -> str:
    """Return a clause that says that a job ends because a rank was killed."""
    return f"{fault.state}, and its state with it; `emu train --elastic` goes on from a checkpoint"


def losses(topology: Topology, faults: Sequence[Fault], ranks: int, steps: int) -> tuple[RankLoss, ...]:
    """Return the ranks that are lost at the beginning of each step, until the machine has no room for the job.

    Args:
        topology: The whole machine.
        faults: The faults of the job; those at times are left out, because their step is not known before the run.
        ranks: The ranks of the job.
        steps: The number of steps.
    """
    found = _losses_after(faults, steps, 0, lambda now: machine_state(topology, now, ranks))
    return tuple(loss for loss in found if loss.rank is not None)


def job_ends(topology: Topology, faults: Sequence[Fault], plan: Plan, steps: int, since: int = 0) -> tuple[RankLoss, ...]:
    """Return the losses that end a job, in order; the last is the step at which the machine has no room for it.

    Args:
        topology: The whole machine.
        faults: The faults of the job; those at times are left out.
        plan: The plan of the job.
        steps: The number of steps.
        since: Only steps after this one count; the machine has room for the job then.
    """
    return _losses_after(faults, steps, since, lambda now: check_room_for_job(topology, now, plan))


def check_room_for_job(topology: Topology, faults: Sequence[Fault], plan: Plan) -> MachineState:
    """Return the machine with faults, after the check that the job still fits on it.

    Raises:
        InputError: There is no room for it, or ranks of a group do not reach one another.
    """
    found = machine_state(topology, faults, plan.world)
    placed = found.topology.place(plan.world)
    for axis in (*AXES, *EXPERT_AXES, COPIES):
        rows = placed[group_rows(axis, plan.sizes)]
        src, dst = (rows[:, at].ravel() for at in np.nonzero(~np.eye(rows.shape[1], dtype=bool)))
        if len(src):
            found.topology.routes(src, dst, np.zeros_like(src))
    return found


def _losses_after(
    faults: Sequence[Fault], steps: int, since: int, on: Callable[[Sequence[Fault]], MachineState]
) -> tuple[RankLoss, ...]:
    """Return the losses of ranks that faults cause in the steps after step `since`.

    Args:
        faults: All faults of the run.
        steps: The number of steps of the run.
        since: The step after which losses count.
        on: A function that returns the machine around faults, or raises InputError if the system cannot react to them.
    """
    faults = [fault for fault in faults if not fault.timed]
    found, before = list[RankLoss](), faults_at(faults, since)
    at = on(before)
    for step in range(since + 1, steps + 1):
        now = faults_at(faults, step)
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
    """Return the losses of ranks at the beginning of a step, caused by new faults."""
    hit = lost_ranks(before, now, at.npus, out)
    return [RankLoss(step, rank, fault.state, f"rank {rank} with it" * (fault.part != "rank")) for fault, rank in hit]


def times_of_trace(trace: Trace, chosen: Callable[[Topology], Choice], device: Device, dtype: str, stack: Stack) -> StepTimes:
    """Return a function that gives the times of all steps of a trace on a machine.

    Args:
        trace: The trace.
        chosen: A function that gives the algorithms of its collectives on a topology.
        device: The device, with the software's time to launch a request.
        dtype: The dtype that float32 is timed as.
        stack: The software, with its time for messages.
    """

    def timed(fabric: MachineState) -> Sequence[float]:
        topology = costed_topology(stack, fabric.topology)
        return time_trace(TraceLayout(trace, chosen(topology), topology, device, dtype, fabric.speed)).report.step_times_s

    return timed


def times_of_estimate(request: EstimateRequest, device: Device) -> StepTimes:
    """Return a function that gives the seconds of an estimated step on a machine; all steps of the job are equal."""
    slots = slots_of(request.plan, request.axes)

    def timed(fabric: MachineState) -> Sequence[float]:
        return (estimate_and_times(request, fabric.topology, device, speed=fabric.speed[slots])[0].step_time_s,)

    return timed
