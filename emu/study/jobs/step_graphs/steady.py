"""Jobs run side by side until each has had enough steady steps, by the fluid engine or by packets.

A step is steady if it begins after each job has ended its first step, and ends before any job ends its last one. So all jobs
run all the time. L links, V tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from emu.arrays import F64, I64, Bool
from emu.collective.schedule import MAX_ROWS
from emu.errors import InputError
from emu.fabric.engine.packets.packet_network import LaneOrder
from emu.fabric.engine.packets.ways import in_lanes
from emu.fabric.graph import Timeline
from emu.fabric.packet_fabric import PacketFabric
from emu.fabric.run import run_graph
from emu.study.jobs.step_graphs.shared_graph import RepeatedJob, SharedGraph, StepTimes, shared_graph
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S

_TRIES = 12  # runs at most, each with more steps than the one before
_MORE = 1.05  # steps beyond those that are expected to suffice


@dataclass(frozen=True, slots=True)
class Fabric:
    """The fabric that jobs share: its topology, and the packets that give the times; without packets messages are fluid."""

    topology: Topology
    packets: PacketFabric | None = None

    def run(self, shared: SharedGraph) -> Timeline:
        """Return the times of all tasks of several jobs.

        Raises:
            InputError: A task ends beyond the clock, or packets cannot run the graph.
            RunError: Packets wait for one another in a circle.
        """
        if self.packets is None:
            return run_graph(shared.graph)
        assert shared.keys is not None
        ways = self.packets.ways(shared.graph, self.topology, shared.keys)
        lanes = [share.lane for share in shared.shares]
        if max(lanes) > 0:
            ways = in_lanes(ways, np.append(lanes, 0)[shared.graph.owner], max(lanes) + 1)
        order: LaneOrder = "strict" if any(share.is_strict for share in shared.shares) else "turns"
        packets = replace(self.packets, network=replace(self.packets.network, lane_order=order))
        return packets.run(shared.graph, self.topology, ways).timeline


@dataclass(frozen=True, eq=False, slots=True)
class SteadyRun:
    """A run of several jobs side by side, with the steps in which all of them run."""

    shared: SharedGraph
    timeline: Timeline
    steps: tuple[StepTimes, ...]  # of each job, all steps
    steady: tuple[Bool, ...]  # of each job, whether each step is steady

    def step_times_fs(self, job: int) -> I64:
        """Return the ticks of each steady step of a job."""
        of = self.steps[job]
        return np.asarray((of.end_fs - of.begin_fs)[self.steady[job]])

    def step_s(self, job: int) -> float:
        """Return the mean seconds of the steady steps of a job."""
        times = self.step_times_fs(job)
        return int(times.sum()) / (len(times) * TICKS_PER_S)

    @property
    def window_fs(self) -> tuple[int, int]:
        """The ticks between which all jobs run: from the end of the last first step to the end of the first last one."""
        return max(int(of.end_fs[0]) for of in self.steps), min(int(of.end_fs[-1]) for of in self.steps)


def run_steady(
    jobs: Sequence[RepeatedJob], expected_fs: Sequence[float], steps: int, fabric: Fabric, most_tasks: int = MAX_ROWS
) -> SteadyRun:
    """Run jobs side by side until each has had a number of steady steps; return the run.

    Args:
        jobs: The jobs; their `times` are replaced.
        expected_fs: The ticks that a step of each is expected to take.
        steps: The number of steady steps of each.
        fabric: The fabric.
        most_tasks: The largest number of tasks of all steps.

    Raises:
        TooManyTasksError: There would be more tasks.
        InputError: As `Fabric.run`, or the jobs never run all at one time.
        RunError: As `Fabric.run`.
    """
    begins, taken = np.array([job.begin_fs for job in jobs], float), np.array(expected_fs, float)
    wanted = steps
    for _ in range(_TRIES):
        horizon_fs = (begins + taken).max() + (wanted + 1) * taken.max()
        times = [
            ceil((horizon_fs - begin) / each * _MORE) + 1 for begin, each in zip(begins.tolist(), taken.tolist(), strict=True)
        ]
        total = sum(n * (job.tasks.graph.n_tasks + 1) for n, job in zip(times, jobs, strict=True))
        if total > most_tasks:
            raise TooManyTasksError(total, most_tasks)
        shared = shared_graph([job._replace(times=n) for job, n in zip(jobs, times, strict=True)])
        run = _steady_run(shared, fabric.run(shared))
        counts = [int(of.sum()) for of in run.steady]
        if min(counts) >= steps:
            return run
        lasted = np.array([int(of.end_fs[-1] - of.begin_fs[0]) / len(of.begin_fs) for of in run.steps])
        taken = np.maximum(lasted, 1.0)
        wanted += max(1, steps - min(counts))
    raise InputError("jobs: they never have enough steady steps; take fewer by steps in [settings]")


def _steady_run(shared: SharedGraph, timeline: Timeline) -> SteadyRun:
    """Return a run with its steady steps."""
    steps = tuple(shared.steps(timeline))
    run = SteadyRun(shared, timeline, steps, ())
    low, high = run.window_fs
    return replace(run, steady=tuple((of.begin_fs >= low) & (of.end_fs <= high) for of in steps))


class TooManyTasksError(InputError):
    """The error that jobs side by side have more messages and computations than a graph may have."""

    def __init__(self, tasks: int, most: int) -> None:
        mend = "take fewer steps or ranks, starts that are nearer, or time = 'composed' in [settings]"
        super().__init__(f"jobs: messages and computations of all steps must be at most {most}, got {tasks}; {mend}")


def jain_index(shares: F64) -> float:
    """Return Jain's index of fairness: 1 if all shares are equal, 1/n if one of n has everything (Jain et al., 1984)."""
    return float(shares.sum() ** 2 / (len(shares) * (shares**2).sum()))
