"""The figures of a queue: waiting by size, utilisation, goodput, fragmentation, and lost NPU hours by reason; of several seeds.

Of several seeds they are the mean of each, and how far the mean of all seeds may be from it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import sqrt
from typing import Any

import numpy as np
from scipy.special import stdtrit

from emu.arrays import F64
from emu.study.queue.gang_machine import AGAIN, REASONS, SAVING, STARTING, UNUSED, WORK
from emu.study.queue.simulation import QueueHistory, QueueMoment
from emu.study.queue.workload.queued_job import ENDED, REFUSED, RUNNING, US_PER_S, WAITING, JobRecord

_SIZES = (1, 8, 64, 512)  # the largest NPUs of each class of jobs; the last class has all larger ones
_HOUR_US = 3600 * US_PER_S
P95 = 0.95
SURE = 0.95  # probability with which an interval has the mean of all seeds


@dataclass(frozen=True, slots=True)
class WaitOfSize:
    """The waiting of jobs of a range of sizes: from submission to the first start, or to the end of the account."""

    least_npus: int
    most_npus: int
    jobs: int
    never_started: int
    mean_s: float
    median_s: float
    p95_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedOn:
    """The machine of a queue, its policy, and the time of the account."""

    topology: str
    copies: int
    npus: int
    policy: str
    group: int  # NPUs of a group
    days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow(QueuedOn):
    """A queue of jobs on one machine by one policy. Shares are of the NPU time of the machine."""

    jobs: int
    ended: int
    running: int
    waiting: int
    refused: int
    utilisation: float  # share that jobs hold, whatever they do with it
    goodput: float  # share that is work which lasts
    fragmentation: float  # share of the free NPUs that the largest job which could start leaves, in the mean over moments
    largest_mean: float  # NPUs of the largest job of whole groups that could start, in the mean over moments
    largest_median: int  # that could start at half of the moments
    wait_mean_s: float
    wait_median_s: float
    wait_p95_s: float
    waits: tuple[WaitOfSize, ...]
    npu_hours: dict[str, float]  # by what they went to; they sum to those of the machine
    fault_stops: int  # runs that a fault ended
    preemptions: int
    moves: int
    backfilled: int
    refusals: dict[str, int]  # jobs by the reason
    moments: tuple[QueueMoment, ...]


def queue_row(on: QueuedOn, history: QueueHistory) -> QueueRow:
    """Return the figures of what happened to a queue."""
    asked = [record for record in history.records if record.state != REFUSED]
    return QueueRow(
        **asdict(on),
        jobs=len(history.records),
        **_states(history.records),
        **_use(history),
        **_wait(asked, history.until_us),
        waits=_waits(asked, history.until_us),
        fault_stops=sum(record.faults for record in asked),
        preemptions=sum(record.preemptions for record in asked),
        moves=sum(record.moves for record in asked),
        backfilled=sum(record.backfilled for record in asked),
        refusals=dict(Counter(record.reason for record in history.records if record.state == REFUSED)),
        moments=history.moments,
    )


def _states(records: Sequence[JobRecord]) -> dict[str, Any]:
    """Return the number of jobs in each state."""
    states = Counter(record.state for record in records)
    return {name: states[state] for name, state in _STATES.items()}


def _use(history: QueueHistory) -> dict[str, Any]:
    """Return the shares and the hours of the machine's time, and the largest job that could start."""
    spent, whole_us = history.spent.spent_us, history.npus * history.until_us
    largest = np.array([moment.largest for moment in history.moments])
    return {
        "utilisation": sum(spent[reason] for reason in _HELD) / whole_us,
        "goodput": spent[WORK] / whole_us,
        "fragmentation": _fragmentation(history.moments),
        "largest_mean": float(largest.mean()),
        "largest_median": int(np.sort(largest)[(len(largest) - 1) // 2]),
        "npu_hours": {reason: spent[reason] / _HOUR_US for reason in REASONS},
    }


def _wait(asked: Sequence[JobRecord], until_us: int) -> dict[str, Any]:
    """Return the figures of the waiting of all jobs."""
    waits = np.array([record.waited_us(until_us) for record in asked]) / US_PER_S
    mean_s = float(waits.mean()) if len(waits) else 0.0
    return {"wait_mean_s": mean_s, "wait_median_s": _quantile(waits, 0.5), "wait_p95_s": _quantile(waits, P95)}


_HELD = (WORK, SAVING, STARTING, AGAIN, UNUSED)
_STATES = {"ended": ENDED, "running": RUNNING, "waiting": WAITING, "refused": REFUSED}


def _quantile(values: F64, quantile: float) -> float:
    """Return the smallest value that so large a share of the values does not exceed; 0 if there is none."""
    return float(np.quantile(values, quantile, method="inverted_cdf")) if len(values) else 0.0


def _fragmentation(moments: Sequence[QueueMoment]) -> float:
    """Return the mean of 1 - largest job / free NPUs over the moments with free NPUs; 0 if there is none."""
    shares = [1 - moment.largest / moment.free for moment in moments if moment.free]
    return float(np.mean(shares)) if shares else 0.0


def _waits(asked: Sequence[JobRecord], until_us: int) -> tuple[WaitOfSize, ...]:
    """Return the waiting of jobs by classes of their sizes; a class without a job is left out."""
    sizes = np.array([record.job.npus for record in asked], dtype=np.int64)
    kind = np.searchsorted(_SIZES, sizes)
    found = []
    for each in np.unique(kind).tolist():
        of = [record for record, its in zip(asked, kind.tolist(), strict=True) if its == each]
        waits = np.array([record.waited_us(until_us) for record in of]) / US_PER_S
        last = _SIZES[each] if each < len(_SIZES) else int(sizes.max())
        never = sum(record.start_us is None for record in of)
        figures = float(waits.mean()), _quantile(waits, 0.5), _quantile(waits, P95)
        found.append(WaitOfSize(_SIZES[each - 1] + 1 if each else 1, last, len(of), never, *figures))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SeedMean:
    """The mean of a figure over seeds; the confidence interval reaches from `half` below it to `half` above it."""

    mean: float
    half: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpread(QueuedOn):
    """A queue on one machine by one policy over several seeds. Fields of means are those of `QueueRow`."""

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
    means: dict[str, Any] = {name: seed_mean([getattr(row, name) for row in rows]) for name in _MEANS}
    on: dict[str, Any] = {field.name: getattr(rows[0], field.name) for field in fields(QueuedOn)}
    return QueueSpread(
        **on,
        seeds=len(rows),
        npu_hours={reason: seed_mean([row.npu_hours[reason] for row in rows]) for reason in REASONS},
        by_seed=tuple(rows),
        **means,
    )
