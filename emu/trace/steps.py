"""The steps of a trace: steps with equal work, the step that represents the run, and waits between events.

A script without steps is one step. A script may end with a checkpoint or train something else too; such steps do not represent
the run. An event waits by its stream, by the queue of its request, and by the trace's own waits. E events of a role.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import lru_cache
from itertools import compress, pairwise
from typing import Any

import numpy as np

from emu.arrays import I16, I64, Bool, digest
from emu.trace.trace import Events, Kind, Trace


def computes(events: Events) -> Bool:
    """Return [E] whether each event is a computation or a mark between computations; these follow the order of their stream."""
    return np.asarray((events.kind == Kind.COMPUTE) | (events.kind == Kind.MARK))


def queues_of(events: Events) -> I64:
    """Return [4, E] tag, peer, kind and group of each event; requests with equal values form one queue.

    The tag and the peer count for messages alone.
    """
    peer, tag = (np.where(events.kind == Kind.COLLECTIVE, 0, c) for c in (events.root, events.tag))
    return np.stack((tag, peer, events.kind, events.group)).astype(np.int64)


def order_of(events: Events) -> tuple[I64, I64]:
    """Return pairs of an event and an earlier event that it waits for, as two arrays.

    A computation waits for the computation before it on its stream. A request waits for the last computation of its stream at
    the time of issue, and for the request before it in its queue. Both wait for the events that the trace names.
    """
    (event, waited), (later, before) = stated_order(events), queue_order(events)
    return np.concatenate((event, later)), np.concatenate((waited, before))


def stated_order(events: Events) -> tuple[I64, I64]:
    """Return pairs of an event and an earlier event: waits by the order of a stream, and waits that the trace names."""
    index = np.arange(len(events))
    last = _last_of_stream(events.stream, computes(events))
    waits = np.repeat(index, np.diff(events.wait_start))
    return np.concatenate((index[last >= 0], waits)), np.concatenate((last[last >= 0], events.wait)).astype(np.int64)


def queue_order(events: Events) -> tuple[I64, I64]:
    """Return pairs of a request and the request before it in its queue."""
    queues = queues_of(events)
    in_turn = np.lexsort((np.arange(len(events)), *queues))
    requests = in_turn[~computes(events)[in_turn]]
    queue = queues[:, requests]
    follows = np.flatnonzero((queue[:, 1:] == queue[:, :-1]).all(axis=0))
    return requests[follows + 1], requests[follows]


def _last_of_stream(stream: I16, computes: Bool) -> I64:
    """Return [E] the last computation before each event on its stream, or -1."""
    last = np.full(len(stream), -1)
    for number in np.unique(stream).tolist():
        own = np.flatnonzero(stream == number)
        last[own] = np.maximum.accumulate(np.append(-1, np.where(computes[own], own, -1)))[:-1]
    return last


_COMPUTED = ("flops", "bytes", "count", "kernel", "batch", "m", "n", "k")
_WHOLE = ("timed", "the whole script")  # in the meta of a trace without steps
_RAGGED = ("wait_start", "wait", "split_start", "split")
_WORK = ("kind", "stream", *_COMPUTED, "group", "root", "tag")  # the columns to compare, beside names, dtypes and split sizes


def count_steps(trace: Trace) -> int:
    """Return the number of steps of a trace; set-up is no step."""
    return max((int(events.step.max(initial=0)) for events in trace.events), default=0)


@lru_cache(maxsize=1)  # the choices of one step are reported one after another
def equal_steps(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of the steps, in groups of steps whose computations and requests are equal on every rank.

    The first group stands for the run. If any steps communicate, it is one of theirs: the largest group, and of equally large
    ones the last. The other groups follow in the order in which they begin.
    """
    steps = count_steps(trace)
    work = [list(_work(events, steps)) for events in trace.events]
    found: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for step in range(1, steps + 1):
        found[tuple(of_role[step - 1] for of_role in work)].append(step)
    talks = {s for e in trace.events for s in np.unique(e.step[~computes(e)]).tolist()}
    groups = [tuple(group) for group in found.values()]
    about = max(groups, key=lambda group: (group[0] in talks, len(group), group[-1]), default=())
    return (about, *(group for group in groups if group != about))


def _work(events: Events, steps: int) -> Iterator[str]:
    """Yield, for each step, a digest of the work of a role in it."""
    rows = np.flatnonzero(events.kind != Kind.MARK)
    rows = rows[np.argsort(events.step[rows], kind="stable")]
    words = [_word_numbers(events.name), _word_numbers(events.dtype)]
    columns = [*words, *(getattr(events, name) for name in _WORK), np.diff(events.split_start)]
    ends = np.searchsorted(events.step[rows], np.arange(1, steps + 2))
    for low, high in pairwise(ends):
        own = rows[low:high]
        splits = [events.split[events.split_start[r] : events.split_start[r + 1]] for r in own[columns[-1][own] > 0]]
        yield digest((*(c[own] for c in columns), *splits))


def _word_numbers(words: tuple[str, ...]) -> I64:
    """Return a number for each text; equal texts have equal numbers."""
    number = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return np.array([number[word] for word in words], dtype=np.int64)


def one_step(trace: Trace, step: int) -> Trace:
    """Return a trace of one step alone, without waits for events of earlier steps."""
    return replace(trace, events=tuple(_selected_events(events, events.step == step) for events in trace.events))


def _selected_events(events: Events, wanted: Bool) -> Events:
    """Return the events of a role that `wanted` selects, all as step 1."""
    place = np.where(wanted, np.cumsum(wanted) - 1, -1)
    columns = {f.name: getattr(events, f.name) for f in fields(Events) if f.name not in _RAGGED}
    if not len(events.lasts_s):  # nothing was measured
        del columns["lasts_s"]
    taken: dict[str, Any] = {n: tuple(compress(c, wanted)) if isinstance(c, tuple) else c[wanted] for n, c in columns.items()}
    waits, of_wait = place[events.wait], np.repeat(place, np.diff(events.wait_start))
    known, of_split = (waits >= 0) & (of_wait >= 0), np.repeat(place, np.diff(events.split_start))
    starts = [_row_starts(of[of >= 0], int(wanted.sum())) for of in (of_wait[known], of_split)]
    taken |= {"step": np.ones_like(taken["step"]), "wait": waits[known].astype(events.wait.dtype), "wait_start": starts[0]}
    return Events(**taken, split_start=starts[1], split=events.split[of_split >= 0])


def _row_starts(of: I64, rows: int) -> I64:
    """Return [rows + 1] where the entries of each row begin if all entries are sorted by row; the last value is their number.

    Args:
        of: The row of each entry.
        rows: The number of rows.
    """
    return np.concatenate(([0], np.cumsum(np.bincount(of, minlength=rows)))).astype(np.int64)


def with_steps(trace: Trace) -> Trace:
    """Return the trace; if it has no finished step, all its events become one step, and the meta notes that."""
    if has_steps(trace):
        return trace
    events = tuple(replace(e, step=np.ones_like(e.step)) for e in trace.events)
    return replace(trace, events=events, meta=(*trace.meta, _WHOLE))


def has_steps(trace: Trace) -> bool:
    """Return whether the trace has at least one step that can be timed."""
    return count_steps(trace) > 0


def is_whole_script(trace: Trace) -> bool:
    """Return whether the trace has one step only, which is the whole script rather than a training step."""
    return _WHOLE in trace.meta
