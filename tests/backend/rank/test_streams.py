"""The waits of streams, against all that a device's streams would have done before, followed wait by wait."""

import numpy as np
import pytest

from emu.backend.rank.streams import RankStreams


class Followed:
    """A plain account of streams without any saving: every wait is written down, and nothing is left out."""

    def __init__(self):
        self.done = {0: set()}  # all that has ended before the next computation of a stream
        self.before = {}  # all that has ended before each event ends
        self.queues = {}

    def compute(self, stream, event):
        self.before[event] = set(self.done[stream])
        self.done[stream] |= {event}

    def request(self, stream, event, queue):
        last = self.queues.get(queue)
        self.before[event] = set(self.done[stream]) | ({last, *self.before[last]} if last is not None else set())
        self.queues[queue] = event

    def wait(self, stream, events):
        for event in events:
            self.done[stream] |= {event, *self.before[event]}


def reached(waits, of, event):
    """Return all that is before an event by what was written down, and by the order of its stream or queue."""
    found, ask = set(), [event]
    while ask:
        at = ask.pop()
        for other in (*waits[at], *of[at]):
            if other not in found:
                found.add(other)
                ask.append(other)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_what_is_written_down_says_all_that_comes_before_and_nothing_else(seed):
    rng = np.random.default_rng(seed)
    streams, model = RankStreams(), Followed()
    waits, order, last, moments, requests = [], [], {}, [], []
    for number in (streams.add() for _ in range(int(rng.integers(0, 4)))):
        model.done[number] = set()
    for _ in range(300):
        stream, what = int(rng.choice(list(model.done))), rng.choice(["compute", "request", "join", "record", "wait"])
        streams.current, event = stream, len(waits)
        if what == "compute":
            waits.append(streams.compute(event))
            model.compute(stream, event)
            order.append([last[stream]] if stream in last else [])
            last[stream] = event
        elif what == "request":
            queue = ("group", int(rng.integers(2)))
            waits.append(streams.request(event, queue))
            model.request(stream, event, queue)
            order.append([last[queue]] if queue in last else [])
            last[queue] = event
            requests.append(event)
        elif what == "join" and requests:
            event = int(rng.choice(requests))
            streams.wait(stream, streams.done(event))
            model.wait(stream, [event])
        elif what == "record":
            moments.append((streams.now(stream), sorted(model.done[stream])))
        elif what == "wait" and moments:
            moment, events = moments[int(rng.integers(len(moments)))]
            streams.wait(stream, moment)
            model.wait(stream, events)
    for event in range(len(waits)):
        assert reached(waits, order, event) == model.before[event]


def test_a_stream_that_computes_nothing_keeps_no_list_of_all_it_waited_for():
    streams = RankStreams()
    other = streams.add()
    for event in range(0, 200, 2):
        streams.current = 0
        streams.compute(event)
        streams.wait(other, streams.now(0))
        streams.current = other
        assert len(streams.request(event + 1, "group")) <= 2
        streams.wait(other, streams.done(event + 1))


def test_of_requests_one_after_another_the_next_waits_for_the_last_only():
    streams = RankStreams()
    waits = []
    for event in range(50):
        waits.append(streams.request(event, "group"))
        streams.wait(streams.current, streams.done(event))
    assert waits[1:] == [(event - 1,) for event in range(1, 50)]
