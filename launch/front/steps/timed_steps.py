"""Answers that are training steps: on each topology, one after another while parts fail, and at the values of a sweep.

`TraceTiming` says how a trace is timed: the machines, the device, the algorithms and the software. `JobConditions` has the
faults and the clock of a run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from emu.cluster.pace.timeliness import Pace, PaceFigures, Tempo
from emu.collective.choice import Choice
from emu.errors import must_be
from emu.model.stack.stack import Stack
from emu.study.live.faulty_job import FaultyJob, losses, time_faulty_job, times_of_trace
from emu.study.live.timed_faults import run_through_timed_faults
from emu.study.training.composed.software_costs import costed_device, costed_topology
from emu.study.training.step.choices import choice_for
from emu.study.training.step.rate import messages_of, products_of, timed_dtypes_text
from emu.study.training.step.step import Step, TimedTrace, with_means
from emu.topology.fault_injection.fault import Fault, check_before_end
from emu.topology.fault_injection.fault_script import at_times, faults_of, given_faults, job_steps, read_faults
from emu.topology.fault_injection.machine_state import RankLoss
from emu.topology.topology import Topology
from emu.trace.device.device import Device, measured_device
from emu.trace.formats.reading import reading_of
from emu.trace.formats.trace_formats import output_path, write_trace
from emu.trace.replay.replay import TraceLayout
from emu.trace.steps import count_steps
from emu.trace.timed_dtype import usual_dtype
from emu.trace.trace import Kind, Trace
from emu.units import format_time
from launch.front.inputs import DeviceLike, Words, algorithm_words, device_of, overheads_of, several, topologies_of
from launch.front.result import Result, TraceOutput, lazy
from launch.show.blocks import Page
from launch.show.lanes import few_lanes, lanes, write_perfetto
from launch.show.progress import finished_items, with_progress
from launch.show.text.machine_table import job_report
from launch.show.text.step_report import has_error, step_report

S = TypeVar("S", bound=Step)


def steps_on_each(
    made: Iterable[tuple[S, TimedTrace]], label: str, count: int, report: Callable[[tuple[S, ...]], str]
) -> tuple[tuple[S, ...], tuple[TimedTrace, ...]]:
    """Return the step on each topology with its timed trace, and report each step as soon as it is known.

    Each has the means of its parts, by which tables compare steps.

    Args:
        made: The steps with their timed traces, each computed when it is needed.
        label: The label of the progress.
        count: The number of topologies.
        report: The report of the steps that are finished where the command is stopped.
    """
    means = ((with_means(step, timed), timed) for step, timed in made)
    every = finished_items(means, lambda finished: report(tuple(step for step, _ in finished)), count)
    row_of = (lambda made: made[0]) if count > 1 else None
    rows, steps = zip(*with_progress(every, label, count, _progress_line, row_of), strict=True)
    return rows, steps


def with_pacing(made: Iterable[tuple[S, TimedTrace]], paced: PaceFigures | None) -> Iterator[tuple[S, TimedTrace]]:
    """Yield the steps; the first one also gets the figures of how this host kept up with a paced run.

    Args:
        made: The steps with their timed traces.
        paced: How well this host kept up; None: the run was not paced.
    """
    for step, timed in made:
        yield replace(step, paced=paced), timed
        paced = None


def _progress_line(made: tuple[Step, TimedTrace]) -> str:
    """Return a step as a short text for the progress display."""
    step = made[0]
    return f"{step.topology}: {format_time(step.step_time_s)}" + ("" if step.mfu is None else f", MFU {step.mfu:.3f}")


def report_of_steps(steps: Sequence[Step]) -> str:
    """Return the report of each step."""
    return "\n\n".join(map(step_report, steps))


@dataclass(frozen=True, repr=False, eq=False)
class TimedSteps(Result[S]):
    """A training step on each topology, with its timed trace."""

    _FIRST_COLUMNS = (
        *("topology", "model", "plan", "global_batch", "ranks", "device", "step_time_s", "tokens_per_s", "mfu"),
        *("peak_memory_bytes", "compute_s", "exposed_comm_s", "idle_s", "bubble_s"),
    )
    title: str  # of the report
    subtitle: str
    timed: tuple[TimedTrace, ...]  # the tasks of each step

    def with_means(self) -> tuple[S, ...]:
        """Return the steps, each with the means of its parts over all ranks, by which steps on other fabrics are compared."""
        return tuple(
            step if step.mean_over_ranks is not None else with_means(step, timed)
            for step, timed in zip(self.rows, self.timed, strict=True)
        )

    def as_json(self) -> object:
        """Return the steps."""
        return self.with_means()

    def records(self) -> Sequence[object]:
        """Return the steps with the means of their parts."""
        return self.with_means()

    def to_pandas(self) -> Any:
        """Return the steps as a DataFrame of pandas, with the figures that are mostly asked for first.

        Two columns, `expected_least_s` and `expected_most_s`, have the range in which each step is expected; none where nobody
        knows it.

        Raises:
            InputError: pandas is not installed.
        """
        found = super().to_pandas()
        at = list(found).index("step_time_s") + 1
        for i, name in enumerate(("expected_least_s", "expected_most_s")):
            found.insert(at + i, name, [step.expected_s[i] if has_error(step) else None for step in self.rows])
        return found

    def text(self) -> str:
        """Return the report of each step."""
        return report_of_steps(self.rows)

    def page(self) -> Page:
        """Return the report of all steps, with charts."""
        made: Page = lazy("html.step_page:step_page")(self.title, self.subtitle, list(zip(self.rows, self.timed, strict=True)))
        return made

    def save_timeline(self, path: str | Path, *, every_rank: bool = False) -> None:
        """Write a timeline of the first topology for ui.perfetto.dev.

        Args:
            path: The file.
            every_rank: Whether every rank and every link is in it; otherwise a large run has one rank a role and stage.

        Raises:
            WriteError: the file cannot be written.
        """
        write_timeline(self.timed[0], Path(path), every_rank=every_rank)


def write_timeline(timed: TimedTrace, path: Path, *, every_rank: bool) -> None:
    """Write a timeline for ui.perfetto.dev; arguments and errors as in `TimedSteps.save_timeline`."""
    every = lanes(timed.trace, timed.replayed, timed.timeline, timed.topology)
    write_perfetto(every if every_rank else few_lanes(timed), path)


@dataclass(frozen=True, repr=False, eq=False)
class FaultyJobs(Result[FaultyJob], drawn_by="chart.step_chart:job_figure"):
    """The steps of a job on each topology, one after another, while parts fail.

    The picture has the time of each step, with a mark at each fault.
    """

    @property
    def failure(self) -> str | None:
        """A text on the job that stopped; None: no job did."""
        return next((f"{job.topology}: the job stopped in {job.stopped}" for job in self.rows if job.stopped is not None), None)

    def text(self) -> str:
        """Return the report of each job."""
        return "\n\n".join(map(job_report, self.rows))


USUAL_DEVICE = "h100"
RECORDED = "recorded"  # in place of an algorithm: those of the recorded run
_SWITCH = {"on": True, "off": False}


def usual_device(device: DeviceLike | None) -> DeviceLike:
    """Return the device that an argument gives, or the usual one."""
    return USUAL_DEVICE if device is None else device


# A file, or a function that takes the trace as soon as it is recorded.
TraceTarget = str | Path | TraceOutput | Callable[[Trace], object]


@dataclass(frozen=True, slots=True)
class TraceTiming:
    """The topologies on which a trace is timed, with the device, the algorithms and the engine that time it."""

    machines: tuple[Topology, ...]  # whole, as they are given
    device: DeviceLike | None  # None: the usual one, but computations of a profile last as they were measured
    dtype: str | None  # None: the dtype that the command of the trace uses
    algorithms: tuple[str, ...]  # words that choose them, with the word for operations that none names
    overheads: Stack  # the times that the software adds to messages and requests
    given: tuple[str, ...] = ()  # the words that the user gave

    @classmethod
    def of(cls, topology: object, device: DeviceLike | None, dtype: str | None, algorithm: Words, stack: str) -> "TraceTiming":
        """Return the timing that arguments give.

        Raises:
            InputError: a topology is unknown, or the stack has a word that only a generated step can have.
        """
        added = overheads_of(stack)
        built = tuple(topologies_of(topology))
        return cls(built, device, dtype, algorithm_words(algorithm, added), added, several(algorithm))

    @classmethod
    def of_replay(
        cls, topology: object, device: DeviceLike | None, dtype: str | None, algorithm: Words, stack: str
    ) -> "TraceTiming":
        """Return the timing of a recorded run; the word `recorded` stands for the run's own algorithms."""
        given = several(algorithm)
        timing = cls.of(topology, device, dtype, tuple(word for word in given if word != RECORDED), stack)
        return replace(timing, algorithms=timing.given) if RECORDED in given else timing

    def build(self, dtype: str) -> tuple[list[Topology], Device]:
        """Return the topologies and the device, each with the times that the stack adds to messages and requests.

        Raises:
            InputError: the device or the dtype is unknown.
        """
        built = [costed_topology(self.overheads, each) for each in self.machines]
        return built, costed_device(self.overheads, device_of(usual_device(self.device), dtype))

    def for_trace(self, recorded: Trace) -> "TraceTiming":
        """Return the timing of a trace; the computations of a profile keep their measured times unless a device is given.

        A device that is given times those of which the profile tells the work.

        Raises:
            InputError: a device is given for a profile that tells the work of no kernel.
        """
        reading = reading_of(recorded)
        if reading is None or not any(len(events.lasts_s) for events in recorded.events):
            return self
        if self.device is None:
            return replace(self, device=measured_device(" and ".join(reading.devices) or "cpu"))
        if not any(any(events.dtype[row] for row in np.flatnonzero(events.kind == Kind.COMPUTE)) for events in recorded.events):
            told = "left out for a profile that tells no shapes of kernels"
            name = str(getattr(self.device, "name", self.device))
            raise must_be("replay", "--device", told, name, "profile a GPU with record_shapes=True")
        return replace(self, device=replace(device_of(self.device, self.dtype or usual_dtype(recorded)), keeps_unknown=True))

    def time_with_faults(self, recorded: Trace, faults: Sequence[str], *, clock: bool = False) -> list[FaultyJob]:
        """Return the steps of a trace on each topology while parts fail; a trace of one step is repeated.

        Args:
            recorded: The trace.
            faults: The faults as `read_faults` returns them.
            clock: Whether a fault may be at a time instead of a step.

        Raises:
            InputError: the device, an algorithm or a fault is unknown.
        """
        stack, dtype = self.overheads, self.dtype or usual_dtype(recorded)
        found = self.for_trace(recorded).build(dtype)[1]
        steps, ranks = count_steps(recorded), recorded.n_ranks
        steps = steps if steps > 1 else job_steps(faults)
        known = [faults_of(faults, each, ranks, steps, clock=clock) for each in self.machines]

        def chosen(topology: Topology) -> Choice:
            return choice_for(recorded, self.algorithms, topology, dtype)

        if at_times(faults):
            on = [TraceLayout(recorded, chosen(costed_topology(stack, each)), each, found, dtype) for each in self.machines]
            told = [run_through_timed_faults(each, stack, own) for each, own in zip(on, known, strict=True)]
            for each in told:
                if each.stopped is None:  # a fault after the end of the job is refused
                    check_before_end(given_faults(faults), sum(step.time_s for step in each.steps))
        else:
            timed, pairs = times_of_trace(recorded, chosen, found, dtype, stack), zip(self.machines, known, strict=True)
            told = [time_faulty_job(*each, ranks, steps, timed, found.name) for each in pairs]
        how = timed_dtypes_text(dtype, products_of(recorded, found, dtype), messages_of(recorded, dtype))
        return [replace(each, timed=how) for each in told]


@dataclass(frozen=True, slots=True)
class JobConditions:
    """The faults during a job, and the clock (pace) by which it runs.

    Raises:
        InputError: a fault is none; or `pace_compute` or `pace_events` has an unknown value.
    """

    faults: tuple[str, ...]  # as `read_faults` returns them
    factor: float | None = None  # seconds of this host for a second of virtual time; None: not by the clock of this host
    compute: str | None = None  # whether computations take the device's time: on or off; None: on
    events: str | None = None  # whether events of a script are recorded in virtual time: on or off; None: on

    @classmethod
    def of(
        cls, fault: Words, pace: float | None = None, pace_compute: str | None = None, pace_events: str | None = None
    ) -> "JobConditions":
        """Return the conditions that arguments give."""
        return cls(read_faults(several(fault)), pace, pace_compute, pace_events)

    def __post_init__(self) -> None:
        for flag, value in (("--pace-compute", self.compute), ("--pace-events", self.events)):
            if value is not None and value not in _SWITCH:
                raise must_be("run", flag, " or ".join(_SWITCH), value)

    def known_faults(
        self, machines: Sequence[Topology], ranks: int, steps: int
    ) -> tuple[tuple[Fault, ...], tuple[RankLoss, ...]]:
        """Return the faults, and the ranks that they end, on the first machine.

        They are checked against the job and every machine. Where the run is paced, a fault may be at a time.

        Args:
            machines: The topologies.
            ranks: The number of ranks.
            steps: The number of steps.

        Raises:
            InputError: as `faults_of`.
        """
        if not self.faults:
            return (), ()
        found = [faults_of(self.faults, each, ranks, steps, clock=self.factor is not None) for each in machines]
        return found[0], losses(machines[0], found[0], ranks, steps)

    def pace(self, machine: Topology, device: Device, dtype: str, stack: Stack, faults: Sequence[Fault] = ()) -> Pace | None:
        """Return the paced fabric of a job; None if no pace was given.

        Args:
            machine: The whole machine.
            device: The device that gives the times of computations.
            dtype: The dtype as which float32 is timed.
            stack: The times that the software adds to messages.
            faults: The faults that ranks meet.

        Raises:
            InputError: the pace is not above 0.
        """
        if self.factor is None:
            return None
        tempo = Tempo(self.factor, device, dtype, _SWITCH[self.compute or "on"], _SWITCH[self.events or "on"])
        return Pace(tempo, machine, tuple(faults), partial(costed_topology, stack))


def pacing_of(pace: Pace | None) -> PaceFigures | None:
    """Return the figures of how this host kept up with a paced run; None if it was not paced."""
    return None if pace is None else pace.figures()


def paced_jobs(jobs: Sequence[FaultyJob], pace: Pace | None) -> FaultyJobs:
    """Return jobs as an answer; the first has the figures of how this host kept up."""
    return FaultyJobs((replace(jobs[0], paced=pacing_of(pace)), *jobs[1:]))


def save_trace(layout: TraceLayout, target: TraceTarget | None) -> None:
    """Write a trace to a file, or call a function with it.

    Args:
        layout: The trace, with what times it.
        target: The file or the function; None: neither.
    """
    if isinstance(target, TraceOutput):
        target.through(target.path, partial(write_trace, layout))
    elif callable(target):
        target(layout.trace)
    elif target is not None:
        write_trace(layout, output_path(target))
