"""Where the time of a step went, told another way: an instant after another, from what each event of a rank waits for."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np

from emu.trace.order import order_of
from emu.trace.trace import Kind


def walked(trace, laid, timeline, step):
    """Of a step: the rank that ended last, ticks, those of each use of an instant, of all requests, and of waits by rank.

    An instant is computation, else of the axis of a request that the rank stands still for and to which all have come, else
    idle. Of several requests it is that which the rank stood still for first, then that to which all came first. What is idle
    is charged in that way to a request to which not all have come: to the rank that comes last.
    """
    ranks = range(trace.n_ranks)
    last = [_ends_of_steps(trace, laid, timeline, rank) for rank in ranks]
    low, high = max([0, *(t for ends in last for s, t in ends.items() if 0 < s < step)]), max(ends[step] for ends in last)
    rank = [ends[step] for ends in last].index(high)
    events, first = trace.events_of(rank), int(laid.first_event[rank])
    began, ended = _moments(laid, timeline, rank)
    rows = [row for row in range(len(events)) if laid.ends[first + row] >= 0]
    computed = [(began[row], ended[row]) for row in rows if events.kind[row] == Kind.COMPUTE]
    asked = {
        row: _coming(trace, laid, timeline, rank, row) for row in rows if events.kind[row] not in (Kind.COMPUTE, Kind.MARK)
    }
    found = {"compute": 0, "idle": 0, **{trace.groups[trace.group_of[rank][events.group[row]]].axis: 0 for row in asked}}
    waited, stood, order = Counter(), {}, _order(events)
    moments = {low, high, *(t for row in rows for t in (began[row], ended[row])), *(t[1] for t in asked.values())}
    for begin, end in pairwise(sorted(t for t in moments if low <= t <= high)):
        needed = _needed(events, order, began, ended, begin)
        for row, (came, met, _) in asked.items():
            for what, low_of, high_of in (("talks", met, ended[row]), ("waits", came, met)):
                if row in needed and low_of <= begin and end <= high_of:
                    stood.setdefault((what, row), begin)
        if any(a <= begin and end <= b for a, b in computed):
            found["compute"] += end - begin
            continue
        talks = [(stood["talks", r], m, r) for r, (_, m, _) in asked.items() if r in needed and m <= begin and end <= ended[r]]
        waits = [(stood["waits", r], c, r) for r, (c, m, _) in asked.items() if r in needed and c <= begin and end <= m]
        if talks:
            found[trace.groups[trace.group_of[rank][events.group[min(talks)[2]]]].axis] += end - begin
        else:
            found["idle"] += end - begin
            waited[asked[min(waits)[2]][2]] += end - begin
    total = sum(max(0, min(high, ended[row]) - max(low, met)) for row, (_, met, _) in asked.items())
    return rank, high - low, found, total, dict(waited)


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
    """Of each event the requests that it waits for itself."""
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
