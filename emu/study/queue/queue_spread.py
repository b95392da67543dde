"""The figures of a queue over several seeds: the mean of each, and how far the mean of all seeds may be from it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import sqrt

import numpy as np
from scipy.special import stdtrit

from emu.study.queue.npu_time import REASONS
from emu.study.queue.queue_row import QueueRow

SURE = 0.95  # probability with which an interval has the mean of all seeds


@dataclass(frozen=True, slots=True)
class SeedMean:
    """The mean of a figure over seeds; the confidence interval reaches from `half` below it to `half` above it."""

    mean: float
    half: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpread:
    """A queue on one machine by one policy over several seeds. Fields of means are those of `QueueRow`."""

    topology: str
    copies: int
    npus: int
    policy: str
    group: int  # NPUs of a group
    days: float
    seeds: int
    ended: SeedMean
    running: SeedMean
    waiting: SeedMean
    refused: SeedMean
    utilisation: SeedMean
    goodput: SeedMean
    fragmentation: SeedMean
    largest_mean: SeedMean
    wait_mean_s: SeedMean
    wait_median_s: SeedMean
    wait_p95_s: SeedMean
    fault_stops: SeedMean
    preemptions: SeedMean
    moves: SeedMean
    backfilled: SeedMean
    npu_hours: dict[str, SeedMean]
    by_seed: tuple[QueueRow, ...]


_MEANS = tuple(field.name for field in fields(QueueSpread) if field.type is SeedMean)


def seed_mean(values: Sequence[float]) -> SeedMean:
    """Return the mean of the values of two seeds or more, with its interval by Student's t."""
    n = len(values)
    half = float(stdtrit(n - 1, (1 + SURE) / 2)) * float(np.std(values, ddof=1)) / sqrt(n)
    return SeedMean(float(np.mean(values)), half)


def queue_spread(rows: Sequence[QueueRow]) -> QueueSpread:
    """Return the figures over seeds, given the rows of one machine and policy, one for each seed."""
    first = rows[0]
    return QueueSpread(
        topology=first.topology,
        copies=first.copies,
        npus=first.npus,
        policy=first.policy,
        group=first.group,
        days=first.days,
        seeds=len(rows),
        npu_hours={reason: seed_mean([row.npu_hours[reason] for row in rows]) for reason in REASONS},
        by_seed=tuple(rows),
        **{name: seed_mean([getattr(row, name) for row in rows]) for name in _MEANS},
    )
