"""The parts of a step as means over all ranks, by which steps on several fabrics are compared.

A report has the parts of the rank that ended last. On another fabric that is another rank, which has other work.
N ranks of the trace.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emu.arrays import I64
from emu.fabric.graph import Timeline
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.report.report import StepReport, optimizer_fs, rank_times
from emu.trace.trace import Trace
from emu.units import seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanParts:
    """The seconds of each part of a step (compute, exposed communication, idle), as means over all ranks of the job."""

    compute_s: float
    optimizer_s: float | None  # the optimizer's part of compute_s; None: no optimizer was seen
    exposed_comm_s: float
    exposed_comm_by_axis_s: Mapping[str, float]
    idle_s: float
    bubble_s: float  # part of idle_s: waits for other stages of the pipeline

    @property
    def step_time_s(self) -> float:
        """Seconds of the step: its computation, exposed communication and idle time."""
        return self.compute_s + self.exposed_comm_s + self.idle_s


def mean_parts(trace: Trace, replayed: ReplayGraph, timeline: Timeline, step_report: StepReport, standing: I64) -> MeanParts:
    """Return the parts of the reported step as means over all ranks of the run.

    Args:
        trace: The trace.
        replayed: The graph of the trace on a fabric.
        timeline: The times of its tasks.
        step_report: The report of the step.
        standing: [N] the number of ranks of the job for which each rank of the trace stands.
    """
    weights = _weights(replayed, standing)
    times = rank_times(trace, replayed, timeline, step_report, weights)
    optimizers = [optimizer_fs(trace, replayed, timeline, rank, step_report.step) for rank in weights]

    def mean_s(ticks: Iterable[int]) -> float:
        return seconds(sum(each * ranks for each, ranks in zip(ticks, weights.values(), strict=True))) / int(standing.sum())

    axes = sorted({axis for each in times for axis in each.exposed_fs})
    return MeanParts(
        compute_s=mean_s(each.compute_fs for each in times),
        optimizer_s=None if optimizers == [None] * len(times) else mean_s(each or 0 for each in optimizers),
        exposed_comm_s=mean_s(sum(each.exposed_fs.values()) for each in times),
        exposed_comm_by_axis_s={axis: mean_s(each.exposed_fs.get(axis, 0) for each in times) for axis in axes},
        idle_s=mean_s(step_report.step_time_fs - each.compute_fs - sum(each.exposed_fs.values()) for each in times),
        bubble_s=mean_s(each.bubble_fs for each in times),
    )


def _weights(replayed: ReplayGraph, standing: I64) -> Counter[int]:
    """Return the ranks of the trace that need to be computed, each with its weight.

    Of ranks with the same tasks only the first is computed. Its weight is the number of ranks of the job for which they stand.

    Args:
        replayed: The graph of the trace on a fabric.
        standing: [N] the number of ranks of the job for which each rank of the trace stands.
    """
    first_of, found = dict[tuple[bytes, bytes], int](), Counter[int]()
    for rank, weight in enumerate(standing.tolist()):
        own = slice(*replayed.first_event[rank : rank + 2].tolist())
        found[first_of.setdefault((replayed.begins[own].tobytes(), replayed.ends[own].tobytes()), rank)] += weight
    return found
