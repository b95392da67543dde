"""The questions of recorded steps: `emu replay` times them on other topologies, `emu compare` compares two of them."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emu.cluster.pace.timeliness import PaceFigures
from emu.study.training.step.costly_requests import with_costliest
from emu.study.training.step.step import Step, TimedTrace
from emu.study.training.timed_step import time_replay
from emu.trace.comparison.comparison import Comparison
from emu.trace.comparison.comparison import compare as compared
from emu.trace.device.dtypes import usual_dtype
from emu.trace.trace import Trace
from emu.trace.trace_file import load
from launch.front.inputs import DeviceLike, Words
from launch.front.question import question
from launch.front.result import Result
from launch.front.steps.timed_steps import FaultyJobs, TimedSteps, steps_on_each, with_pacing
from launch.front.steps.trace_timing import JobConditions, TraceTiming
from launch.show.progress import progress_bar
from launch.show.text.comparison_table import comparison_report

if TYPE_CHECKING:
    from launch.front.inputs import Topologies

TraceLike = str | Path | Trace


def load_trace(path: str | Path) -> Trace:
    """Return the trace in a file.

    Raises:
        InputError: the file cannot be read, or holds none.
    """
    return load(Path(path))


def named_trace(given: TraceLike) -> tuple[str, Trace]:
    """Return the name that reports have for a trace, and the trace itself; errors as in `load_trace`."""
    return ("a trace", given) if isinstance(given, Trace) else (Path(given).name, load_trace(given))


@question
def replay(
    trace: TraceLike,
    *,
    topology: "Topologies",
    device: DeviceLike = "h100",
    dtype: str | None = None,
    algorithm: Words = (),
    stack: str = "",
    fault: Words = (),
    perturb: int = 0,
) -> TimedSteps[Step] | FaultyJobs:
    """Time a recorded trace on topologies, without running it again.

    Args:
        trace: The trace: a file, or a `Trace`.
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        device: The device: a name, a .toml file, or a `Device`.
        dtype: The data type as which float32 is timed; `as-ran`: each in its own; None: as the command that recorded the trace.
        algorithm: Words that choose algorithms, such as `all_reduce=ring`; `recorded`: those of the run; empty: `auto`.
        stack: The times that software adds to messages and requests, such as `launch=5us`.
        fault: Parts that fail while the job runs, such as `link 0-1 at step 2`, or files of such texts.
        perturb: Compute the time so many more times, with random starts one tick later, and tell how far it spreads.

    Returns:
        The step on each topology; with `fault` the steps of a job, one after another.

    Raises:
        InputError: the trace cannot be read, or an argument is impossible; the line says which, and how to mend it.
    """
    name, recorded = named_trace(trace)
    timing, job = TraceTiming.of_replay(topology, device, dtype, algorithm, stack), JobConditions.of(fault)
    if job.faults:
        with progress_bar(f"timing {name}"):
            return FaultyJobs(tuple(timing.time_with_faults(recorded, job.faults, clock=True)))
    timed = timed_replays(recorded, timing, perturb)
    return steps_of(f"Replay of {name}", timed, f"timing {name}", len(timing.machines))


def timed_replays(recorded: Trace, timing: TraceTiming, perturb: int = 0) -> Iterator[TimedTrace]:
    """Return an iterator over a trace timed on each topology; each is timed when it is needed.

    Args:
        recorded: The trace.
        timing: The topologies, and how it is timed.
        perturb: The number of further runs in which starts are perturbed.

    Raises:
        InputError: the device or an algorithm is unknown.
    """
    dtype = timing.dtype or usual_dtype(recorded)
    built, device = timing.build(dtype)
    return (time_replay(recorded, timing.algorithms, each, device, dtype, perturb=perturb) for each in built)


def steps_of(
    title: str, timed: Iterable[TimedTrace], label: str, count: int, paced: PaceFigures | None = None
) -> TimedSteps[Step]:
    """Return the answer that is the step on each topology.

    Args:
        title: The title of the report.
        timed: The timed trace on each topology, each computed when it is needed.
        label: The label of the progress.
        count: The number of topologies.
        paced: How well this host kept up with the first topology; None: the run was not paced.
    """
    made = ((with_costliest(each.step(), each), each) for each in timed)
    rows, every = steps_on_each(with_pacing(made, paced), label, count)
    subtitle = f"{rows[0].ranks} {rows[0].device} on {', '.join(step.topology for step in rows)}"
    return TimedSteps(rows, title, subtitle, every)


@dataclass(frozen=True, repr=False, eq=False)
class TraceComparison(Result[Comparison]):
    """The comparison of a step of two traces."""

    @property
    def exit_code(self) -> int:
        """0 if the steps are equal, and 1 if they are not."""
        return 0 if self.rows[0].equal else 1

    def text(self) -> str:
        """Return whether the traces are equal, the first difference, and a table of both by axis."""
        return comparison_report(self.rows[0])

    def as_json(self) -> object:
        """Return the comparison."""
        return {"equal": self.rows[0].equal, **asdict(self.rows[0])}


@question
def compare(first: TraceLike, second: TraceLike) -> TraceComparison:
    """Compare a step of two traces: requests, their order, bytes, dependencies, FLOPs and memory.

    Args:
        first: A trace: a file, or a `Trace`.
        second: The other one.

    Raises:
        InputError: a file cannot be read.
    """
    return TraceComparison((compared(named_trace(first)[1], named_trace(second)[1]),))
