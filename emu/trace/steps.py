"""Which steps of a trace do equal work, and which of these is the step that a run is about.

A script may end with a checkpoint, or train something else beside: such steps are not the one that is asked for.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from emu.arrays import I64, digest
from emu.trace.trace import Events, Kind, Trace

_COMPUTED = ("flops", "bytes", "count", "kernel", "batch", "m", "n", "k")
_WORK = ("kind", "stream", *_COMPUTED, "group", "root", "tag")  # beside names, dtypes and split sizes


def count_steps(trace: Trace) -> int:
    """How many a trace has, set-up not counted."""
    return max((int(events.step.max(initial=0)) for events in trace.events), default=0)


def equal_steps(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """The numbers of the steps, those of equal computations and requests on every rank together.

    First comes the step that the run is about: of those that communicate, if any does, the one that is there most often; of
    several, the one that comes last. The others follow in the order in which they begin.
    """
    steps = count_steps(trace)
    work = [list(_work(events, steps)) for events in trace.events]
    found: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for step in range(1, steps + 1):
        found[tuple(of_role[step - 1] for of_role in work)].append(step)
    talks = {s for e in trace.events for s in np.unique(e.step[_asks(e)]).tolist()}
    groups = [tuple(group) for group in found.values()]
    about = max(groups, key=lambda group: (group[0] in talks, len(group), group[-1]), default=())
    return (about, *(group for group in groups if group != about))


def _asks(events: Events) -> np.ndarray:
    return np.asarray((events.kind != Kind.COMPUTE) & (events.kind != Kind.MARK))


def _work(events: Events, steps: int) -> Iterator[str]:
    """A digest of what a role does in each step."""
    rows = np.flatnonzero(events.kind != Kind.MARK)
    rows = rows[np.argsort(events.step[rows], kind="stable")]
    words = [_numbered(events.name), _numbered(events.dtype)]
    columns = [*words, *(getattr(events, name) for name in _WORK), np.diff(events.split_start)]
    ends = np.searchsorted(events.step[rows], np.arange(1, steps + 2))
    for low, high in pairwise(ends):
        own = rows[low:high]
        splits = [events.split[events.split_start[r] : events.split_start[r + 1]] for r in own[columns[-1][own] > 0]]
        yield digest((*(c[own] for c in columns), *splits))


def _numbered(words: tuple[str, ...]) -> I64:
    """A number for each word, equal for equal ones."""
    number = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return np.array([number[word] for word in words], dtype=np.int64)
