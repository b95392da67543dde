"""The longest path through the events of a tape on one rank, for given times of its requests."""

from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from emu.model.generate.item import Ask
from emu.study.planning.request_times.least_times import LeastTimes


@dataclass(frozen=True, eq=False)
class TapePath:
    """The events of a tape, in order, through which the longest path is computed for given times of requests."""

    takes_s: Sequence[float]  # the seconds of each event; 0 for requests
    asks: Sequence[tuple[int, Ask]]  # the requests that take time, with the number of the event of each
    sends: Container[int]  # events that send: the rank waits only until the message has left
    ordered: Sequence[bool]  # whether each event waits for the one before it on its stream
    stream: Sequence[int]  # the stream of each event
    waits: Sequence[Sequence[int]]  # the other events that each event waits for
    known: dict[Hashable, float] = field(default_factory=dict)  # lengths in seconds, by `LeastTimes.axes_key`

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes on which the requests of the path are."""
        return tuple(dict.fromkeys(ask.axis for _, ask in self.asks))

    def seconds(self, least: LeastTimes, place: int) -> float:
        """Return the time of the longest path to the last event, on a rank at a place of its pipeline, in seconds."""
        of = least.axes_key(place, self.axes)
        if of in self.known:
            return self.known[of]
        took = [(i, least.collective(place, ask)) for i, ask in self.asks]
        longest_s = self._longest_s({i: each.left_s if i in self.sends else each.delivered_s for i, each in took})
        if all(each.is_final for _, each in took):
            self.known[of] = longest_s
        return longest_s

    def _longest_s(self, took: Mapping[int, float]) -> float:
        """Return the seconds of the longest path; `took` has the seconds of each request, by the number of its event."""
        last, ends = dict[int, float](), list[float]()
        takes = [took.get(i, own) for i, own in enumerate(self.takes_s)]
        for ordered, stream, waits, own in zip(self.ordered, self.stream, self.waits, takes, strict=True):
            begin = max([ends[w] for w in waits], default=0.0)
            if ordered:
                last[stream] = begin = max(begin, last.get(stream, 0.0)) + own
                ends.append(begin)
            else:
                ends.append(begin + own)
        return ends[-1]


def times_s(paths: Sequence[TapePath], least: LeastTimes, place: int) -> list[float]:
    """Return the least seconds of each path at a place; equal paths are computed once."""
    known = {path: path.seconds(least, place) for path in dict.fromkeys(paths)}
    return [known[path] for path in paths]
