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
    index = np.arange(len(events))
    own = computes(events)
    last = _last_of_stream(events.stream, own)
    queues = queues_of(events)
    in_turn = np.lexsort((index, *queues))
    requests = in_turn[~own[in_turn]]
    queue = queues[:, requests]
    follows = np.flatnonzero((queue[:, 1:] == queue[:, :-1]).all(axis=0))
    waits = np.repeat(index, np.diff(events.wait_start))
    event = np.concatenate((index[last >= 0], requests[follows + 1], waits))
    return event, np.concatenate((last[last >= 0], requests[follows], events.wait)).astype(np.int64)


def _last_of_stream(stream: I16, computes: Bool) -> I64:
    """[E] the last computation before each event on its stream; -1: none."""
    last = np.full(len(stream), -1)
    for number in np.unique(stream).tolist():
        own = np.flatnonzero(stream == number)
        last[own] = np.maximum.accumulate(np.append(-1, np.where(computes[own], own, -1)))[:-1]
    return last
