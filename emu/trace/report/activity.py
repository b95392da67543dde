"""The activity of a rank at every moment; and while it waits for another rank, the activity of that one.

If it waits for a rank of another stage of its pipeline, that is bubble. If it waits for a rank of its own stage, the other's
activity counts: if the other computes, it straggles; if it communicates, both stand still for that; if it waits itself, the
one that it waits for counts.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.trace.report.request_times import RequestTimes, Spans, covered, joined

_MOST = 64  # ranks, each of which waits for the next, that are looked through


class Activity(NamedTuple):
    """The activity of one rank. At each moment the first of these counts: it computes, communicates, waits."""

    busy: Spans  # it computes, one span after another
    talks: Spans  # it stands still for requests to which all members have come, one span after another
    axes: np.ndarray  # of these requests
    waits: Spans  # it stands still for requests to which a member has not come, one span after another
    ranks: I64  # the member that comes last

    @staticmethod
    def of(busy: Spans, asked: RequestTimes) -> "Activity":
        """Return the activity of a rank; of several requests, the one for which it stands still first counts."""
        talks = Spans(np.maximum(asked.met, asked.since), asked.left)
        waits = Spans(np.maximum(asked.came, asked.since), asked.met)
        (talks, of_talk), (waits, of_wait) = _in_turn(talks, asked.met), _in_turn(waits, asked.came)
        return Activity(busy, talks, asked.axes[of_talk], waits, asked.last[of_wait])


def _in_turn(spans: Spans, came: I64) -> tuple[Spans, I64]:
    """Return spans without their overlap with earlier ones, and their numbers; the spans that are left come by start."""
    order = np.lexsort((came, spans.start))
    start, end = spans.take(order)
    until = np.maximum.accumulate(np.concatenate(([0], end)))[:-1]
    start = np.maximum(start, until)
    left = np.flatnonzero(start < end)
    return Spans(start[left], end[left]), order[left]


@dataclass(frozen=True, slots=True)
class TimeDivision:
    """The division of a rank's time, in ticks."""

    compute_fs: int
    exposed_fs: Counter[str]  # by axis
    bubble_fs: int
    straggling_fs: Counter[int]  # by the rank that is waited for


def time_division(doing_of: Callable[[int], Activity], stages: Mapping[int, int], rank: int, window: Spans) -> TimeDivision:
    """Return the division of a rank's time within a window.

    Args:
        doing_of: A function that returns the activity of any rank.
        stages: The stage of each rank of a pipeline.
        rank: The rank.
        window: One span.
    """
    cut = _cut(doing_of(rank), window)
    compute, bubble = cut.of(cut.busy).ticks, 0
    exposed, straggling = _by_name(cut, cut.talk, doing_of(rank).axes), Counter[int]()
    held: dict[int, Spans] = _waiting(doing_of(rank), cut)
    for _ in range(_MOST):
        bubble += sum(spans.ticks for other, spans in held.items() if stages.get(other) != stages.get(rank))
        found: list[dict[int, Spans]] = []
        for other, spans in held.items():
            if stages.get(other) == stages.get(rank):
                cut = _cut(doing_of(other), spans)
                exposed += _by_name(cut, cut.talk, doing_of(other).axes)
                straggling[other] += cut.of((cut.talk < 0) & (cut.wait < 0)).ticks
                found.append(_waiting(doing_of(other), cut))
        held = {
            other: covered(*(of[other] for of in found if other in of)) for other in sorted({o for of in found for o in of})
        }
    straggling.update({other: spans.ticks for other, spans in held.items()})
    return TimeDivision(compute, exposed, bubble, +straggling)


class _Cut(NamedTuple):
    """Spans cut at the moments when a rank begins another activity."""

    pieces: Spans
    busy: Bool
    talk: I64  # which request it stands still for that all members have come to; -1: it computes, or there is none
    wait: I64  # the same of one to which a member has not come

    def of(self, which: np.ndarray) -> Spans:
        """Return some of the pieces."""
        return self.pieces.take(which)


def _cut(doing: Activity, spans: Spans) -> _Cut:
    """Return spans cut at the moments when a rank begins another activity, with the activity of each piece."""
    moments = np.unique(np.concatenate(joined(spans, doing.busy, doing.talks, doing.waits)))
    start, end = moments[:-1], moments[1:]
    inside = _holding(spans, start) >= 0
    start, end = start[inside], end[inside]
    busy, talk, wait = (_holding(of, start) for of in (doing.busy, doing.talks, doing.waits))
    talk = np.where(busy >= 0, -1, talk)
    return _Cut(Spans(start, end), busy >= 0, talk, np.where((busy >= 0) | (talk >= 0), -1, wait))


def _holding(spans: Spans, moments: I64) -> I64:
    """Return the number of the span, one after another, that each moment lies in; -1: it lies in none."""
    at = np.searchsorted(spans.start, moments, side="right") - 1
    return np.where((at >= 0) & (np.append(spans.end, 0)[at] > moments), at, -1)


def _by_name(cut: _Cut, which: I64, names: np.ndarray) -> Counter[str]:
    """Return the ticks of each name; `which` is the number of each piece's name, -1: it has none."""
    known = np.flatnonzero(which >= 0)
    own, ticks = names[which[known]], (cut.pieces.end - cut.pieces.start)[known]
    return Counter({str(name): int(ticks[own == name].sum()) for name in np.unique(own)})


def _waiting(doing: Activity, cut: _Cut) -> dict[int, Spans]:
    """Return, by rank, the spans in which the rank waits for it."""
    known = np.flatnonzero(cut.wait >= 0)
    ranks = doing.ranks[cut.wait[known]]
    return {rank: cut.of(known[ranks == rank]) for rank in np.unique(ranks).tolist()}
