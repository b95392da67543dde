"""The stretches of a step in which bodies are too coarse: requests share links, or ranks leave a request at different times.

There each rank has its own tasks and sends message by message. Once ranks have drifted apart, groups of one request do not use
shared links at one time either, and no body shows that. So everything from the first stretch to the last is laid, if there
is room. With less room some stretches are laid alone, and their ranks wait for one another at both ends.
Q distinct requests, M calls, X events, L links, T stretches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, Bool, column
from emu.fabric.graph import Timeline
from emu.study.training.composed.bodies import crossing_codes, undominated
from emu.study.training.composed.composed_graph import ComposedGraph
from emu.study.training.composed.isolated_request import IsolatedRequest
from emu.study.training.composed.place_requests import PlaceRequests
from emu.trace.report.request_times import Spans, covered, joined

WORTH = 1e-3  # of a step: what costs less time in all is left as it is
MOST_TASKS = 2**20  # messages and computations of all stretches
_GAPS = (1.0, 1 / 16, 1 / 64, 0.0)  # of a step, between stretches that are taken as one: the first that leaves few enough tasks
_SETS = 256  # of links that are told apart, those that most requests cross


@dataclass(frozen=True, eq=False, slots=True)
class Stretches:
    """The facts about the requests of a step that depend on no moment: their links, messages and ranks."""

    asked: PlaceRequests
    crossed: Bool  # [sets of links, Q] which requests cross each; no set's are among those of another
    apart_fs: I64  # [Q] from when the first rank leaves a request until the last does
    messages: I64  # [Q]
    rank_count: I64  # [X] of the event's place

    @staticmethod
    def of(asked: PlaceRequests, once: Sequence[IsolatedRequest], n_links: int) -> "Stretches":
        """Return the facts of requests, given the time of each alone."""
        events = [len(each) for each in asked.trace.events]
        count = np.repeat(np.bincount(asked.representatives.place_of_rank, minlength=len(events)), events)
        apart, messages = (np.array(c, dtype=np.int64) for c in ([o.apart for o in once], [o.messages for o in once]))
        return Stretches(asked, _crossed(once, n_links), apart, messages, column(count, np.int64))

    def shared(self, composed: ComposedGraph, timeline: Timeline) -> Spans:
        """Return the spans in which bodies share links with other requests."""
        began, ended = composed.spans(timeline)
        body = self._bodies(composed.each)
        runs = [_runs(began, ended, body, np.flatnonzero(of[self.asked.request_of_call])) for of in self.crossed]
        return covered(_NONE, *runs)

    def uneven(self, composed: ComposedGraph, timeline: Timeline, but_fs: float = 0.0) -> Spans:
        """Return the spans of the bodies that ranks leave at the most different times; all others cost at most `but_fs`."""
        apart = np.where(self._bodies(composed.each), self.apart_fs[self.asked.request_of_call], 0)
        order = np.argsort(apart, kind="stable")
        most = order[np.cumsum(apart[order]) > but_fs]
        began, ended = composed.spans(timeline)
        return Spans(began[most], ended[most])

    def unsure_fs(self, composed: ComposedGraph, timeline: Timeline) -> int:
        """Return the ticks in which bodies share links, plus the ticks by which ranks leave bodies at different times."""
        bodies = self._bodies(composed.each)
        return self.shared(composed, timeline).ticks + int(self.apart_fs[self.asked.request_of_call[bodies]].sum())

    def worth(self, composed: ComposedGraph, timeline: Timeline) -> Spans:
        """Return the spans of both kinds that cost enough time to be laid with all ranks."""
        worth_fs = WORTH * int(timeline.end_fs.max(initial=0))
        shared, uneven = self.shared(composed, timeline), self.uneven(composed, timeline, worth_fs)
        parts = [uneven] + [shared] * (shared.ticks > worth_fs)
        return joined(*parts)

    def closer(self, composed: ComposedGraph, timeline: Timeline, most_tasks: int = MOST_TASKS) -> Bool | None:
        """Return [X] the events in which each rank should have its own task; None: no more than now, or no room for more.

        Args:
            composed: The step so far.
            timeline: The times of its tasks.
            most_tasks: The largest number of messages and computations of single ranks.
        """
        step_fs, began = int(timeline.end_fs.max(initial=0)), composed.began(timeline)
        spans = self.worth(composed, timeline)
        for gap in _GAPS:
            each = composed.each | (covered(spans, gap=round(gap * step_fs)).holding(began) >= 0)
            if self._tasks(each) <= most_tasks:
                return each if (each & ~composed.each).any() else None
        return self._some(composed, covered(spans), began, most_tasks)

    def _some(self, composed: ComposedGraph, spans: Spans, began: I64, most_tasks: int) -> Bool | None:
        """Return [E] which events have a task for each rank: those of stretches that fit into `most_tasks`; None if none fits.

        Stretches that last longest for their number of tasks are chosen first.
        """
        of = np.where(composed.each, -1, spans.holding(began))
        tasks = [self._tasks(of == i) for i in range(len(spans.start))]
        order = np.argsort((spans.start - spans.end) / np.maximum(tasks, 1), kind="stable")
        room = most_tasks - self._tasks(composed.each)
        taken = order[np.cumsum(np.array(tasks)[order]) <= room]
        return composed.each | np.isin(of, taken) if len(taken) else None

    def _bodies(self, each: Bool) -> Bool:
        """Return [M] whether one body stands for all messages of a call."""
        body = np.ones(len(self.asked.request_of_call), np.bool_)
        body[self.asked.call[each[self.asked.event]]] = False
        return body

    def _tasks(self, each: Bool) -> int:
        """Return about how many tasks events with one task a rank have."""
        met = self.asked.request_of_call[~self._bodies(each)]
        return int(self.messages[met].sum() + self.rank_count[each].sum())


_NONE = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def _runs(began: I64, ended: I64, body: Bool, own: I64) -> Spans:
    """Return the spans in which several of the calls `own` are under way, and one of them is a body; columns are [M]."""
    own = own[ended[own] > began[own]]
    own = own[np.argsort(began[own], kind="stable")]
    if not len(own):
        return _NONE
    until = np.maximum.accumulate(ended[own])
    first = np.flatnonzero(np.append(True, began[own][1:] >= until[:-1]))
    size = np.diff(np.append(first, len(own)))
    several = (size > 1) & np.logical_or.reduceat(body[own], first)
    return Spans(began[own][first[several]], until[(first + size - 1)[several]])


def _crossed(once: Sequence[IsolatedRequest], n_links: int) -> Bool:
    """Return [sets of links, Q] which requests cross each set; a set is left out if another has all its requests."""
    _, first = np.unique(crossing_codes((each.link for each in once), n_links), return_index=True)
    crossed = np.zeros((len(first), len(once)), np.bool_)
    at = np.full(n_links, -1)
    at[first] = np.arange(len(first))
    for number, each in enumerate(once):
        known = at[each.link]
        crossed[known[known >= 0], number] = True
    most = crossed[np.argsort(-crossed.sum(axis=1), kind="stable")[:_SETS]]
    most = most[most.any(axis=1)]
    return most[undominated(most)]
