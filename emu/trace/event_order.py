"""The events that each event of a role waits for: by its stream, by the queue of its request, and by the trace's own waits.

E events of a role.
"""

import numpy as np

from emu.arrays import I16, I64, Bool
from emu.trace.trace import Events, Kind


def computes(events: Events) -> Bool:
    """Return [E] which events follow the program's order on their stream: computations, and the marks between them."""
    return np.asarray((events.kind == Kind.COMPUTE) | (events.kind == Kind.MARK))


def queues_of(events: Events) -> I64:
    """Return [4, E] tag, peer, kind and group of each event; requests that are equal in all four form one queue, in order.

    The tag and the peer count for messages alone.
    """
    peer, tag = (np.where(events.kind == Kind.COLLECTIVE, 0, c) for c in (events.root, events.tag))
    return np.stack((tag, peer, events.kind, events.group)).astype(np.int64)


def order_of(events: Events) -> tuple[I64, I64]:
    """Return pairs of an event of a role and an earlier event for which it waits, as two arrays of equal length.

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
