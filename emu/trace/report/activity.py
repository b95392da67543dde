"""The activity of a rank at every moment, and the load of links during a step.

While a rank waits for another rank, the other's activity counts. If that rank is of another stage of the pipeline, the time is
bubble. If it is of the same stage and computes, it straggles; if it communicates, both wait for that; if it waits itself, the
rank that it waits for counts. L links of the topology, V tasks.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, Bool, ascending
from emu.fabric.graph import Graph, Timeline
from emu.topology.topology import Topology
from emu.trace.replay.delay import Delay
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.report.request_times import RequestTimes
from emu.trace.report.spans import Spans, covered, joined
from emu.units import seconds


@dataclass(frozen=True, slots=True)
class BusyLink:
    """A link, and the share of a step for which it is busy at full rate."""

    link: int
    src: str
    dst: str
    busy: float


def busiest(shares: F64, topology: Topology, most: int = 3) -> tuple[BusyLink, ...]:
    """Return the links with the largest shares [L], at most `most`; idle links are left out."""
    order = np.lexsort((np.arange(len(shares)), -shares.round(9)))[:most]  # a share is a sum: its last digits are chance
    ends = [(topology.node_name(int(topology.links.src[i])), topology.node_name(int(topology.links.dst[i]))) for i in order]
    return tuple(BusyLink(int(i), *names, float(shares[i])) for i, names in zip(order, ends, strict=True) if shares[i] > 0)


def busy_shares(replayed: ReplayGraph, timeline: Timeline, began_fs: int, ended_fs: int) -> F64:
    """Return [L] the share of a time window for which each link is busy at full rate.

    A message that is under way at the beginning or the end counts by the part of its own time that lies within.
    """
    graph, window = replayed.graph, (began_fs, ended_fs)
    carried = _carried(graph, _shares_in_window(timeline.start_fs, timeline.left_fs, *window))
    firsts: defaultdict[Delay, list[int]] = defaultdict(list)
    for piece, first in zip(replayed.pieces, replayed.firsts.tolist(), strict=True):
        if isinstance(piece, Delay):
            firsts[piece].append(first)
    for delay, at in firsts.items():
        began = timeline.start_fs[np.add.outer(at, np.arange(len(delay.length_fs)))] - delay.head_fs
        carried += _carried(delay.piece.graph, _shares_of_delay(delay, began, *window))
    lasts_s = seconds(ended_fs - began_fs)
    shares = carried / graph.capacity_Bps / lasts_s if lasts_s else np.zeros(graph.n_links)
    return np.asarray(shares[replayed.link])


def _carried(graph: Graph, part: F64) -> F64:
    """Return the bytes that each link of a graph carries if only a share of each task's bytes counts.

    Args:
        graph: The graph.
        part: [V] the share of each task, from 0 to 1.
    """
    crossing = (graph.size_bytes * part)[graph.hop_task] * graph.hop_weight
    return np.bincount(graph.hop_link, crossing, graph.n_links).astype(np.float64)


def _shares_in_window(start: I64, left: I64, low: int, high: int) -> F64:
    """Return [V] the share (0 to 1) of each message's duration that lies within a time window.

    Args:
        start: [V] the tick at which each begins.
        left: [V] the tick at which each has left.
        low: The first tick of the window.
        high: The last tick of the window.
    """
    inside = np.clip(left, low, high) - np.clip(start, low, high)
    return np.asarray(inside / np.maximum(left - start, 1))


def _shares_of_delay(delay: Delay, began: I64, low: int, high: int) -> F64:
    """Return [V] the share of each task of a delay that lies within a time window, summed over all starts of the delay."""
    ended, alone, number = began + delay.length_fs, delay.alone, delay.message_number
    whole = (began >= low) & (ended <= high)
    some = (began < high) & (ended > low) & ~whole
    parts = whole.sum(axis=0)[number].astype(np.float64)
    for i in np.flatnonzero(some.any(axis=1)).tolist():
        shift = began[i][number]
        parts += np.where(some[i][number], _shares_in_window(alone.start_fs + shift, alone.left_fs + shift, low, high), 0.0)
    return np.asarray(parts)


_MOST = 64  # limit of the ranks of a chain in which each waits for the next


class Activity(NamedTuple):
    """The activity of one rank over time: computation first, else communication, else waiting.

    `talks` are spans in which it waits for a request that all members have entered, `waits` those in which a member has not
    come.
    """

    busy: Spans  # in which it computes, one span after another
    talks: Spans  # in which it stands still for requests to which all members have come
    axes: np.ndarray  # the axis of the request of each span in `talks`
    waits: Spans  # in which it stands still for requests to which a member has not come
    ranks: I64  # the member that comes last, for each span in `waits`

    @staticmethod
    def of(busy: Spans, asked: RequestTimes) -> "Activity":
        """Return the activity of a rank; of several requests, the one that it waits for first counts."""
        talks = Spans(np.maximum(asked.met, asked.since), asked.left)
        waits = Spans(np.maximum(asked.came, asked.since), asked.met)
        (talks, of_talk), (waits, of_wait) = _in_turn(talks, asked.met), _in_turn(waits, asked.came)
        return Activity(busy, talks, asked.axes[of_talk], waits, asked.last[of_wait])


def _in_turn(spans: Spans, came: I64) -> tuple[Spans, I64]:
    """Return spans without their overlaps with earlier ones, sorted by start, and the number of each.

    Args:
        spans: The spans. Of two that overlap, the one that starts first keeps the common time.
        came: A tick for each span: of two that start at once, the one with the lesser tick keeps it.
    """
    order = np.lexsort((came, spans.start))
    start, end = spans.take(order)
    until = np.maximum.accumulate(np.concatenate(([0], end)))[:-1]
    start = np.maximum(start, until)
    left = np.flatnonzero(start < end)
    return Spans(start[left], end[left]), order[left]


def time_division(
    doing_of: Callable[[int], Activity], stages: Mapping[int, int], rank: int, window: Spans
) -> tuple[int, Counter[str], int, Counter[int]]:
    """Return how a rank spends a window, in ticks.

    While it waits for a rank of its own stage, what that rank does counts: if it communicates, this is communication; if it
    waits, the rank that it waits for is looked at in the same way; all else is a wait that is charged to it.

    Args:
        doing_of: A function that returns the activity of any rank.
        stages: The stage of each rank of a pipeline.
        rank: The rank.
        window: One span.

    Returns:
        The ticks that it computes, that it communicates by axis, that it waits for other stages, and that it waits for its own
        stage, by the rank to which the wait is charged.
    """
    cut = _cut_by_activity(doing_of(rank), window)
    compute, bubble = cut.of(cut.busy).ticks, 0
    exposed, straggling = _ticks_by_name(cut, cut.talk, doing_of(rank).axes), Counter[int]()
    held: dict[int, Spans] = _waiting(doing_of(rank), cut)
    for _ in range(_MOST):
        bubble += sum(spans.ticks for other, spans in held.items() if stages.get(other) != stages.get(rank))
        found: list[dict[int, Spans]] = []
        for other, spans in held.items():
            if stages.get(other) == stages.get(rank):
                cut = _cut_by_activity(doing_of(other), spans)
                exposed += _ticks_by_name(cut, cut.talk, doing_of(other).axes)
                straggling[other] += cut.of((cut.talk < 0) & (cut.wait < 0)).ticks
                found.append(_waiting(doing_of(other), cut))
        held = {
            other: covered(*(of[other] for of in found if other in of)) for other in sorted({o for of in found for o in of})
        }
    straggling.update({other: spans.ticks for other, spans in held.items()})
    return compute, exposed, bubble, +straggling


class _Cut(NamedTuple):
    """Spans of time, cut at the moments when a rank begins another activity, with the activity during each."""

    pieces: Spans
    busy: Bool
    talk: I64  # the index in `talks` of the span that each piece is in; -1: it computes, or there is none
    wait: I64  # the index in `waits` likewise

    def of(self, which: np.ndarray) -> Spans:
        """Return the spans with the indices `which`."""
        return self.pieces.take(which)


def _cut_by_activity(doing: Activity, spans: Spans) -> _Cut:
    """Return spans cut at the moments when a rank begins another activity, with the activity during each."""
    moments = ascending(np.concatenate(joined(spans, doing.busy, doing.talks, doing.waits)))
    start, end = moments[:-1], moments[1:]
    inside = spans.holding(start) >= 0
    start, end = start[inside], end[inside]
    busy, talk, wait = (of.holding(start) for of in (doing.busy, doing.talks, doing.waits))
    talk = np.where(busy >= 0, -1, talk)
    return _Cut(Spans(start, end), busy >= 0, talk, np.where((busy >= 0) | (talk >= 0), -1, wait))


def _ticks_by_name(cut: _Cut, which: I64, names: np.ndarray) -> Counter[str]:
    """Return the ticks of each name, summed over all spans that have it.

    Args:
        cut: The pieces.
        which: The index in `names` for each piece; -1: it has none.
        names: The names, such as axes.
    """
    known = np.flatnonzero(which >= 0)
    own, ticks = names[which[known]], (cut.pieces.end - cut.pieces.start)[known]
    return Counter({str(name): int(ticks[own == name].sum()) for name in np.unique(own)})


def _waiting(doing: Activity, cut: _Cut) -> dict[int, Spans]:
    """Return the spans in which a rank waits for another, by that other rank."""
    known = np.flatnonzero(cut.wait >= 0)
    ranks = doing.ranks[cut.wait[known]]
    return {rank: cut.of(known[ranks == rank]) for rank in np.unique(ranks).tolist()}
