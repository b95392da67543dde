"""What the requests of plans take a rank on a topology at least: worked out once, and asked for by many plans.

A composed step lasts no less, whether its requests wait for one another, share links, or are laid with every rank.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice
from emu.collective.operation import ROOTED
from emu.dtypes import item_bytes
from emu.errors import InputError
from emu.fabric.floor import least_fs
from emu.fabric.rounds import message_count
from emu.model.generate.item import Ask
from emu.study.choice.chooser import choice_on
from emu.study.choice.equal_groups import canonical_npus
from emu.study.planning.bound.rates import Anywhere, Rates, Taken
from emu.study.planning.search.groups import Groups, Where
from emu.study.training.composed.isolated_request import LIGHT
from emu.study.training.composed.place_requests import DistinctRequest
from emu.study.training.composed.request_parts import RequestPart, parts_by_algorithm
from emu.study.training.served.coordinates import Option
from emu.study.training.served.options import (
    SLOWER,
    algorithm_option,
    bounds_of,
    is_open,
    isolated_request,
    other_choosers,
    with_option,
)
from emu.topology.topology import Topology
from emu.trace.matching.call_batch import BatchKey
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.replay.replay import lay_request
from emu.units import TICKS_PER_S

_OF_LAYERS = ("tp", "cp", "ep", "etp", "etp+ep")
_LAYERS, _PLACES, _ENDS = range(3)  # which requests are timed first: those of layers at place 0, at others, and the rest
_MOST_ROOTS = 16  # of a rooted operation, that are timed
_NEAR = 0.03  # of the least by any algorithm, by which that of one may be above it, so that no other is looked at


class Request(NamedTuple):
    """What groups ask for at one time; the axis of the `Ask` means nothing."""

    ask: Ask
    groups: Groups
    axis: str = ""  # where what serves it is named for its axis

    @property
    def name(self) -> tuple[object, ...]:
        """Equal for equal ones."""
        ask = self.ask
        return ask.operation, ask.elements, ask.dtype, ask.splits, self.groups.name, self.axis

    @property
    def roots(self) -> range | None:
        """Those from which the operation may go out; None: too many to be timed."""
        members = self.groups.npus.shape[1] if self.ask.operation in ROOTED else 1
        return range(members) if members <= _MOST_ROOTS else None

    def different(self, number: int) -> DistinctRequest:
        """As a composed step has it whose communicator has that number."""
        ask, groups = self.ask, self.groups
        size, elements = ask.elements * item_bytes(ask.dtype), ask.elements * (ask.operation != MESSAGE)
        said = (number, self.axis, ask.operation, ask.dtype)
        return DistinctRequest(*said, 0, size, elements, ask.splits, groups.npus, groups.choosing, ())


class Missing(NamedTuple):
    """A request whose time is asked for and not known."""

    after: int  # those of the least are timed first: they may show already that a plan loses
    request: Request


def time_request(request: Request, topology: Topology, algorithms: tuple[str, ...], launch_fs: int) -> Taken:
    """Return what a request takes a rank at least, whenever the others enter it and whatever the step chooses for it.

    A step may lay it with every rank: members that enter early then send before the last one comes, and groups that enter
    apart share no links. So the time counts no other rank's messages (`emu.fabric.floor`).

    Args:
        request: What is asked for, by a communicator of any number.
        topology: As the software has it.
        algorithms: OPERATION=NAME, AXIS.OPERATION=NAME, or `auto`.
        launch_fs: Ticks that each rank takes to enter it.

    Raises:
        InputError: it cannot be timed.
    """
    npus = np.arange(topology.n_npus)
    choice = choice_on(topology, algorithms, "float32", npus=npus)
    roots = request.roots
    if roots is None:
        return Taken(0.0, 0.0)
    asked = [request.different(n) for n in range(request.groups.numbers)]
    each = [_least(replace(of, root=root), _Fabric(choice, topology, npus, launch_fs)) for of in asked for root in roots]
    return Taken(min(taken.left_s for taken in each), min(taken.there_s for taken in each))


@dataclass(frozen=True, slots=True)
class _Fabric:
    """Where a request runs, and what serves it."""

    choice: Choice
    topology: Topology
    npus: I64
    launch_fs: int

    def parts(self, asked: DistinctRequest) -> list[RequestPart]:
        """Return the parts of a request."""
        return parts_by_algorithm([asked], self.choice, self.topology)[0]

    def least(self, asked: DistinctRequest, parts: Sequence[RequestPart]) -> Taken:
        """Return what any rank needs at least."""
        least = [least_fs(lay_request(part.what, self.topology, part.ranks), self.launch_fs) for part in parts]
        if asked.name == MESSAGE:
            left, there = np.min([each.min(axis=0) for each in least], axis=0) / TICKS_PER_S
            return Taken(left, there)
        ranks = asked.ranks.shape[1]
        return Taken(0.0, min(float(each[:, :ranks].min()) for each in least) / TICKS_PER_S)

    def ticks(self, asked: DistinctRequest) -> int:
        """Return what the request takes by itself, all groups at once."""
        return isolated_request(asked, self.choice, self.topology, self.npus, self.launch_fs).ticks

    def fewest(self, asked: DistinctRequest) -> DistinctRequest:
        """Return a collective with one group of each that symmetries of the topology make equal: these take as long."""
        if asked.name == MESSAGE or len(asked.choosing) != len(asked.ranks):
            return asked
        equal = [canonical_npus(self.topology, self.npus[group]) for group in asked.ranks]
        _, first = np.unique(np.stack(equal), axis=0, return_index=True)
        return replace(asked, ranks=asked.ranks[np.sort(first)], choosing=asked.choosing[np.sort(first)])

    def messages(self, asked: DistinctRequest) -> int:
        """Return how many all groups send."""
        return message_count([lay_request(part.what, self.topology, part.ranks) for part in self.parts(asked)])

    def served_by(self, asked: DistinctRequest, option: Option) -> "_Fabric":
        """Return the same where an option serves the request."""
        return replace(self, choice=with_option(asked, self.choice, option))


def _least(asked: DistinctRequest, fabric: _Fabric) -> Taken:
    """Return the least by whatever may serve a request within its step; of many groups the first that chooses tells."""
    heavy = asked.name != MESSAGE and fabric.messages(asked) > LIGHT
    if heavy and len(asked.ranks) > 1:
        return _least(replace(asked, ranks=asked.choosing[:1], choosing=asked.choosing[:1]), fabric)
    few = fabric.fewest(asked)
    parts = fabric.parts(few)
    taken, seen = fabric.least(few, parts), {_served(parts)}
    if not is_open(asked, fabric.choice):
        return taken
    floor = Taken(0.0, _floor_s(asked, fabric))
    if heavy:
        return floor
    for option in _options(asked, fabric):
        if taken.there_s <= (1 + _NEAR) * floor.there_s:
            return min(taken, floor)
        with suppress(InputError):
            parts = fabric.served_by(asked, option).parts(few)
            if _served(parts) not in seen:
                seen.add(_served(parts))
                taken = min(taken, fabric.least(few, parts))
    return taken


def _served(parts: Sequence[RequestPart]) -> tuple[BatchKey, ...]:
    return tuple(part.what for part in parts)


def _floor_s(asked: DistinctRequest, fabric: _Fabric) -> float:
    """Return what a rank takes at least by any algorithm."""
    elements, item = asked.elements * (not asked.splits), max(1, asked.size_bytes // max(1, asked.elements))
    least_s = Rates.of(fabric.topology).least_s(asked.name, elements, item, asked.ranks.shape[1])
    return least_s + fabric.launch_fs / TICKS_PER_S


def _options(asked: DistinctRequest, fabric: _Fabric) -> Iterator[Option]:
    """Yield all that may serve a request within a step."""
    topology, npus = fabric.topology, fabric.npus
    yield from (Option("", chooser) for chooser in other_choosers(topology, "float32", npus).values())
    for bound in bounds_of(asked, topology, npus, SLOWER * fabric.ticks(asked)):
        yield algorithm_option(bound.name, topology, npus)


@dataclass(eq=False)
class Known:
    """Times of the requests of one search on one topology, by their names; those that are not known are noted down."""

    times: dict[Hashable, Taken] = field(default_factory=dict)
    missing: dict[Hashable, Missing] = field(default_factory=dict)

    def time(self, request: Request, after: int) -> Taken | None:
        """What it takes; None: it has to be timed first, after others."""
        name = request.name
        found = self.times.get(name)
        if found is None:
            self.missing.setdefault(name, Missing(after, request))
        return found


@dataclass(frozen=True, eq=False)
class There:
    """The requests of a plan in one placement: as long as they take, or, where that is not known yet, as they take anywhere."""

    anywhere: Anywhere
    where: Where
    known: Known
    axes: frozenset[str] = frozenset()  # for which what serves them is named

    def alike(self, place: int) -> Hashable:
        """As of `Requests`: its groups are its own."""
        return place

    def of(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """As of `Requests`."""
        return self.where.names(place, axes)

    def collective(self, place: int, ask: Ask) -> Taken:
        """As of `Requests`."""
        after = _PLACES if ask.axis in _OF_LAYERS and place else _LAYERS if ask.axis in _OF_LAYERS else _ENDS
        groups = self.where.neighbours(place, ask.axis) if ask.operation == MESSAGE else self.where.at(place, ask.axis)
        found = self.known.time(Request(ask, groups, ask.axis if ask.axis in self.axes else ""), after)
        return self.anywhere.collective(place, ask)._replace(is_told=False) if found is None else found

    def messages(self, to: int, size: int) -> Sequence[Taken]:
        """As of `Requests`."""
        kept, n = self.where.messages, self.where.plan.pp
        if (to, size) in kept:
            return kept[to, size]
        asks = [Request(Ask("pp", MESSAGE, size, "int8"), self.where.between(place, (place + to) % n)) for place in range(n)]
        found = [self.known.time(each, _ENDS) for each in asks]
        if None not in found:
            kept[to, size] = [each for each in found if each is not None]
        otherwise = self.anywhere.messages(to, size)
        return [least if each is None else each for each, least in zip(found, otherwise, strict=True)]
