"""Faults at given times while the recorded steps of a job run, within the solver's own clock.

V tasks, L links, N ranks.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from emu.arrays import F64, I64, Bool
from emu.errors import InputError, must_be
from emu.fabric.engine.solver.state import State
from emu.fabric.run import run_graph
from emu.model.stack.stack import Stack
from emu.study.live.faulty_job import FaultyJob, LiveStep, job_of_steps, kill_reason
from emu.study.training.composed.software_costs import costed_topology
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.machine_history import MachineHistory, MachineMoment
from emu.topology.fault_injection.machine_state import MachineState, why_stopped
from emu.trace.replay.replay import TraceLayout
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.report.report import step_ends
from emu.trace.report.spans import Spans, covered
from emu.trace.trace import Trace
from emu.units import MAX_TICKS, format_time, seconds

ASSUMED = (
    "what fails carries nothing from then on; once the system has mended itself, what is left of messages takes the new routes",
    "a step in which an NPU of the job fails begins anew then, and no state is read back (`emu train --elastic` does that)",
    "algorithms are those that are chosen for the whole fabric",
)


def laid(steps: TraceLayout, stack: Stack, found: MachineState, speed: F64) -> ReplayGraph:
    """Return the graph of recorded steps on a machine with every rank by itself, at shares [N] of the device's speed."""
    topology, device = costed_topology(stack, found.topology), steps.device.for_ranks(steps.trace.n_ranks)
    return replace(steps, topology=topology, device=device, speed=speed).build_graph(None)


def ends_fs(trace: Trace, replayed: ReplayGraph, end_fs: I64) -> I64:
    """Return the tick at which each step has ended on all ranks; `MAX_TICKS` if it has not ended."""
    return np.maximum.accumulate(step_ends(trace, replayed, end_fs).max(axis=0))


class RunningSteps:
    """Steps of a recorded job on a machine that changes while they run: each is timed across the changes.

    Args:
        steps: The recorded steps on the whole machine.
        stack: The software, with its time for messages.
        faults: The faults, all with times.

    Raises:
        InputError: Optical switches turn while messages are under way, or messages choose their way.
    """

    def __init__(self, steps: TraceLayout, stack: Stack, faults: Sequence[Fault]) -> None:
        if steps.topology.circuits is not None:
            mend = "its switches turn for each message; take steps, such as `at step 1`"
            raise must_be("fault", "the topology of faults at times", "one with lasting links", steps.topology.name, mend)
        if steps.topology.chooses:
            mend = "take steps, such as `at step 1`, or another route="
            raise must_be("fault", "the topology of faults at times", "one with fixed routes", steps.topology.name, mend)
        self._steps, self._stack = steps, stack
        self.course = MachineHistory(steps.topology, faults, steps.trace.n_ranks)
        self.now = self.course.whole
        self.moments = [self.now]
        self.replayed = laid(steps, stack, self.now.found, self.now.speed)
        self.state = State(self.replayed.graph.capacity_Bps)
        self.state.admit(self.replayed.graph)
        self._from_step: int | None = None  # that is lost, and begins anew once the system has mended itself

    def go(self) -> str | None:
        """Run the job to its end, and return the reason why it ended early; None if it finished."""
        while (time_fs := self.course.next_fs) < MAX_TICKS:
            self.state.advance(time_fs)
            if (self.state.end_fs <= time_fs).all():
                return None
            moment = self.course.turn()
            if stopped := _why(moment):
                return stopped
            try:
                self._meet(moment)
            except InputError as error:  # a pair that no route joins any more
                return why_stopped(moment.states, str(error))
            self.moments.append(moment)
        self.state.advance()
        return None

    def ends_fs(self) -> I64:
        """Return the tick at which each step has ended."""
        return ends_fs(self._steps.trace, self.replayed, self.state.end_fs)

    def _meet(self, moment: MachineMoment) -> None:
        """Change the machine to its state at a new moment: routes, speeds of NPUs, and shares of links."""
        if moment.taken and self._from_step is None:
            self._from_step = 1 + int((self.ends_fs() <= moment.time_fs).sum())
        before, self.now = self.now, moment
        rerouted = moment.found is not before.found
        if rerouted or not np.array_equal(moment.speed, before.speed):
            self.replayed = laid(self._steps, self._stack, moment.found, moment.speed)
            self.state = self.state.moved(self.replayed.graph, anew=self._lost() if rerouted and not moment.waits else None)
            shares_before = np.ones(len(moment.share))
        else:
            shares_before = before.share
        for link in np.flatnonzero(moment.share != shares_before).tolist():
            capacity_Bps = self.replayed.graph.capacity_Bps[link] * moment.share[link]
            self.state.set_capacity(link, moment.time_fs, float(capacity_Bps))

    def _lost(self) -> Bool | None:
        """Return [V] whether each task belongs to the lost step or a later one; None if no step is lost."""
        if self._from_step is None:
            return None
        lost, self._from_step = steps_of_tasks(self._steps.trace, self.replayed) >= self._from_step, None
        return lost


def steps_of_tasks(trace: Trace, replayed: ReplayGraph) -> I64:
    """Return [V] the step of each task; of a request, the last step among its members."""
    steps = np.concatenate([trace.events_of(rank).step for rank in range(trace.n_ranks)]).astype(np.int64)
    timed = replayed.begins >= 0
    of_instance, of_task = np.zeros(len(replayed.firsts), np.int64), np.zeros(replayed.graph.n_tasks, np.int64)
    asks = timed & (replayed.instance >= 0)
    np.maximum.at(of_instance, replayed.instance[asks], steps[asks])
    of_task[replayed.begins[timed]] = steps[timed]
    first = replayed.firsts.tolist()
    for low, high, step in zip(first, [*first[1:], len(of_task)], of_instance.tolist(), strict=True):
        of_task[low:high] = step
    return of_task


def run_through_timed_faults(recorded: TraceLayout, stack: Stack, faults: Sequence[Fault]) -> FaultyJob:
    """Return the steps of a trace on a machine whose faults come and go at times counted from the first step's begin.

    Args:
        recorded: The recorded steps on the whole machine.
        stack: The software, with its time for messages.
        faults: Faults that `check_faults` has accepted.

    Raises:
        InputError: Optical switches turn, or the trace cannot be timed.
    """
    job, trace = RunningSteps(recorded, stack, faults), recorded.trace
    whole = ends_fs(trace, job.replayed, run_graph(job.replayed.graph).end_fs)
    stopped = job.go()
    ends = job.ends_fs()
    ends = ends[ends <= job.state.now_fs] if stopped is not None else ends
    steps = tuple(_step(job.moments, i, low, high) for i, (low, high) in enumerate(pairwise([0, *ends.tolist()]), 1))
    wanted_s = seconds(int(whole[len(steps) - 1])) if steps else 0.0
    if stopped is not None:
        stopped = f"step {len(steps) + 1}, at {format_time(seconds(job.state.now_fs))}: {stopped}"
    known = {"device": recorded.device.name, "ranks": trace.n_ranks, "stopped": stopped}
    return job_of_steps(recorded.topology, faults, steps, wanted_s, ASSUMED, **known)


def _why(moment: MachineMoment) -> str | None:
    """Return the reason why the job ends at a moment; None if it continues."""
    killed = [fault for fault, _ in moment.taken if fault.part == "rank"]
    if killed:
        return kill_reason(killed[0])
    return why_stopped(moment.states, moment.stops) if moment.stops else None


def _step(moments: Sequence[MachineMoment], number: int, low: int, high: int) -> LiveStep:
    """Return a step of a live report: its length, its events, and the seconds in which repairs were under way.

    Args:
        moments: All changes of the machine, in the order of time.
        number: The number of the step.
        low: The tick at which the step begins.
        high: The tick at which it ends.
    """
    own = [moment for moment in moments if low <= moment.time_fs < high]
    mending_fs = _mending_fs(moments, low, high)
    events = tuple(f"{event} at {format_time(seconds(m.time_fs))}" for m in own for event in m.events)
    told = "; ".join(dict.fromkeys(moment.told for moment in own if moment.told))
    name = [moment.found.topology.name for moment in moments if moment.time_fs < high]
    return LiveStep(number, seconds(high - low), seconds(mending_fs), events, told, name[-1])


def _mending_fs(moments: Sequence[MachineMoment], low: int, high: int) -> int:
    """Return the ticks of a step in which repairs were under way; where several are, they count once."""
    end = np.array([moment.time_fs for moment in moments], np.int64)
    begin = end - np.array([moment.mended_fs for moment in moments], np.int64)
    return covered(Spans(begin, end).within(low, high)).ticks
