"""What the events of a role wait for: their streams, the queues of their requests, and what the trace says beside.

E events of a role.
"""

import numpy as np

from emu.arrays import I16, I64, Bool
from emu.trace.trace import Events, Kind


def computes(events: Events) -> Bool:
    """What is in the order of the program: computations, and marks between them."""
    return np.asarray((events.kind == Kind.COMPUTE) | (events.kind == Kind.MARK))


def queues_of(events: Events) -> I64:
    """[4, E] tag, peer, kind and group: requests of equal ones are in order; only a message's peer and tag count."""
    peer, tag = (np.where(events.kind == Kind.COLLECTIVE, 0, c) for c in (events.root, events.tag))
    return np.stack((tag, peer, events.kind, events.group)).astype(np.int64)


def order_of(events: Events) -> tuple[I64, I64]:
    """Event and earlier event of a role that it waits for.

    A computation waits for the one before it on its stream, a request for the last computation of its stream at issue and the
    request before it in its queue, and either for what the trace says it waits for.
    """
    (event, waited), (later, before) = stated_order(events), queue_order(events)
    return np.concatenate((event, later)), np.concatenate((waited, before))


def stated_order(events: Events) -> tuple[I64, I64]:
    """Event and earlier event that it waits for by its stream, or as the trace says."""
    index = np.arange(len(events))
    last = _last_of_stream(events.stream, computes(events))
    waits = np.repeat(index, np.diff(events.wait_start))
    return np.concatenate((index[last >= 0], waits)), np.concatenate((last[last >= 0], events.wait)).astype(np.int64)


def queue_order(events: Events) -> tuple[I64, I64]:
    """Request and the one before it in its queue."""
    queues = queues_of(events)
    in_turn = np.lexsort((np.arange(len(events)), *queues))
    requests = in_turn[~computes(events)[in_turn]]
    queue = queues[:, requests]
    follows = np.flatnonzero((queue[:, 1:] == queue[:, :-1]).all(axis=0))
    return requests[follows + 1], requests[follows]


def _last_of_stream(stream: I16, computes: Bool) -> I64:
    """[E] the last computation before each event on its stream; -1: none."""
    last = np.full(len(stream), -1)
    for number in np.unique(stream).tolist():
        own = np.flatnonzero(stream == number)
        last[own] = np.maximum.accumulate(np.append(-1, np.where(computes[own], own, -1)))[:-1]
    return last
