"""Lanes of jobs side by side: the steps of each job, and the spans in which it sends."""

from collections.abc import Iterator

from emu.study.jobs.step_graphs.contention import JobTimes
from launch.show.lanes import Lane


def job_lanes(times: tuple[JobTimes, ...]) -> Iterator[Lane]:
    """Yield three lanes for each job: its steps, when it has a message on the fabric, and when beside another job."""
    for each in times:
        steps = each.steps
        names = tuple(f"step {number}" for number in range(1, len(steps.begin_fs) + 1))
        yield Lane(each.name, "steps", names, steps.begin_fs, steps.end_fs)
        for stream, spans in (("sends", each.sending), ("sends beside another job", each.meeting)):
            yield Lane(each.name, stream, ("sends",) * len(spans.start), spans.start, spans.end)
