"""One setting of jobs side by side: how all of them run, and the figures of that run.

J jobs, L links.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.study.jobs.jobs_request import COMPOSED, JobsSetting
from emu.study.jobs.jobs_row import JobBeside, JobsRow
from emu.study.jobs.setting_notes import notes_of
from emu.study.jobs.side_by_side import SideBySide, planes_of_jobs
from emu.study.jobs.step_graphs.contention import JobTimes, LinkUse, SharedLink, busy_by_job, times_of_jobs
from emu.study.jobs.step_graphs.shared_graph import RepeatedJob
from emu.study.jobs.step_graphs.steady import jain_index
from emu.study.training.composed.bodies import Sharing
from emu.units import seconds

SLOWED = 1e-3  # a job that is slowed down by less is not slowed down


class RunSideBySide(NamedTuple):
    """Jobs side by side as a row of figures, with the times of each job from which a timeline is drawn."""

    row: JobsRow
    times: tuple[JobTimes, ...]


def run_in_setting(beside: SideBySide, setting: JobsSetting) -> RunSideBySide:
    """Return all jobs side by side in a setting; errors as in `run_steady`."""
    began, every = time.perf_counter(), beside.repeated(setting)
    pairs = beside.pairs(every)
    run = beside.run(range(len(every)), every, (1 + (pairs - 1).sum(axis=1)).tolist())
    use = LinkUse(run, beside.links_of_tasks())
    row = SettingFigures(beside, setting, tuple(every), pairs, use).row
    times = times_of_jobs(use, [job.name for job in row.jobs])
    return RunSideBySide(replace(row, wall_s=time.perf_counter() - began), times)


@dataclass(frozen=True, eq=False)
class SettingFigures:
    """The figures of a run in a setting.

    Args:
        beside: The jobs on their NPUs.
        setting: The setting.
        every: Each job as it is repeated.
        pairs: [J, J] how far each job is slowed down by each other one alone.
        use: The use of links in the run of all jobs.
    """

    beside: SideBySide
    setting: JobsSetting
    every: tuple[RepeatedJob, ...]
    pairs: F64
    use: LinkUse

    @cached_property
    def most_s(self) -> list[float]:
        """The longest step of each job that is estimated, where bodies stand for requests that meet; else an empty list.

        Each body needs all links that it crosses all the time.
        """
        if not self.beside.is_coarse:
            return []
        tasks = self.beside.composed(Sharing.ALL).tasks
        greedy = [job._replace(tasks=own) for job, own in zip(self.every, tasks, strict=True)]
        run = self.beside.run(range(len(greedy)), greedy, np.ones(len(greedy)).tolist())
        return [run.step_s(i) * self.beside.factor(i) for i in range(len(greedy))]

    @property
    def row(self) -> JobsRow:
        """The figures of the setting."""
        setting, run, jobs = self.setting, self.use.run, self.jobs
        busy = busy_by_job(self.beside.link_s, [job.step_s for job in jobs]).sum(axis=0)
        slower, most = np.array([job.slow_down for job in jobs]), int(busy.argmax()) if busy.any() else None
        return JobsRow(
            topology=self.beside.topology.name,
            placement=setting.placement,
            shift=setting.shift,
            share=setting.share,
            routes=setting.routes,
            engine=COMPOSED if self.beside.is_composed else run.timeline.how,
            jobs=jobs,
            slow_down=float(slower.mean()),
            worst=float(slower.max()),
            computing=computing_share(jobs),
            fairness=jain_index(1 / slower),
            pairs=tuple(tuple(row) for row in self.pairs.tolist()),
            busiest_link="none" if most is None else " to ".join(self._ends(most)),
            busiest=float(busy.max(initial=0.0)),
            tasks=run.shared.graph.n_tasks,
            wall_s=0.0,
            assumptions=notes_of(self.beside, setting),
        )

    @property
    def jobs(self) -> tuple[JobBeside, ...]:
        """The figures of each job."""
        steps_s = [self.use.run.step_s(i) * self.beside.factor(i) for i in range(len(self.every))]
        busy = busy_by_job(self.beside.link_s, steps_s)
        found = [self._job(i, self._links(i, busy)) for i in range(len(self.every))]
        if not self.most_s:
            return tuple(found)
        between = [(min(job.alone_s, job.step_s), max(job.step_s, most)) for job, most in zip(found, self.most_s, strict=True)]
        return tuple(replace(job, between_s=each) for job, each in zip(found, between, strict=True))

    def _job(self, i: int, links: tuple[SharedLink, ...]) -> JobBeside:
        """Return the figures of one job."""
        run, pairs, repeated = self.use.run, self.pairs[i], self.every[i]
        placed, times = self.beside.placed[i], run.step_times_fs(i)
        by, factor = int(pairs.argmax()), self.beside.factor(i)
        return JobBeside(
            name=placed.job.name,
            work=placed.job.work.told,
            ranks=len(placed.npus),
            npus=npu_ranges(placed.npus),
            weight=1 if repeated.share.is_strict else repeated.share.weight,
            priority=placed.job.priority,
            planes=",".join(map(str, self.planes[i])),
            begin_s=seconds(repeated.begin_fs),
            compute_s=placed.compute_s,
            alone_s=self.beside.alone_s[i],
            step_s=run.step_s(i) * factor,
            least_s=seconds(times.min()) * factor,
            most_s=seconds(times.max()) * factor,
            steps=len(times),
            slow_down=run.step_s(i) / seconds(self.beside.profiles[i].step_fs),
            waits_for=self.beside.placed[by].job.name if pairs[by] > 1 + SLOWED else None,
            links=links,
        )

    def _links(self, i: int, busy: F64) -> tuple[SharedLink, ...]:
        """Return, for each other job with common links, the link on which both are together longest; the longest first.

        Args:
            i: The number of the job.
            busy: [J, L] the share of the time for which each job keeps each link busy.
        """
        total, found = busy.sum(axis=0), list[SharedLink]()
        known = self.use.links[:0] if self.beside.is_composed else self.use.links  # bodies have other links
        for other in (number for number in range(len(busy)) if number != i):
            common = np.flatnonzero((busy[i] > 0) & (busy[other] > 0))
            if not len(common):
                continue
            timed = np.intersect1d(common, known).tolist()
            together = {link: self.use.together_s(link, i, other) for link in timed}
            most = min(timed or common.tolist(), key=lambda link: (-round(together.get(link, 0.0), 12), -round(total[link], 9)))
            name, ends = self.beside.placed[other].job.name, self._ends(most)
            found.append(SharedLink(name, len(common), most, *ends, together.get(most), float(total[most])))
        return tuple(sorted(found, key=lambda each: -(each.together_s or 0.0)))

    def _ends(self, link: int) -> tuple[str, str]:
        """Return the names of the nodes that a link joins."""
        links = self.beside.topology.links
        return self.beside.topology.node_name(int(links.src[link])), self.beside.topology.node_name(int(links.dst[link]))

    @cached_property
    def planes(self) -> list[tuple[int, ...]]:
        """The planes that each job keeps to; an empty tuple: all."""
        return planes_of_jobs(self.beside.request.jobs, self.beside.topology, self.setting)


def computing_share(jobs: Sequence[JobBeside]) -> float:
    """Return the share of the time for which the NPUs of all jobs compute."""
    return sum(job.ranks * job.compute_s / job.step_s for job in jobs if job.step_s) / sum(job.ranks for job in jobs)


def npu_ranges(npus: I64) -> str:
    """Return NPUs in their order as text, with runs of neighbours as ranges, such as `0-7,16-23`."""
    starts = np.flatnonzero(np.diff(npus, prepend=npus[0] - 2) != 1)
    ends = np.append(starts[1:], len(npus)) - 1
    spans = zip(npus[starts].tolist(), npus[ends].tolist(), strict=True)
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
