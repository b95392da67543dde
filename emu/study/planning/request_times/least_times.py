"""Lower bounds of the time of each request of a plan for a rank: in any placement, or in one of them.

In one placement they come from the rates of its ports, or from the times of the plan's own requests. In any placement, and by
any algorithm, a request takes at least the time of the bytes that a rank itself sends and receives, over all links of an
NPU: no message leaves before both its ends have entered, and a rank leaves when all its own messages are delivered. Each rank
gives every slot of others that it adds to, and gets every slot of others that it wants, at least once.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from emu.dtypes import item_bytes
from emu.model.generate.item import Ask
from emu.model.plan.plan import Plan
from emu.study.planning.request_times.placed_groups import PlacedGroups
from emu.study.planning.request_times.rates import LeastTime, Rates, ranks_of
from emu.study.planning.request_times.request_floor import BoundedRequest
from emu.study.training.composed.request_parts import goes_round
from emu.trace.matching.role_requests import MESSAGE

_OF_LAYERS = ("tp", "cp", "ep", "etp", "etp+ep")
_LAYERS, _PLACES, _ENDS = range(3)  # the order in which requests are timed: layers at place 0, layers at other places, the rest

# Requests whose times are needed and not known, by name, each after its priority: those with the least number are timed first.
Missing = dict[Hashable, tuple[int, BoundedRequest]]


@dataclass(frozen=True, eq=False)
class LeastTimes:
    """The least times of a plan's requests in any placement, from the rates of an NPU; subclasses are for one placement."""

    rates: Rates
    plan: Plan

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The size of each axis of the plan, by its name."""
        return self.plan.sizes

    def place_key(self, place: int) -> Hashable:
        """Return a key that is equal for places whose requests take equal times; without a placement all places are equal."""
        return ()

    def axes_key(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return a key that is equal if the requests of the given axes take equal times."""
        return self.rates, tuple(ranks_of(self.sizes, axis) for axis in axes)

    def collective(self, place: int, ask: Ask) -> LeastTime:
        """Return the least time of a collective of the ranks at one place of a pipeline."""
        ring, item = ask.operation == MESSAGE or goes_round(ask.splits), item_bytes(ask.dtype)
        rates = self.rates_of(place, ask.axis, ring=ring)
        if ring:
            return rates.message(ask.elements * item)
        elements = 0 if ask.splits else ask.elements  # of blocks that differ a rank may have the largest itself
        return LeastTime(0.0, rates.least_s(ask.operation, elements, item, ranks_of(self.sizes, ask.axis)))

    def rates_of(self, place: int, axis: str, *, ring: bool) -> Rates:
        """Return the largest rates of a rank within its group of an axis; with `ring`, only to its neighbours there."""
        return self.rates

    def messages(self, to: int, size: int) -> Sequence[LeastTime]:
        """Return [P] the least times of messages of `size` bytes from each place to the place `to` later, round the end."""
        return [self.rates.message(size)] * self.plan.pp


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
