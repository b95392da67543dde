"""Lanes of jobs side by side: the steps of each job, and the spans in which it sends."""

from collections.abc import Iterator

from emu.study.jobs.contention import JobTimes
from launch.show.lanes import Lane


def job_lanes(times: tuple[JobTimes, ...]) -> Iterator[Lane]:
    """Yield two lanes for each job: its steps, and the spans in which it has a message on the fabric."""
    for each in times:
        steps, sending = each.steps, each.sending
        names = tuple(f"step {number}" for number in range(1, len(steps.begin_fs) + 1))
        yield Lane(each.name, "steps", names, steps.begin_fs, steps.end_fs)
        yield Lane(each.name, "sends", ("sends",) * len(sending.start), sending.start, sending.end)
