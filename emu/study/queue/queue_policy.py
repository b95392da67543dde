"""The order in which jobs of a queue start, and what a scheduler may do to start one earlier."""

from dataclasses import dataclass

from emu.registry import unknown
from emu.study.queue.workload.queued_job import JobRecord


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """A policy of a queue. Priorities come first in each; without further rights the first job that has no room blocks all."""

    name: str
    told: str  # a sentence for reports
    by_work: bool = False  # whether jobs of less work go first, rather than those submitted first
    skips: bool = False  # whether later jobs may start where the first has no room, however long it then waits
    backfills: bool = False  # whether later jobs may start where that does not delay the first
    preempts: bool = False  # whether a job may stop jobs of lower priority
    migrates: bool = False  # whether jobs may move to join free places

    def key(self, record: JobRecord) -> tuple[int, ...]:
        """Return the key by which waiting jobs are sorted."""
        job = record.job
        return (-job.priority, record.left_us if self.by_work else 0, job.submit_us, job.number)


_ALL = (
    QueuePolicy("fifo", "fifo: jobs start in the order of priority and submission; the first that has no room blocks all"),
    QueuePolicy(
        "backfill",
        "backfill: the first job that has no room gets a reservation, and later jobs start only if they do not delay it (EASY, "
        "Lifka 1995); run times are known exactly",
        backfills=True,
    ),
    QueuePolicy(
        "shortest",
        "shortest: jobs with the least time of work left go first, and those without room are skipped, so that large ones may "
        "wait for long",
        by_work=True,
        skips=True,
    ),
    QueuePolicy(
        "preempt",
        "preempt: as backfill; a job without room also stops jobs of lower priority, which save a checkpoint and wait again",
        backfills=True,
        preempts=True,
    ),
    QueuePolicy(
        "defragment",
        "defragment: as backfill; where enough places are free, but not where a job needs them, smaller jobs save a checkpoint "
        "and move",
        backfills=True,
        migrates=True,
    ),
)
POLICIES = {policy.name: policy for policy in _ALL}


def find_policy(name: str) -> QueuePolicy:
    """Return a policy by its name.

    Raises:
        InputError: No policy has that name.
    """
    if name not in POLICIES:
        raise unknown("policy of a queue", str(name), POLICIES)
    return POLICIES[name]
