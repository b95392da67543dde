"""A step's time told another way: an instant after another, from what each event of a rank waits for."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np

from emu.trace.steps import order_of
from emu.trace.trace import Kind


def walked(trace, laid, timeline, step, stages=None, rank=None):
    """Walk a step on a rank, or on the one that ended last.

    Return the rank, ticks of the step, of each use of an instant, of all requests, of waits by rank.

    An instant is computation, else of the axis of a request that the rank stands still for and to which all have come, else
    it is spent on waiting for the rank that comes last to one: a rank of another stage is None; one of its own stage is what
    that does in the instant, or waits for. Of several requests it is that which the rank stood still for first, then that to
    which all, or it, came first.
    """
    stages, ranks = stages or {}, range(trace.n_ranks)
    last = [_ends_of_steps(trace, laid, timeline, rank) for rank in ranks]
    low, top = max([0, *(t for ends in last for s, t in ends.items() if 0 < s < step)]), max(ends[step] for ends in last)
    rank, high = [ends[step] for ends in last].index(top) if rank is None else rank, max(low, top)
    moments = sorted({low, high, *(t for r in ranks for of in _moments(laid, timeline, r) for t in of if low < t < high)})
    walks = {}

    def does(other, instant):
        if other not in walks:
            walks[other] = list(_uses(trace, laid, timeline, other, moments))
        return walks[other][instant]

    own = {trace.groups[trace.group_of[rank][g]].axis for g in trace.events_of(rank).group.tolist() if g >= 0}
    found, waited = {"compute": 0, "idle": 0, **dict.fromkeys(own, 0)}, Counter()
    for instant, (begin, end) in enumerate(pairwise(moments)):
        held_by, what = rank, does(rank, instant)
        while what is not None and what[0] == "waits" and stages.get(what[1]) == stages.get(rank):
            held_by, what = what[1], does(what[1], instant)
        if what is not None and what[0] == "talks":
            found[what[1]] = found.get(what[1], 0) + end - begin
        elif held_by == rank and what == ("computes", None):
            found["compute"] += end - begin
        else:
            found["idle"] += end - begin
            waited[None if what is not None and what[0] == "waits" else held_by] += end - begin
    total = 0
    for row in _asked(trace, laid, rank):
        met, left = _coming(trace, laid, timeline, rank, row)[1], _moments(laid, timeline, rank)[1][row]
        total += max(0, min(high, left) - max(low, met))
    return rank, high - low, found, total, dict(waited)


def _asked(trace, laid, rank):
    events, first = trace.events_of(rank), laid.first_event[rank]
    rows = np.flatnonzero(~np.isin(events.kind, (Kind.COMPUTE, Kind.MARK))).tolist()
    return [row for row in rows if laid.ends[first + row] >= 0]


def _uses(trace, laid, timeline, rank, moments):
    """Yield what a rank does in the instants between moments: computes, talks on an axis, waits for a rank, or None."""
    events, first, order = trace.events_of(rank), int(laid.first_event[rank]), _order(trace.events_of(rank))
    began, ended = _moments(laid, timeline, rank)
    asked = {row: _coming(trace, laid, timeline, rank, row) for row in _asked(trace, laid, rank)}
    computes = np.flatnonzero((events.kind == Kind.COMPUTE) & (laid.ends[first : first + len(events)] >= 0)).tolist()
    stood = {}
    for begin, end in pairwise(sorted({0, *(t for of in (began, ended) for t in of), *moments})):
        if begin >= moments[-1]:
            return
        needed, here = _needed(events, order, began, ended, begin), {"talks": [], "waits": []}
        for row, (came, met, _) in asked.items():
            for what, low, high in (("talks", met, ended[row]), ("waits", came, met)):
                if row in needed and low <= begin and end <= high:
                    here[what].append((stood.setdefault((what, row), begin), met if what == "talks" else came, row))
        if begin < moments[0]:
            continue
        if any(began[r] <= begin and end <= ended[r] for r in computes):
            yield "computes", None
        elif here["talks"]:
            yield "talks", trace.groups[trace.group_of[rank][events.group[min(here["talks"])[2]]]].axis
        else:
            yield ("waits", asked[min(here["waits"])[2]][2]) if here["waits"] else None


def _moments(laid, timeline, rank):
    first, end = laid.first_event[rank : rank + 2]
    tasks = (laid.begins, timeline.start_fs), (laid.ends, timeline.end_fs)
    return [[int(ticks[t]) if t >= 0 else 0 for t in task[first:end].tolist()] for task, ticks in tasks]


def _ends_of_steps(trace, laid, timeline, rank):
    steps = trace.events_of(rank).step.tolist()
    ends = dict.fromkeys(range(1 + max(int(e.step.max(initial=0)) for e in trace.events)), 0)
    for step, end in zip(steps, _moments(laid, timeline, rank)[1], strict=True):
        ends[step] = max(ends[step], end)
    return ends


def _coming(trace, laid, timeline, rank, row):
    """When a rank came to a request, when the last of those came that came before it left, and which rank that is."""
    came = [(_moments(laid, timeline, member)[0][other], member) for member, other in _members(trace, rank, row)]
    own, left = _moments(laid, timeline, rank)[0][row], _moments(laid, timeline, rank)[1][row]
    met = max(t for t, _ in came if t <= left)
    return own, met, min(m for t, m in came if t == met)


def _members(trace, rank, row):
    """The ranks that take part in a request, each with its own row of it: of a message both ends."""
    asked = trace.events_of(rank)
    group = trace.group_of[rank][asked.group[row]]
    ranks = trace.groups[group].ranks
    if asked.kind[row] == Kind.COLLECTIVE:
        return [(member, r) for member in ranks for r in _alike(trace, member, Kind.COLLECTIVE, group, asked.instance[row])]
    sends, peer = asked.kind[row] == Kind.SEND, ranks[asked.root[row]]
    number = _alike(trace, rank, asked.kind[row], group, peer=peer).index(row)
    return [(rank, row), (peer, _alike(trace, peer, Kind.RECV if sends else Kind.SEND, group, peer=rank)[number])]


def _alike(trace, rank, kind, group, instance=None, peer=None):
    events, found = trace.events_of(rank), []
    for row in np.flatnonzero((events.kind == kind) & (events.step > 0)).tolist():
        own = trace.group_of[rank][events.group[row]]
        if own == group and instance in (None, events.instance[row]):
            found += [row] if peer in (None, trace.groups[own].ranks[events.root[row]]) else []
    return found


def _order(events):
    """Return for each event the requests that it waits for itself."""
    asks = ~np.isin(events.kind, (Kind.COMPUTE, Kind.MARK))
    waits = defaultdict(list)
    for event, waited in zip(*(c.tolist() for c in order_of(events)), strict=True):
        waits[event] += [waited] if asks[waited] else []
    return waits


def _needed(events, order, began, ended, at):
    """The requests that the next computation of any stream waits for, by whatever, or those of a step whose last has ended."""
    computes = np.isin(events.kind, (Kind.COMPUTE, Kind.MARK))
    found, ahead = set(), []
    for stream in np.unique(events.stream):
        ahead += [r for r in np.flatnonzero(computes & (events.stream == stream)).tolist() if began[r] >= at and ended[r] > at][
            :1
        ]
    for step in np.unique(events.step):
        if all(ended[r] <= at for r in np.flatnonzero((events.kind == Kind.COMPUTE) & (events.step <= step)).tolist()):
            own = np.flatnonzero(~computes & (events.step <= step)).tolist()
            found.update(own)
            ahead += own
    while ahead:
        more = set(order[ahead.pop()]) - found
        found |= more
        ahead += more
    return found
