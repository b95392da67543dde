"""The links that several jobs use, for how long they use them at one time, and when each job sends.

L links, V tasks, J jobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.memo import kept_by
from emu.study.jobs.step_graphs.placed_job import StepTasks
from emu.study.jobs.step_graphs.shared_graph import StepTimes
from emu.study.jobs.step_graphs.steady import SteadyRun
from emu.trace.report.spans import Spans, common, covered
from emu.units import seconds

NO_SPANS = Spans(np.empty(0, np.int64), np.empty(0, np.int64))
_MOST_LINKS = 256  # shared links that are looked at, those that are busiest


@dataclass(frozen=True, slots=True)
class SharedLink:
    """The links that a job shares with another job, and of these the one on which both send at one time for longest."""

    beside: str  # the other job
    links: int  # that both use
    link: int  # the one on which they are together for longest
    src: str
    dst: str
    together_s: float | None  # seconds a step; None: bodies stand for messages, so that it is not known
    busy: float  # share of the time for which all jobs together keep the link busy at its full rate


def share_links(one: StepTasks, other: StepTasks) -> bool:
    """Return whether messages of two jobs cross a common link."""
    return bool(np.isin(one.graph.hop_link, other.graph.hop_link).any())


def busy_by_job(link_s: Sequence[F64], step_s: Sequence[float]) -> F64:
    """Return [J, L] the share of the time for which each job keeps each link busy at its full rate.

    Args:
        link_s: Of each job [L] the seconds for which one step keeps each link busy.
        step_s: The seconds of a step of each job.
    """
    return np.array([own / took if took else own * 0 for own, took in zip(link_s, step_s, strict=True)])


def links_in_common(busy: F64) -> I64:
    """Return the links that two jobs or more use, the busiest first; `busy` is the result of `busy_by_job`."""
    common = np.flatnonzero((busy > 0).sum(axis=0) > 1)
    return common[np.argsort(-busy[:, common].sum(axis=0).round(9), kind="stable")][:_MOST_LINKS]


@dataclass(frozen=True, eq=False)
class LinkUse:
    """The spans in which each job has messages on links, of a run with all messages.

    Args:
        run: The run.
        links: The links that are looked at.
    """

    run: SteadyRun
    links: I64

    def together_s(self, link: int, one: int, other: int) -> float:
        """Return the seconds of a steady step of job `one` for which it and another job have messages on a link."""
        steady, steps = self.run.steady[one], self.run.steps[one]
        window = int(steps.begin_fs[steady][0]), int(steps.end_fs[steady][-1])
        mine, theirs = (self.spans(link, job).within(*window) for job in (one, other))
        return seconds(mine.ticks + theirs.ticks - covered(mine, theirs).ticks) / int(steady.sum())

    @cached_property
    def _hops(self) -> tuple[I64, I64]:
        """The key of each hop over these links, ascending, and the task of each; a key counts links, then jobs."""
        graph = self.run.shared.graph
        link = graph.hop_link.astype(np.int64) % self.run.shared.n_links
        wanted = np.flatnonzero(np.isin(link, self.links))
        task = graph.hop_task[wanted]
        key = link[wanted] * len(self.run.steps) + graph.owner[task]
        order = np.argsort(key, kind="stable")
        return key[order], task[order]

    @kept_by(lambda _, link, job: (link, job))
    def spans(self, link: int, job: int) -> Spans:
        """Return the spans in which a job has messages on a link."""
        keys, tasks = self._hops
        low, high = np.searchsorted(keys, np.array((0, 1)) + link * len(self.run.steps) + job)
        own, timeline = tasks[low:high], self.run.timeline
        return covered(Spans(timeline.start_fs[own], timeline.left_fs[own]))


class JobTimes(NamedTuple):
    """The times of one job in a run: its steps, and the spans in which it sends."""

    name: str
    steps: StepTimes
    sending: Spans  # in which it has a message on the fabric
    meeting: Spans  # ... on a link on which another job has one at the same time


def times_of_jobs(use: LinkUse, names: Sequence[str]) -> tuple[JobTimes, ...]:
    """Return the times of each job in a run; `use` has the links that several jobs share."""
    run, found = use.run, list[JobTimes]()
    for job, (name, steps) in enumerate(zip(names, run.steps, strict=True)):
        found.append(JobTimes(name, steps, _sending(run, job), _meeting(use, job)))
    return tuple(found)


def _sending(run: SteadyRun, job: int) -> Spans:
    """Return the spans in which a job has a message on the fabric."""
    graph, timeline = run.shared.graph, run.timeline
    own = np.flatnonzero((graph.owner == job) & (np.diff(graph.hop_start) > 0))
    return covered(Spans(timeline.start_fs[own], timeline.left_fs[own]))


def _meeting(use: LinkUse, job: int) -> Spans:
    """Return the spans in which a job has a message on a link on which another job has one, too."""
    others = [other for other in range(len(use.run.steps)) if other != job]
    found = [NO_SPANS]
    for link in use.links.tolist():
        mine = use.spans(link, job)
        if len(mine.start):
            found.append(common(mine, covered(NO_SPANS, *(use.spans(link, other) for other in others))))
    return covered(*found)
