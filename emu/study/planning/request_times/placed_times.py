"""The least times of a plan's requests in one placement: by the rates of ports, or by the times of its own requests."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from emu.model.generate.item import Ask
from emu.study.planning.request_times.least_times import LeastTimes
from emu.study.planning.request_times.placed_groups import PlacedGroups
from emu.study.planning.request_times.rates import LeastTime, Rates, ranks_of
from emu.study.planning.request_times.request_floor import BoundedRequest
from emu.trace.matching.role_requests import MESSAGE

_OF_LAYERS = ("tp", "cp", "ep", "etp", "etp+ep")
_LAYERS, _PLACES, _ENDS = range(3)  # the order in which requests are timed: layers at place 0, layers at other places, the rest

# Requests whose times are needed and not known, by name, each after its priority: those with the least number are timed first.
Missing = dict[Hashable, tuple[int, BoundedRequest]]


@dataclass(frozen=True, eq=False)
class PortLeastTimes(LeastTimes):
    """The least times of a plan's requests in one placement, from the rates of ports; fast to compute."""

    where: PlacedGroups

    def place_key(self, place: int) -> Hashable:
        """Return the key of a place; no two places share one."""
        return place

    def axes_key(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return the key of the groups of axes at a place, as in `LeastTimes`."""
        return tuple((ranks_of(self.sizes, axis), self.where.rates(place, axis)) for axis in axes)

    def rates_of(self, place: int, axis: str, *, ring: bool) -> Rates:
        """Return the rates of a rank at a place, as in `LeastTimes`."""
        return self.where.rates(place, axis)[ring]

    def messages(self, to: int, size: int) -> Sequence[LeastTime]:
        """Return [P] the least times of messages between places, as in `LeastTimes`."""
        n = self.where.plan.pp
        return [self.where.rates_between(place, (place + to) % n).message(size) for place in range(n)]


@dataclass(frozen=True, eq=False)
class PlacedLeastTimes(PortLeastTimes):
    """The least times of the requests of a plan in one placement, computed for each request alone by `least_request_time`.

    A request whose time is not known is noted in `missing`, and has the time that `PortLeastTimes` gives it.
    """

    times: Mapping[Hashable, LeastTime]  # known times by `BoundedRequest.name`
    axes: frozenset[str] = frozenset()  # axes for which a word names the algorithm
    missing: Missing = field(default_factory=dict)  # requests without a known time

    def axes_key(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return the key of the groups of axes at a place, as in `LeastTimes`."""
        return self.where.topology, self.where.names(place, axes)

    def collective(self, place: int, ask: Ask) -> LeastTime:
        """Return the least time of a request at a place, as in `LeastTimes`."""
        priority = _PLACES if ask.axis in _OF_LAYERS and place else _LAYERS if ask.axis in _OF_LAYERS else _ENDS
        groups = self.where.neighbours(place, ask.axis) if ask.operation == MESSAGE else self.where.at(place, ask.axis)
        found = self._time(BoundedRequest(ask, groups, ask.axis if ask.axis in self.axes else ""), priority)
        return super().collective(place, ask)._replace(is_final=False) if found is None else found

    def messages(self, to: int, size: int) -> Sequence[LeastTime]:
        """Return [P] the least times of messages between places, as in `LeastTimes`."""
        kept, n = self.where.messages, self.where.plan.pp
        if (to, size) in kept:
            return kept[to, size]
        asks = [
            BoundedRequest(Ask("pp", MESSAGE, size, "int8"), self.where.between(place, (place + to) % n)) for place in range(n)
        ]
        found = [self._time(each, _ENDS) for each in asks]
        if None not in found:
            kept[to, size] = [each for each in found if each is not None]
        otherwise = super().messages(to, size)
        return [least if each is None else each for each, least in zip(found, otherwise, strict=True)]

    def _time(self, request: BoundedRequest, priority: int) -> LeastTime | None:
        """Return the known time of a request; if there is none, add it to `missing` and return None."""
        name = request.name
        found = self.times.get(name)
        if found is None:
            self.missing.setdefault(name, (priority, request))
        return found
