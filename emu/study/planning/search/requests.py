"""What the requests of plans take on a topology, each with the fabric to itself: timed once, and asked for by many plans.

A composed step is made of these times; it lasts no less where its requests wait for one another, or share links.
"""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice
from emu.collective.operation import ROOTED
from emu.dtypes import item_bytes
from emu.errors import InputError
from emu.fabric.lower import busiest_fs
from emu.fabric.rounds import message_count
from emu.model.generate.item import Ask
from emu.study.choice.chooser import choice_on
from emu.study.planning.bound.rates import Anywhere, Taken
from emu.study.planning.search.groups import Groups, Where
from emu.study.training.composed.asked import Different
from emu.study.training.composed.once import LIGHT, time_each
from emu.study.training.composed.parts import parts_of
from emu.study.training.served.coordinates import Option
from emu.study.training.served.library import others
from emu.study.training.served.options import bounds_of, by_name, first_request, is_open, with_option
from emu.topology.topology import Topology
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.replay.replay import lay_request
from emu.units import TICKS_PER_S, seconds

_OF_LAYERS = ("tp", "cp", "ep", "etp", "etp+ep")
_LAYERS, _PLACES, _ENDS = range(3)  # which requests are timed first: those of layers at place 0, at others, and the rest
_MOST_ROOTS = 16  # of a rooted operation, that are timed
_NEAR = 0.03  # of a time, by which a bound of all that is left may be below it and is taken in its place
_BETWEEN = 1e-3  # of a bound, more than a composed step is below it where it goes between the times of two sizes


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

    def different(self, number: int) -> Different:
        """As a composed step has it whose communicator has that number."""
        ask, groups = self.ask, self.groups
        size, elements = ask.elements * item_bytes(ask.dtype), ask.elements * (ask.operation != MESSAGE)
        said = (number, self.axis, ask.operation, ask.dtype)
        return Different(*said, 0, size, elements, ask.splits, groups.npus, groups.choosing, ())


class Missing(NamedTuple):
    """A request whose time is asked for and not known."""

    after: int  # those of the least are timed first: they may show already that a plan loses
    request: Request


def time_request(request: Request, topology: Topology, algorithms: tuple[str, ...], launch_fs: int) -> Taken:
    """What a request takes by itself at least, whichever number its communicator has and whatever the step chooses for it.

    Of one of many messages it is what its busiest link takes, of others just so long.

    Args:
        request: What is asked for.
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
    each = [_least(replace(of, root=root), choice, topology, npus, launch_fs) for of in asked for root in roots]
    return Taken(min(taken.left_s for taken in each), min(taken.there_s for taken in each))


def _least(asked: Different, choice: Choice, topology: Topology, npus: I64, launch_fs: int) -> Taken:
    """By whatever may serve it within a step: each that could be faster is timed."""
    taken = _taken(asked, choice, topology, npus, launch_fs)
    if not is_open(asked, choice):
        return taken
    bounds = bounds_of(asked, topology, npus, taken.there_s * TICKS_PER_S)
    for chooser in others(topology, "float32", npus).values():
        option = Option("", chooser)
        if not _among(asked, option, [by_name(bound.name, topology, npus) for bound in bounds]):
            with suppress(InputError):
                taken = _faster(taken, _taken(asked, with_option(asked, choice, option), topology, npus, launch_fs))
    for bound in bounds:
        if bound.least_fs >= (1 - _NEAR) * taken.there_s * TICKS_PER_S:
            return _faster(taken, Taken(0.0, bound.least_fs / TICKS_PER_S))
        by = with_option(asked, choice, by_name(bound.name, topology, npus))
        taken = _faster(taken, _taken(asked, by, topology, npus, launch_fs))
    return taken


def _among(asked: Different, option: Option, options: Sequence[Option]) -> bool:
    """Whether what an option chooses for the first of the groups is what one of several others is."""
    request = first_request(asked)
    served = option.chooser(request)
    return served is not None and any(each.name == served.algorithm and each.chooser(request) == served for each in options)


def _faster(one: Taken, other: Taken) -> Taken:
    return Taken(min(one.left_s, other.left_s), min(one.there_s, other.there_s))


def _taken(asked: Different, choice: Choice, topology: Topology, npus: I64, launch_fs: int) -> Taken:
    parts = parts_of([asked], choice, topology)
    laid = [lay_request(part.what, topology, part.ranks) for part in parts[0]]
    if message_count(laid) > LIGHT:  # a composed step may time others that are alike, and go between them
        least_s = max(busiest_fs(each, None) for each in laid) / TICKS_PER_S * (1 - _BETWEEN)
        return Taken(0.0, least_s)
    [once] = time_each([asked], parts, topology, npus, launch_fs)
    once = once.first_left  # a rank goes on when it has left it itself, where a step is laid with all of them
    return Taken(seconds(once.ticks - once.tail), seconds(once.ticks))


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
