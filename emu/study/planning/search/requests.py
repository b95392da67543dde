"""The least time that each request of a plan takes a rank on a topology: computed once, and used by many plans.

A composed step takes no less, even if its requests wait for one another, share links, or have the messages of every rank.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from emu.collective.operation import ROOTED
from emu.dtypes import item_bytes
from emu.errors import InputError
from emu.fabric.floor import least_fs
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.rounds import message_count
from emu.model.generate.item import Ask
from emu.study.choice.chooser import choice_on
from emu.study.choice.site import canonical_npus
from emu.study.planning.bound.rates import Rates, Requests, RequestTime
from emu.study.planning.search.groups import Groups, PlacedGroups
from emu.study.training.composed.isolated_request import LIGHT
from emu.study.training.composed.place_requests import DistinctRequest
from emu.study.training.composed.request_parts import RequestPart, parts_by_algorithm
from emu.study.training.step_choice.options import SLOWER, Option, ServedFabric, is_open, other_choosers
from emu.topology.topology import Topology
from emu.trace.matching.call_batch import BatchKey
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.replay.replay import lay_request
from emu.units import TICKS_PER_S

_OF_LAYERS = ("tp", "cp", "ep", "etp", "etp+ep")
_LAYERS, _PLACES, _ENDS = range(3)  # the order in which requests are timed: layers at place 0, layers at other places, the rest
_MOST_ROOTS = 16  # limit of roots of an operation that are timed
_NEAR = 0.03  # share above the least time by any algorithm that is near enough to try no other


class PlacedRequest(NamedTuple):
    """A request of groups on NPUs at one time; the axis of its `Ask` means nothing."""

    ask: Ask
    groups: Groups
    axis: str = ""  # set only where a word names the algorithm for the axis

    @property
    def name(self) -> tuple[object, ...]:
        """A key that is equal for equal requests."""
        ask = self.ask
        return ask.operation, ask.elements, ask.dtype, ask.splits, self.groups.name, self.axis

    @property
    def roots(self) -> range | None:
        """Possible roots of the operation; None if there are too many to be timed."""
        members = self.groups.npus.shape[1] if self.ask.operation in ROOTED else 1
        return range(members) if members <= _MOST_ROOTS else None

    def different(self, number: int) -> DistinctRequest:
        """Return the request as a composed step has it, with a communicator of this number."""
        ask, groups = self.ask, self.groups
        size, elements = ask.elements * item_bytes(ask.dtype), ask.elements * (ask.operation != MESSAGE)
        said = (number, self.axis, ask.operation, ask.dtype)
        return DistinctRequest(*said, 0, size, elements, ask.splits, groups.npus, groups.choosing, ())


# A request whose time is asked for and not known, after its rank in the order of timing: the least number is timed first.
MissingTime = tuple[int, PlacedRequest]


def time_request(request: PlacedRequest, topology: Topology, algorithms: tuple[str, ...], launch_fs: int) -> RequestTime:
    """Return the least time of a request for a rank, for any entry times of other ranks and any algorithm of its step.

    A step may contain the messages of every rank. Members that enter early then send before the last one enters, and groups
    that enter at different times share no links. So the time counts no message of other ranks (`emu.fabric.floor`).

    Args:
        request: The request, by a communicator of any number.
        topology: The topology with the costs of the software.
        algorithms: OPERATION=NAME, AXIS.OPERATION=NAME, or `auto`.
        launch_fs: Ticks that each rank takes to enter the request.

    Raises:
        InputError: the request cannot be timed.
    """
    npus = np.arange(topology.n_npus)
    choice = choice_on(topology, algorithms, "float32", npus=npus)
    roots = request.roots
    if roots is None:
        return RequestTime(0.0, 0.0)
    asked = [request.different(n) for n in range(request.groups.numbers)]
    each = [_least(replace(of, root=root), _Fabric(choice, topology, npus, launch_fs)) for of in asked for root in roots]
    return RequestTime(min(taken.left_s for taken in each), min(taken.there_s for taken in each))


class _Fabric(ServedFabric):
    """A topology on which a request runs, with the choice of algorithms."""

    def parts(self, asked: DistinctRequest) -> list[RequestPart]:
        """Return the groups of a request by the algorithm that serves them: one part for each algorithm."""
        return parts_by_algorithm([asked], self.choice, self.topology)[0]

    def laid(self, parts: Sequence[RequestPart]) -> list[PlacedSchedule]:
        """Return the placed schedule of each part."""
        return [lay_request(part.what, self.topology, part.ranks) for part in parts]

    def least(self, asked: DistinctRequest, laid: Sequence[PlacedSchedule]) -> RequestTime:
        """Return the least time that a rank needs for a request, by its placed schedules."""
        least = [least_fs(each, self.launch_fs) for each in laid]
        if asked.name == MESSAGE:
            left, there = np.min([each.min(axis=0) for each in least], axis=0) / TICKS_PER_S
            return RequestTime(left, there)
        ranks = asked.ranks.shape[1]
        return RequestTime(0.0, min(float(each[:, :ranks].min()) for each in least) / TICKS_PER_S)

    def fewest(self, asked: DistinctRequest) -> DistinctRequest:
        """Return a collective with only one of the groups that symmetries make equal, as they take equally long.

        The request itself is returned where no two groups are equal.
        """
        if asked.name == MESSAGE or len(asked.choosing) != len(asked.ranks):
            return asked
        equal = [canonical_npus(self.topology, self.npus[group]) for group in asked.ranks]
        _, first = np.unique(np.stack(equal), axis=0, return_index=True)
        if len(first) == len(equal):
            return asked
        return replace(asked, ranks=asked.ranks[np.sort(first)], choosing=asked.choosing[np.sort(first)])


def _least(asked: DistinctRequest, fabric: _Fabric) -> RequestTime:
    """Return the least time of a request by any algorithm that may serve it; of many groups the first that chooses is timed."""
    parts = fabric.parts(asked)
    laid = fabric.laid(parts)
    heavy = asked.name != MESSAGE and message_count(laid) > LIGHT
    if heavy and len(asked.ranks) > 1:
        return _least(replace(asked, ranks=asked.choosing[:1], choosing=asked.choosing[:1]), fabric)
    few = fabric.fewest(asked)
    if few is not asked:
        parts = fabric.parts(few)
        laid = fabric.laid(parts)
    taken, seen = fabric.least(few, laid), {_served(parts)}
    if not is_open(asked, fabric.choice):
        return taken
    floor = RequestTime(0.0, _floor_s(asked, fabric))
    if heavy:
        return floor
    for option in _options(asked, fabric):
        if taken.there_s <= (1 + _NEAR) * floor.there_s:
            return min(taken, floor)
        with suppress(InputError):
            parts = fabric.served_by(asked, option).parts(few)
            if _served(parts) not in seen:
                seen.add(_served(parts))
                taken = min(taken, fabric.least(few, fabric.laid(parts)))
    return taken


def _served(parts: Sequence[RequestPart]) -> tuple[BatchKey, ...]:
    """Return a key that is equal for parts with equal messages."""
    return tuple(part.what for part in parts)


def _floor_s(asked: DistinctRequest, fabric: _Fabric) -> float:
    """Return the least time of a request for a rank by any algorithm, in seconds."""
    elements, item = asked.elements * (not asked.splits), max(1, asked.size_bytes // max(1, asked.elements))
    least_s = Rates.of(fabric.topology).least_s(asked.name, elements, item, asked.ranks.shape[1])
    return least_s + fabric.launch_fs / TICKS_PER_S


def _options(asked: DistinctRequest, fabric: _Fabric) -> Iterator[Option]:
    """Yield all options that may serve a request within a step."""
    yield from (Option("", chooser) for chooser in other_choosers(fabric.topology, "float32", fabric.npus).values())
    for bound in fabric.bounds(asked, SLOWER * fabric.isolated(asked).ticks):
        yield fabric.algorithm(bound.name)


@dataclass(frozen=True, eq=False)
class PlacedRequests(Requests):
    """The requests of a plan in one placement; a request whose time is not known has its least time in any placement."""

    where: PlacedGroups
    times: Mapping[Hashable, RequestTime]  # known ones, by name of the request
    axes: frozenset[str] = frozenset()  # axes for which a word names the algorithm
    missing: dict[Hashable, MissingTime] = field(default_factory=dict)  # what was asked for and is not known, by name

    def place_key(self, place: int) -> Hashable:
        """Return the key of a place, as in `Requests`; each place has its own."""
        return place

    def axes_key(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return the key of the groups of axes at a place, as in `Requests`."""
        return self.where.names(place, axes)

    def collective(self, place: int, ask: Ask) -> RequestTime:
        """Return the least time of a request at a place, as in `Requests`."""
        after = _PLACES if ask.axis in _OF_LAYERS and place else _LAYERS if ask.axis in _OF_LAYERS else _ENDS
        groups = self.where.neighbours(place, ask.axis) if ask.operation == MESSAGE else self.where.at(place, ask.axis)
        found = self._time(PlacedRequest(ask, groups, ask.axis if ask.axis in self.axes else ""), after)
        return Requests.collective(self, place, ask)._replace(is_told=False) if found is None else found

    def messages(self, to: int, size: int) -> Sequence[RequestTime]:
        """Return [P] the least times of messages between places, as in `Requests`."""
        kept, n = self.where.messages, self.where.plan.pp
        if (to, size) in kept:
            return kept[to, size]
        asks = [
            PlacedRequest(Ask("pp", MESSAGE, size, "int8"), self.where.between(place, (place + to) % n)) for place in range(n)
        ]
        found = [self._time(each, _ENDS) for each in asks]
        if None not in found:
            kept[to, size] = [each for each in found if each is not None]
        otherwise = Requests.messages(self, to, size)
        return [least if each is None else each for each, least in zip(found, otherwise, strict=True)]

    def _time(self, request: PlacedRequest, after: int) -> RequestTime | None:
        """Return the time of a request; None if it is not known, and then note that it is missing."""
        name = request.name
        found = self.times.get(name)
        if found is None:
            self.missing.setdefault(name, (after, request))
        return found
