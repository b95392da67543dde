"""The choice of the stretches of a composed step that are modelled with all ranks: where requests share links or end unevenly.

P places, Q distinct requests, M calls, X events, L links, T stretches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, Bool, column
from emu.fabric.graph import Timeline
from emu.study.isolated_request import IsolatedRequest
from emu.study.training.composed.bodies import crossing_codes, undominated
from emu.study.training.composed.composed_graph import ComposedGraph
from emu.study.training.composed.requests_by_place import PlaceRequests
from emu.trace.report.spans import Spans, covered, joined

NEGLIGIBLE = 1e-3  # share of a step: what costs less time in all is left as it is
MOST_TASKS = 2**20  # limit of the messages and computations of all stretches
_GAPS = (1.0, 1 / 16, 1 / 64, 0.0)  # of a step, between stretches that are taken as one: the first that leaves few enough tasks
_SETS = 256  # of links that are told apart, those that most requests cross


@dataclass(frozen=True, eq=False, slots=True)
class StretchChoice:
    """The choice of the stretches of a composed step in which every rank has its own messages.

    A stretch is chosen where several requests that share links overlap.
    """

    requests_by_place: PlaceRequests
    crossed: Bool  # [sets of links, Q] which requests cross each set; no set's requests are all in another's
    apart_fs: I64  # [Q] ticks from when the first rank leaves a request until the last does
    messages: I64  # [Q] the messages of all groups
    rank_count: I64  # [X] the number of ranks of the event's place

    @staticmethod
    def of(asked: PlaceRequests, isolated: Sequence[IsolatedRequest], n_links: int) -> "StretchChoice":
        """Return the choice for the requests of a step, given the time of each by itself (`isolated` [Q])."""
        events = [len(each) for each in asked.trace.events]
        count = np.repeat(np.bincount(asked.representatives.place_of_rank, minlength=len(events)), events)
        apart, messages = (np.array(c, dtype=np.int64) for c in ([o.apart for o in isolated], [o.messages for o in isolated]))
        return StretchChoice(asked, _crossed(isolated, n_links), apart, messages, column(count, np.int64))

    def shared(self, composed: ComposedGraph, timeline: Timeline) -> Spans:
        """Return the spans in which bodies share links with other requests."""
        began, ended = composed.spans(timeline)
        body = self._bodies(composed.by_rank)
        runs = [_runs(began, ended, body, np.flatnonzero(of[self.requests_by_place.request_of_call])) for of in self.crossed]
        return covered(_NONE, *runs)

    def uneven(self, composed: ComposedGraph, timeline: Timeline, but_fs: float = 0.0) -> Spans:
        """Return the spans of the bodies that ranks leave at the most different times.

        The others cost `but_fs` ticks at most in all.
        """
        apart = np.where(self._bodies(composed.by_rank), self.apart_fs[self.requests_by_place.request_of_call], 0)
        order = np.argsort(apart, kind="stable")
        most = order[np.cumsum(apart[order]) > but_fs]
        began, ended = composed.spans(timeline)
        return Spans(began[most], ended[most])

    def unsure_fs(self, composed: ComposedGraph, timeline: Timeline) -> int:
        """Return the ticks in which bodies share links, plus the ticks by which ranks leave bodies at different times."""
        bodies = self._bodies(composed.by_rank)
        return self.shared(composed, timeline).ticks + int(self.apart_fs[self.requests_by_place.request_of_call[bodies]].sum())

    def costly_spans(self, composed: ComposedGraph, timeline: Timeline) -> Spans:
        """Return the time spans, shared or uneven, that cost enough time to be modelled with all ranks."""
        least_fs = NEGLIGIBLE * int(timeline.end_fs.max(initial=0))
        shared, uneven = self.shared(composed, timeline), self.uneven(composed, timeline, least_fs)
        parts = [uneven] + [shared] * (shared.ticks > least_fs)
        return joined(*parts)

    def refined(self, composed: ComposedGraph, timeline: Timeline, most_tasks: int = MOST_TASKS) -> Bool | None:
        """Return [X] whether each rank should have its own task of an event in the next, more exact graph.

        The result is None if the graph needs no more detail, or if there is no room for more tasks.

        Args:
            composed: The step so far.
            timeline: The times of its tasks.
            most_tasks: The largest number of messages and computations of single ranks.
        """
        step_fs, began = int(timeline.end_fs.max(initial=0)), composed.began(timeline)
        spans = self.costly_spans(composed, timeline)
        for gap in _GAPS:
            by_rank = composed.by_rank | (covered(spans, gap=round(gap * step_fs)).holding(began) >= 0)
            if self._tasks(by_rank) <= most_tasks:
                return by_rank if (by_rank & ~composed.by_rank).any() else None
        return self._stretches_that_fit(composed, covered(spans), began, most_tasks)

    def _stretches_that_fit(self, composed: ComposedGraph, spans: Spans, began: I64, most_tasks: int) -> Bool | None:
        """Return [X] whether each rank has its own task of an event, for the stretches that fit into `most_tasks`.

        The result is None if no stretch fits. The stretches with the longest time for their number of tasks are chosen first.

        Args:
            composed: The step so far.
            spans: The spans of the stretches.
            began: [X] the tick at which each event began.
            most_tasks: The largest number of messages and computations of single ranks.
        """
        of = np.where(composed.by_rank, -1, spans.holding(began))
        tasks = [self._tasks(of == i) for i in range(len(spans.start))]
        order = np.argsort((spans.start - spans.end) / np.maximum(tasks, 1), kind="stable")
        room = most_tasks - self._tasks(composed.by_rank)
        taken = order[np.cumsum(np.array(tasks)[order]) <= room]
        return composed.by_rank | np.isin(of, taken) if len(taken) else None

    def _bodies(self, by_rank: Bool) -> Bool:
        """Return [M] whether all messages of a call are modelled as one body; `by_rank` is [X] as in `ComposedGraph`."""
        body = np.ones(len(self.requests_by_place.request_of_call), np.bool_)
        body[self.requests_by_place.call[by_rank[self.requests_by_place.event]]] = False
        return body

    def _tasks(self, by_rank: Bool) -> int:
        """Return an estimate of the number of tasks if the events of `by_rank` have one task for each rank."""
        met = self.requests_by_place.request_of_call[~self._bodies(by_rank)]
        return int(self.messages[met].sum() + self.rank_count[by_rank].sum())


_NONE = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def _runs(began: I64, ended: I64, body: Bool, own: I64) -> Spans:
    """Return the time spans in which several of the given calls overlap, at least one of them as a body.

    Args:
        began: [M] the tick at which each call begins.
        ended: [M] the tick at which each call ends.
        body: [M] whether one body stands for the call.
        own: The numbers of the calls that are looked at.
    """
    own = own[ended[own] > began[own]]
    own = own[np.argsort(began[own], kind="stable")]
    if not len(own):
        return _NONE
    until = np.maximum.accumulate(ended[own])
    first = np.flatnonzero(np.append(True, began[own][1:] >= until[:-1]))
    size = np.diff(np.append(first, len(own)))
    several = (size > 1) & np.logical_or.reduceat(body[own], first)
    return Spans(began[own][first[several]], until[(first + size - 1)[several]])


def _crossed(isolated: Sequence[IsolatedRequest], n_links: int) -> Bool:
    """Return [sets of links, Q] which requests cross each set of links; dominated sets are left out."""
    _, first = np.unique(crossing_codes((each.link for each in isolated), n_links), return_index=True)
    crossed = np.zeros((len(first), len(isolated)), np.bool_)
    at = np.full(n_links, -1)
    at[first] = np.arange(len(first))
    for number, each in enumerate(isolated):
        known = at[each.link]
        crossed[known[known >= 0], number] = True
    most = crossed[np.argsort(-crossed.sum(axis=1), kind="stable")[:_SETS]]
    most = most[most.any(axis=1)]
    return most[undominated(most)]
