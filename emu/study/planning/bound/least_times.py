"""Lower bounds of the time of each request of a plan for a rank: for any placement, or for one placement.

In any placement and by any algorithm it is the time of the bytes that a rank itself sends and receives, over all links of an
NPU: no message leaves before both its ends have entered, and a rank leaves when all its own messages are delivered. Each rank
gives every slot of others that it adds to, and gets every slot of others that it wants, at least once.

In one placement it depends on the NPUs of the groups alone. It is computed once, and used by many plans. A composed step takes
no less, even if its requests wait for one another, share links, or have the messages of every rank.

G is the number of groups, N the number of members of each.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, digest
from emu.collective.operation import ROOTED
from emu.dtypes import item_bytes
from emu.errors import InputError
from emu.fabric.floor import least_fs
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.rounds import group_message_count
from emu.memo import kept_by
from emu.model.generate.generate import groups_of_axis
from emu.model.generate.item import Ask
from emu.model.plan.plan import Plan
from emu.study.choice.chooser import choice_on
from emu.study.choice.site import canonical_npus
from emu.study.isolated_request import LIGHT, RequestPart
from emu.study.planning.bound.rates import LeastTime, Ports, Rates, ranks_of
from emu.study.training.axes import npus_of
from emu.study.training.composed.request_parts import goes_round, parts_by_algorithm
from emu.study.training.composed.requests_by_place import DistinctRequest, RequestWay, choosing
from emu.study.training.step_choice.options import SLOWER, Option, ServedFabric, is_free, is_made, other_choosers
from emu.topology.facts.facts import routes_spread
from emu.topology.topology import Topology
from emu.trace.matching.call_batch import BatchKey
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.replay.replay import place_request
from emu.units import TICKS_PER_S


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


@dataclass(frozen=True, eq=False, slots=True)
class Groups:
    """Groups of NPUs that make one request at the same time; one group stands for all that symmetry makes equal."""

    npus: I64  # [G, N] the NPUs that stand for all equal ones by symmetry
    choosing: I64  # [.., N] NPUs of the groups that choose the algorithm
    numbers: int  # possible numbers of their communicator, from 0 on; 1 where the number changes nothing
    rates: Rates  # the largest rates of a member for messages within its group
    name: str  # equal for equal groups


@dataclass(frozen=True, eq=False)
class PlacedGroups:
    """The groups of all axes in one placement, for all plans with equal sizes of axes."""

    topology: Topology
    plan: Plan  # one of the plans
    npus: I64  # [ranks] the NPU of each rank
    numbers: int  # possible numbers of communicators, as in `Groups`
    anywhere: Rates  # of any NPU
    ports: Ports | None = None  # None: not known
    messages: dict[Hashable, Sequence[LeastTime]] = field(default_factory=dict)  # known times by distance and size

    @staticmethod
    def of(
        topology: Topology, plan: Plan, axes: tuple[str, ...], anywhere: Rates, ports: Ports | None = None
    ) -> "PlacedGroups":
        """Return the groups of a plan on a topology, with the first of its axes on neighbouring NPUs."""
        numbers = _communicators(plan) if routes_spread(topology) else 1
        return PlacedGroups(topology, plan, npus_of(topology, plan, axes), numbers, anywhere, ports)

    @kept_by(lambda _, *asked: asked)
    def at(self, place: int, axis: str) -> Groups:
        """Return the groups of an axis at one place of a pipeline; the groups of all places if the axis crosses places."""
        return self._groups_of(self._ranks_at(place, axis), self._every(axis))

    @kept_by(lambda _, *asked: asked)
    def neighbours(self, place: int, axis: str) -> Groups:
        """Return groups of two: each rank of a place with the next member of its group of an axis."""
        rows = self._pairs(place, axis)
        return self._groups_of(rows, rows)

    @kept_by(lambda _, *asked: asked)
    def between(self, src: int, dst: int) -> Groups:
        """Return groups of two: each rank of a place with the rank of its pipeline at another place."""
        rows = self._every("pp")[:, [src, dst]]
        return self._groups_of(rows, rows)

    @kept_by(lambda _, *asked: asked)
    def rates(self, place: int, axis: str) -> tuple[Rates, Rates]:
        """Return the largest rates of a rank within its group of an axis, and its rates to its two neighbours."""
        return self._rates(self._ranks_at(place, axis)), self._rates(self._pairs(place, axis))

    @kept_by(lambda _, *asked: asked)
    def rates_between(self, src: int, dst: int) -> Rates:
        """Return the largest rates of the messages between two places."""
        return self._rates(self._every("pp")[:, [src, dst]])

    def _rates(self, ranks: I64) -> Rates:
        """Return the largest rates of any member for messages within its group; `ranks` is [G, N]."""
        return self.anywhere if self.ports is None else self.ports.rates(self.npus[ranks], self.anywhere)

    def _pairs(self, place: int, axis: str) -> I64:
        """Return [pairs, 2] the ranks of a place, each with the next member of its group of an axis."""
        own = self._ranks_at(place, axis)
        return np.stack((own, np.roll(own, -1, axis=1)), axis=-1).reshape(-1, 2)

    @kept_by(lambda _, *asked: asked)
    def names(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return a key of the groups of several axes at a place; groups with equal times have equal keys."""
        return tuple(self.at(place, axis).name for axis in axes)

    def _ranks_at(self, place: int, axis: str) -> I64:
        """Return [G, N] the ranks of the groups of an axis at one place, or at all places if the axis crosses places."""
        every, of_place = self._every(axis), self.plan.stage_ranks
        across = every[0, 0] // of_place != every[0, -1] // of_place
        return every if across else every[every[:, 0] // of_place == place]

    @kept_by(lambda _, *asked: asked)
    def _every(self, axis: str) -> I64:
        """Return [G, N] the ranks of all groups of an axis."""
        return groups_of_axis(self.plan, axis)

    def _groups_of(self, ranks: I64, every: I64) -> Groups:
        """Return groups of ranks [G, N], with the NPUs that represent all equivalent groups."""
        asking = choosing(ranks, every)
        both = canonical_npus(self.topology, self.npus[np.concatenate((ranks.ravel(), asking.ravel()))])
        npus, chosen = both[: ranks.size].reshape(ranks.shape), both[ranks.size :].reshape(asking.shape)
        rates = self._rates(ranks)
        numbers = self.numbers if self.ports is None or self.ports.routes_vary(self.npus[ranks]) else 1
        return Groups(npus, chosen, numbers, rates, digest((npus, chosen, numbers, rates)))


def _communicators(plan: Plan) -> int:
    """Return the largest possible number of communicators of a plan."""
    both = plan.ep > 1 < plan.expert_tp
    return sum(size > 1 for size in plan.sizes.values()) + both + (plan.copies > 1) + (plan.pp > 1)


_OF_LAYERS = ("tp", "cp", "ep", "etp", "etp+ep")
_LAYERS, _PLACES, _ENDS = range(3)  # the order in which requests are timed: layers at place 0, layers at other places, the rest
_ALONE = RequestWay(0, 0, -1, -1)  # of a request that nothing follows
_MOST_ROOTS = 16  # limit of roots of an operation that are timed
_NEAR = 0.03  # share above the least time by any algorithm that is near enough to try no other


class BoundedRequest(NamedTuple):
    """A request of several groups at one time, on their NPUs; its least time bounds steps."""

    ask: Ask
    groups: Groups
    axis: str = ""  # set only where a word names the algorithm for the axis

    @property
    def name(self) -> tuple[object, ...]:
        """The key of the request's least time; equal for equal groups with equal data."""
        ask = self.ask
        return ask.operation, ask.elements, ask.dtype, ask.splits, self.groups.name, self.axis

    @property
    def roots(self) -> range | None:
        """The root ranks to try, of which the fastest counts; None if there are too many."""
        members = self.groups.npus.shape[1] if self.ask.operation in ROOTED else 1
        return range(members) if members <= _MOST_ROOTS else None

    def as_distinct(self, communicator: int) -> DistinctRequest:
        """Return the request in the form that a composed step has, by the communicator of a number."""
        ask, groups = self.ask, self.groups
        size, elements = ask.elements * item_bytes(ask.dtype), ask.elements * (ask.operation != MESSAGE)
        said = (communicator, self.axis, ask.operation, ask.dtype)
        return DistinctRequest(*said, 0, size, elements, ask.splits, groups.npus, groups.choosing, _ALONE)


# Requests whose times are asked for and not known, by name, each after its rank in the order of timing: the least comes first.
Missing = dict[Hashable, tuple[int, BoundedRequest]]


def least_request_time(request: BoundedRequest, topology: Topology, algorithms: tuple[str, ...], launch_fs: int) -> LeastTime:
    """Return the least time of a request for a rank, whatever the other ranks do and whatever algorithm serves it.

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
        return LeastTime(0.0, 0.0)
    asked = [request.as_distinct(n) for n in range(request.groups.numbers)]
    fabric = _Fabric(choice, topology, npus, launch_fs, request.groups.rates)
    each = [_least_over_algorithms(replace(of, root=root), fabric) for of in asked for root in roots]
    return LeastTime(min(taken.left_s for taken in each), min(taken.delivered_s for taken in each))


@dataclass(frozen=True, eq=False)
class _Fabric(ServedFabric):
    """A topology on which the least time of a request for one rank is computed, and not the time until all ranks are done."""

    rates: Rates  # the largest rates of a member for messages within its group

    def parts(self, asked: DistinctRequest) -> list[RequestPart]:
        """Return the parts of a request, one for each algorithm that serves some of its groups."""
        return parts_by_algorithm([asked], self.choice, self.topology)[0]

    def laid(self, parts: Sequence[RequestPart]) -> list[PlacedSchedule]:
        """Return the placed schedule of each part."""
        return [place_request(part.what, self.topology, part.ranks) for part in parts]

    def least(self, asked: DistinctRequest, laid: Sequence[PlacedSchedule]) -> LeastTime:
        """Return the least time of a request for a rank, by the placed schedules that `laid` returns."""
        least = [least_fs(each, self.launch_fs) for each in laid]
        if asked.name == MESSAGE:
            left, delivered = np.min([each.min(axis=0) for each in least], axis=0) / TICKS_PER_S
            return LeastTime(left, delivered)
        ranks = asked.ranks.shape[1]
        return LeastTime(0.0, min(float(each[:, :ranks].min()) for each in least) / TICKS_PER_S)

    def fewest(self, asked: DistinctRequest) -> DistinctRequest:
        """Return a collective with one group of each set of equivalent groups, because these take equal times.

        The request itself is returned if no two groups are equivalent.
        """
        if asked.name == MESSAGE or len(asked.choosing) != len(asked.ranks):
            return asked
        equal = [canonical_npus(self.topology, self.npus[group]) for group in asked.ranks]
        _, first = np.unique(np.stack(equal), axis=0, return_index=True)
        if len(first) == len(equal):
            return asked
        return replace(asked, ranks=asked.ranks[np.sort(first)], choosing=asked.choosing[np.sort(first)])


def _least_over_algorithms(asked: DistinctRequest, fabric: _Fabric) -> LeastTime:
    """Return the least time of a request over all algorithms that may serve it, or over all schedules if one may be made."""
    if is_made(asked, fabric.choice):
        return LeastTime(0.0, _floor_s(asked, fabric))
    laid = fabric.laid(parts := fabric.parts(asked))
    heavy = asked.name != MESSAGE and group_message_count(laid) > LIGHT
    if heavy and len(asked.ranks) > 1:
        return _least_over_algorithms(replace(asked, ranks=asked.choosing[:1], choosing=asked.choosing[:1]), fabric)
    few = fabric.fewest(asked)
    if few is not asked:
        laid = fabric.laid(parts := fabric.parts(few))
    taken, seen = fabric.least(few, laid), {_message_key(parts)}
    if not is_free(asked, fabric.choice):
        return taken
    floor = LeastTime(0.0, _floor_s(asked, fabric))
    if heavy:
        return floor
    for option in _options(asked, fabric):
        if taken.delivered_s <= (1 + _NEAR) * floor.delivered_s:
            return min(taken, floor)
        with suppress(InputError):
            parts = fabric.served_by(asked, option).parts(few)
            if _message_key(parts) not in seen:
                seen.add(_message_key(parts))
                taken = min(taken, fabric.least(few, fabric.laid(parts)))
    return taken


def _message_key(parts: Sequence[RequestPart]) -> tuple[BatchKey, ...]:
    """Return a key that is equal for requests whose algorithms send equal messages."""
    return tuple(part.what for part in parts)


def _floor_s(asked: DistinctRequest, fabric: _Fabric) -> float:
    """Return the least time of a request for a rank by any algorithm, in seconds."""
    elements, item = asked.elements * (not asked.splits), max(1, asked.size_bytes // max(1, asked.elements))
    least_s = fabric.rates.least_s(asked.name, elements, item, asked.ranks.shape[1])
    return least_s + fabric.launch_fs / TICKS_PER_S


def _options(asked: DistinctRequest, fabric: _Fabric) -> Iterator[Option]:
    """Yield the choosers and the algorithms that a step may use for a request."""
    yield from (Option("", chooser) for chooser in other_choosers(fabric.topology, "float32", fabric.npus).values())
    for bound in fabric.bounds(asked, SLOWER * fabric.isolated(asked).ticks):
        yield fabric.algorithm(bound.name)


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
        after = _PLACES if ask.axis in _OF_LAYERS and place else _LAYERS if ask.axis in _OF_LAYERS else _ENDS
        groups = self.where.neighbours(place, ask.axis) if ask.operation == MESSAGE else self.where.at(place, ask.axis)
        found = self._time(BoundedRequest(ask, groups, ask.axis if ask.axis in self.axes else ""), after)
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

    def _time(self, request: BoundedRequest, after: int) -> LeastTime | None:
        """Return the known time of a request; if there is none, add it to `missing` and return None."""
        name = request.name
        found = self.times.get(name)
        if found is None:
            self.missing.setdefault(name, (after, request))
        return found
