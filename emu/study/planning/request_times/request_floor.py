"""The least time of a request for a rank in one placement, over all algorithms that may serve it.

It depends on the NPUs of the groups alone. It is computed once, and used by many plans. A composed step takes no less, even if
its requests wait for one another, share links, or have the messages of every rank.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from emu.collective.operation import ROOTED
from emu.dtypes import item_bytes
from emu.errors import InputError
from emu.fabric.floor import least_fs
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.rounds import group_message_count
from emu.model.generate.item import Ask
from emu.study.choice.chooser import choice_on
from emu.study.choice.site import canonical_npus
from emu.study.isolated_request import LIGHT, RequestPart
from emu.study.planning.request_times.placed_groups import Groups
from emu.study.planning.request_times.rates import LeastTime, Rates
from emu.study.training.composed.request_parts import parts_by_algorithm
from emu.study.training.composed.requests_by_place import DistinctRequest, RequestWay
from emu.study.training.step_choice.free_requests import is_free, is_made
from emu.study.training.step_choice.options import SLOWER, Option, ServedFabric, other_choosers
from emu.topology.topology import Topology
from emu.trace.matching.call_batch import BatchKey
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.replay.placed_request import place_request
from emu.units import TICKS_PER_S

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
        if asked.name == MESSAGE:  # no algorithm serves it, so that it has one part
            left, delivered = least[0].min(axis=0) / TICKS_PER_S
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
