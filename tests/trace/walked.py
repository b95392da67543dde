"""Where the time of a step went, told another way: an instant after another, from the tasks and links themselves."""

from itertools import pairwise

import numpy as np

from emu.trace.trace import Kind


def walked(trace, laid, timeline, topology, step):
    """Of a step: the rank that ended last, ticks, those of each use of an instant, those of all requests.

    An instant is computation, else of the axis of the request that began first, else idle. Rank r is on node r.
    """
    first, ranks = laid.first_event, range(trace.n_ranks)
    events = [trace.events_of(r) for r in ranks]
    ends = [
        np.where(laid.ends[first[r] : first[r + 1]] < 0, 0, timeline.end_fs[laid.ends[first[r] : first[r + 1]]]) for r in ranks
    ]
    steps = range(1, 1 + max(int(e.step.max(initial=0)) for e in events))
    last = {s: [int(ends[r][events[r].step == s].max(initial=0)) for r in ranks] for s in steps}
    low, high = max([0, *(t for s in range(1, step) for t in last[s])]), max(last[step])
    rank = last[step].index(high)
    computed, asked = [], []
    for row in np.flatnonzero(laid.ends[first[rank] : first[rank + 1]] >= 0).tolist():
        number, kind, end = first[rank] + row, events[rank].kind[row], int(ends[rank][row])
        if kind == Kind.COMPUTE:
            computed.append((int(timeline.start_fs[laid.begins[number]]), end))
        elif kind != Kind.MARK:
            axis = trace.groups[trace.group_of[rank][events[rank].group[row]]].axis
            asked.append((_began(laid, timeline, topology, int(laid.instance[number]), rank, end), end, axis))
    found = {"compute": 0, "idle": 0, **{axis: 0 for *_, axis in asked}}
    moments = sorted({low, high, *(t for s in (*computed, *asked) for t in s[:2] if low < t < high)})
    computed, asked = ([s for s in spans if s[1] > low and s[0] < high] for spans in (computed, asked))
    for begin, end in pairwise(moments):
        here = sorted((s[0], i, s[2]) for i, s in enumerate(asked) if s[0] <= begin and end <= s[1])
        busy = any(a <= begin and end <= b for a, b in computed)
        found["compute" if busy else here[0][2] if here else "idle"] += end - begin
    return rank, high - low, found, sum(min(high, b) - max(low, a) for a, b, _ in asked)


def _began(laid, timeline, topology, number, rank, none):
    """When the first message of an instance that leaves or reaches the rank started."""
    piece, first = laid.instances[number]
    starts, links = piece.graph.hop_start.tolist(), piece.graph.hop_link
    own = []
    for task, (low, high) in enumerate(pairwise(starts)):
        if low < high and rank in (topology.links.src[links[low]], topology.links.dst[links[high - 1]]):
            own.append(int(timeline.start_fs[first + task]))
    return min(own, default=none)
