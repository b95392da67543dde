"""A job of a queue, its record, and one of its runs: how far it is after a time, and what an interruption leaves of its work.

Times are whole microseconds, so that all sums are exact.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from emu.arrays import I64

US_PER_S = 10**6
DAY_US = 86400 * US_PER_S
WAITING, RUNNING, ENDED, REFUSED = "waiting", "running", "ended", "refused"


@dataclass(frozen=True, slots=True)
class JobModel:
    """The training that a job does, where its work is steps of a model rather than seconds."""

    model: str
    plan: str
    global_batch: int
    seq: int
    steps: int


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job as it is submitted: when, how many NPUs it asks for, how much work it is, and its priority (larger goes first)."""

    number: int
    submit_us: int
    npus: int
    work_us: int  # time of its work without faults and checkpoints; with a model, on its places on an empty machine
    priority: int = 0
    where: str = ""  # the file and the line that it is read from
    trained: JobModel | None = None  # None: its work is seconds


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


@dataclass(frozen=True, slots=True)
class RunCosts:
    """The times by which a run is longer than its work: checkpoints, and the start from one."""

    checkpoint_us: int
    every_us: int  # work from a checkpoint to the next; 0: none is saved
    restart_us: int


class RunProgress(NamedTuple):
    """The time of a run so far by what it went to; `kept` and `since` are work, of which `since` is not saved yet."""

    waited_us: int  # until the jobs that were there before had saved their state
    started_us: int
    saved_us: int
    kept_us: int
    since_us: int


@dataclass(eq=False, slots=True)
class GangRun:
    """One run of a job on its places, from its start until it ends, fails or is moved.

    `slowness` is the time of the work on these places over its time on the places of an idle machine.
    """

    job: QueuedJob
    places: I64
    start_us: int
    work_us: int  # that is left of the job, as `QueuedJob.work_us`
    costs: RunCosts
    wait_us: int = 0  # from `start_us` until the NPUs are empty: other jobs save their state on them
    again: bool = False  # whether it goes on from a checkpoint, and takes the time of a restart
    slowness: Fraction = field(default=Fraction(1))

    prefix_us: int = field(init=False)  # time before it works
    wall_us: int = field(init=False)  # time of the work that is left, on these places
    saves: int = field(init=False)  # checkpoints; none is saved where the work ends
    end_us: int = field(init=False)  # time at which it ends if nothing interrupts it

    def __post_init__(self) -> None:
        costs, every_us = self.costs, self.costs.every_us
        self.prefix_us = self.wait_us + (costs.restart_us if self.again else 0)
        self.wall_us = -(-self.work_us * self.slowness.numerator // self.slowness.denominator)
        self.saves = (self.wall_us - 1) // every_us if every_us and self.wall_us else 0
        self.end_us = self.start_us + self.prefix_us + self.wall_us + self.saves * costs.checkpoint_us

    def progress(self, now_us: int) -> RunProgress:
        """Return what the time until now went to."""
        spent = min(now_us, self.end_us) - self.start_us
        waited, started = min(spent, self.wait_us), min(spent, self.prefix_us) - min(spent, self.wait_us)
        left = spent - waited - started
        cycle = self.costs.every_us + self.costs.checkpoint_us
        done = min(left // cycle, self.saves) if self.saves else 0
        left -= done * cycle
        within = min(left, self.costs.every_us) if done < self.saves else left
        return RunProgress(waited, started, done * self.costs.checkpoint_us + left - within, done * self.costs.every_us, within)

    def left_us(self, done_us: int) -> int:
        """Return the work that is left of the job after so much time of work here."""
        return max(0, self.work_us - done_us * self.slowness.denominator // self.slowness.numerator)
