"""The record of a job in a queue: its state, and what happened to it."""

from dataclasses import dataclass, field

from emu.study.queue.queued_job import QueuedJob

WAITING, RUNNING, ENDED, REFUSED = "waiting", "running", "ended", "refused"


@dataclass(eq=False, slots=True)
class JobRecord:
    """The history of a job: its state, the work that is left, when it ran, and how often it was stopped."""

    job: QueuedJob
    state: str = WAITING
    left_us: int = field(init=False)  # work that is left, as `QueuedJob.work_us`
    start_us: int | None = None  # of its first run; None: it has not started
    end_us: int | None = None  # None: it has not ended
    faults: int = 0  # times that a fault has stopped it
    preemptions: int = 0  # times that it has made room for a job of higher priority
    moves: int = 0  # times that it has moved to other places
    backfilled: bool = False  # whether it began before a job ahead of it in the queue
    saved: bool = False  # whether it goes on from a checkpoint when it runs again
    reason: str = ""  # why it was refused

    def __post_init__(self) -> None:
        self.left_us = self.job.work_us

    def waited_us(self, now_us: int) -> int:
        """Return the time from its submission to its first start; to `now_us` if it has not started."""
        return (now_us if self.start_us is None else self.start_us) - self.job.submit_us
