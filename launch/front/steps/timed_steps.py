"""Answers that are training steps: on each topology, one after another while parts fail, and at the values of a sweep."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from emu.cluster.pace.timeliness import PaceFigures
from emu.study.live.faulty_job import FaultyJob
from emu.study.training.step.step import Step, TimedTrace, with_means
from emu.units import format_time
from launch.front.result import PICTURES, Result, late
from launch.show.lanes import few_lanes, lanes
from launch.show.perfetto import write_perfetto
from launch.show.progress import with_progress
from launch.show.text.step_report import step_report
from launch.show.text.waste_table import job_report

if TYPE_CHECKING:  # they take long to load
    from matplotlib.figure import Figure

    from launch.show.html.page import Page

S = TypeVar("S", bound=Step)


def steps_on_each(made: Iterable[tuple[S, TimedTrace]], label: str, count: int) -> tuple[tuple[S, ...], tuple[TimedTrace, ...]]:
    """Return the step on each topology, and its tasks; each is told as soon as it is known.

    Several steps have the means of their parts, by which their tables compare them.

    Args:
        made: The steps with their tasks, each computed when it is needed.
        label: The label of the progress.
        count: The number of topologies.
    """
    several = count > 1
    every = ((with_means(step, timed) if several else step, timed) for step, timed in made)
    rows, steps = zip(*with_progress(every, label, count, _told, (lambda of: of[0]) if several else None), strict=True)
    return rows, steps


def with_pacing(made: Iterable[tuple[S, TimedTrace]], paced: PaceFigures | None) -> Iterator[tuple[S, TimedTrace]]:
    """Yield the step on each topology, the first with how well this host kept up with it; None: the run was not paced."""
    for step, timed in made:
        yield replace(step, paced=paced), timed
        paced = None


def _told(made: tuple[Step, TimedTrace]) -> str:
    """Return what a person wants to know of a step at once."""
    step = made[0]
    return f"{step.topology}: {format_time(step.step_time_s)}" + ("" if step.mfu is None else f", MFU {step.mfu:.3f}")


@dataclass(frozen=True, repr=False, eq=False)
class TimedSteps(Result[S]):
    """A training step on each topology, with the times of its tasks."""

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

    def text(self) -> str:
        """Return the report of each step."""
        return "\n\n".join(map(step_report, self.rows))

    def page(self) -> "Page":
        """Return the report of all steps, with charts."""
        made: Page = late("html.step_page:step_page")(self.title, self.subtitle, list(zip(self.rows, self.timed, strict=True)))
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
class FaultyJobs(Result[FaultyJob]):
    """The steps of a job on each topology, one after another, while parts fail."""

    FILES = (*Result.FILES, *PICTURES)

    @property
    def failure(self) -> str | None:
        """The job that stopped; None: none did."""
        return next((f"{job.topology}: the job stopped in {job.stopped}" for job in self.rows if job.stopped is not None), None)

    def text(self) -> str:
        """Return the report of each job."""
        return "\n\n".join(map(job_report, self.rows))

    def figure(self) -> "Figure":
        """Return the time of each step, with a mark at each fault."""
        drawn: Figure = late("chart.job_chart:picture")(self.rows)
        return drawn
