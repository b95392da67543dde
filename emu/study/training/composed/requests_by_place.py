"""The requests of a step, as one representative rank of each place makes them, and the distinct ones among them.

A axes, N ranks, P places, C requests of the representatives, M calls of them, Q distinct requests. A call is a
collective, or a send and its receive, as the representatives see it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool, column
from emu.collective.choice import Request
from emu.equivalence import Orbits, components, occurrence_numbers
from emu.errors import must_be
from emu.study.training.composed.representatives import Representatives
from emu.trace.matching.matcher import members_of_calls
from emu.trace.matching.role_requests import MESSAGE, RequestColumns, RoleRequests, equivalent_groups, role_requests
from emu.trace.trace import PARTS, Group, Kind, Trace

CHOOSING = 64  # groups of an axis, up to which each has a choice of its own


class RequestWay(NamedTuple):
    """The axis, and the places of a pipeline between which a request goes; requests of one way follow one another."""

    axis: int
    place: int  # the first of the places that ask together
    source: int  # the place that sends the message; -1: a collective
    target: int  # the place that receives it; -1: a collective; below that: the next but so many in a ring


@dataclass(frozen=True, eq=False, slots=True)
class DistinctRequest:
    """One of the distinct requests of a step, with all groups of its axis that make it at one time.

    `choosing` are the groups for which an algorithm is chosen: all of them, or one that stands for all.
    """

    axis: int
    axis_name: str
    name: str  # the operation, or MESSAGE
    dtype: str
    root: int  # number of the root in the group; of a message, of its other end
    size_bytes: int
    elements: int
    splits: tuple[int, ...]  # elements of each block that a member gives; (): an even cut
    ranks: I64  # [groups, members]
    choosing: I64  # [.., members] the groups for which an algorithm is chosen: each, or one for all
    kind: RequestWay  # equal if one follows another

    def of_group(self, number: int) -> Request:
        """Return the request of one of the groups in `choosing`; it has the number of groups for which the choice counts."""
        groups = 1 if len(self.choosing) == len(self.ranks) else len(self.ranks)
        asked = tuple(self.choosing[number].tolist())
        return Request(self.name, asked, self.root, self.elements, self.dtype, groups, self.axis_name)


@dataclass(frozen=True, eq=False)
class PlaceRequests:
    """The requests of a step as its representatives make them: one rank for each of P places of the pipeline."""

    trace: Trace  # of P ranks, one a place
    event: I64  # [C] among the events of all these ranks, rank after rank
    sends: Bool  # [C] whether it is the send of a message
    call: I64  # [C] the call that each request belongs to
    request_of_call: I64  # [M] which of the distinct requests each call is for
    requests: tuple[DistinctRequest, ...]  # [Q] the distinct requests
    representatives: Representatives
    counts: I64  # [Q] how often each of the distinct requests is made
    axis_of_group: tuple[int, ...]  # the number of the axis of each group of the trace
    first_event: I64  # [P + 1] the first event of each place among those of all places, and at last the number of events
    place_of_event: I64  # [X] the place of each event of all places

    @cached_property
    def turn_in_place(self) -> I64:
        """[N] the position of each rank among the ranks of its place."""
        return occurrence_numbers(self.representatives.place_of_rank)

    def members(self, number: int, place: int) -> tuple[int, ...]:
        """Return the real ranks of a group, at one place, for which a group of the representatives stands.

        Args:
            number: The number of the group in the trace of the representatives.
            place: The place of the pipeline.
        """
        first = int((self.representatives.place_of_rank == place).argmax())
        groups = self.representatives.axes[self.axis_of_group[number]].ranks
        return tuple(groups[(groups == first).any(axis=1).argmax()].tolist())


def requests_by_place(representatives: Representatives) -> PlaceRequests:
    """Return the requests of the representatives of all places.

    Raises:
        InputError: Some place lacks a request that its group makes, or a message goes between two ranks of one place.
    """
    places = [representatives.place_of_rank[axis.ranks] for axis in representatives.axes]
    meets = [_first_of_meeting_places(of_axis, len(representatives.events)) for of_axis in places]
    asked, trace = role_requests(representatives.events, representatives.dtype), _trace(representatives, meets)
    each, ends = _columns(representatives, asked, places, meets)
    _check_rings(representatives, ends)
    splits, number = _splits(asked, each.n_splits)
    call = _calls(trace, asked, meets, each, ends)
    first = np.empty(call.max(initial=-1) + 1, np.int64)
    first[call[::-1]] = np.arange(len(call))[::-1]
    axis, together, src, dst = ends
    what = together, axis, src, dst, each.name, each.dtype, each.root, each.size_bytes, each.elements, number
    request, one, _ = Orbits.by_value(*(c[first] for c in what))
    at = first[one]
    examples = zip(ends[:, at].T.tolist(), zip(*each.take(at), strict=True), number[at].tolist(), strict=True)
    different = (
        _distinct(representatives, meets, asked.names, kind, RequestColumns(*own), splits[i]) for kind, own, i in examples
    )
    counts = np.bincount(request, minlength=len(at))
    axis_of_group = tuple(i for i, of in enumerate(meets) for _ in np.unique(of))
    sizes = [len(events) for events in trace.events]
    of_events = np.cumsum([0, *sizes]).astype(np.int64), np.repeat(np.arange(len(sizes)), sizes)
    asks = each.row, each.kind == Kind.SEND, call, request, tuple(different)
    return PlaceRequests(trace, *asks, representatives, counts, axis_of_group, *of_events)


def _first_of_meeting_places(places: I64, n_places: int) -> I64:
    """Return [P] for each place of the pipeline the first place with which its ranks share groups of an axis."""
    together = Orbits.by_value(components(n_places, np.repeat(places[:, 0], places.shape[1]), places))
    return together.first[together.number]


def _trace(representatives: Representatives, meets: Sequence[I64]) -> Trace:
    """Return the trace of the representatives as ranks 0 to P - 1; a group has several of them if it spans places."""
    groups: list[Group] = []
    number: dict[tuple[int, int], int] = {}
    for i, (axis, first) in enumerate(zip(representatives.axes, meets, strict=True)):
        for each in np.unique(first).tolist():
            number[i, each] = len(groups)
            groups.append(Group(axis.name, tuple(np.flatnonzero(first == each).tolist())))
    n_places = len(representatives.events)
    return Trace(
        representatives.events,
        column(np.arange(n_places), np.int32),
        tuple(groups),
        tuple(
            tuple(number[axis, int(meets[axis][place])] for axis in own) for place, own in enumerate(representatives.axes_of)
        ),
        np.zeros((n_places, len(PARTS)), np.int64) if representatives.peak_by_part is None else representatives.peak_by_part,
        representatives.meta,
    )


def _columns(
    representatives: Representatives, asked: RoleRequests, places: Sequence[I64], meets: Sequence[I64]
) -> tuple[RequestColumns, I64]:
    """Return the requests of all places, place after place, and the place to which each message goes.

    Rows are those of all events, messages have the name -1 and no root, and collectives no tag.

    Args:
        representatives: The representatives.
        asked: Their requests.
        places: For each axis, [groups, members] the place of each member.
        meets: For each axis, [P] the first of the places that share groups.

    Returns:
        The columns, and for each request [4, C] its axis, the first of the places that ask together with its own, and the
        places of a message's ends: -1 for a collective; in a ring, of which all are in one place, the second is -1 less how far
        each member sends.
    """
    first = np.cumsum([0, *map(len, representatives.events)]).tolist()
    parts, ends = [], []
    for place, (own, axes) in enumerate(zip(asked.roles, representatives.axes_of, strict=True)):
        axis, together, sends = np.array(axes, dtype=np.int64)[own.group], own.kind == Kind.COLLECTIVE, own.kind == Kind.SEND
        peer = _peers(axis, own.root, place, places)
        src, dst = (np.where(together, -1, np.where(sends == first_end, place, peer)) for first_end in (True, False))
        if representatives.rings:
            members = np.array([each.ranks.shape[1] for each in representatives.axes], dtype=np.int64)[axis]
            far = np.where(sends, own.root, -own.root) % members
            dst = np.where((src >= 0) & (src == dst), -1 - far, dst)
        met = np.array([each[place] for each in meets], dtype=np.int64)[axis]
        ends.append(np.stack((axis, met, src, dst)))
        name, root = np.where(together, own.name, -1), np.where(together, own.root, 0)
        parts.append(own._replace(row=own.row + first[place], name=name, root=root, tag=own.tag * ~together))
    return RequestColumns(*(np.concatenate(c) for c in zip(*parts, strict=True))), np.concatenate(ends, axis=1)


def _splits(asked: RoleRequests, n_splits: I64) -> tuple[list[tuple[int, ...]], I64]:
    """Return the different split sizes of all requests, and [C] which of these each request has."""
    given: list[tuple[int, ...]] = [()] * len(n_splits)
    at = [(place, row) for place, own in enumerate(asked.roles) for row in own.row[own.n_splits > 0].tolist()]
    for i, (place, row) in zip(np.flatnonzero(n_splits).tolist(), at, strict=True):
        given[i] = tuple(asked.splits(place, row).tolist())
    number = {splits: i for i, splits in enumerate(dict.fromkeys(given))}
    return list(number), np.array([number[splits] for splits in given], dtype=np.int64)


def _peers(axis: I64, root: I64, place: int, places: Sequence[I64]) -> I64:
    """Return the place of the member that each request of a place names as its peer or root."""
    groups = [each[(each == place).any(axis=1).argmax()] for each in places]
    of = np.cumsum([0, *map(len, groups)])
    return np.asarray(np.concatenate([axis[:0], *groups])[of[axis] + root])


def _check_rings(representatives: Representatives, ends: I64) -> None:
    """Check that messages between ranks of one place go round a ring of them."""
    axis, _, src, dst = ends
    within = np.flatnonzero((src >= 0) & (src == dst))
    if len(within):
        mend = "take fewer ranks, of which the whole graph is timed"
        on = f"some on {representatives.axes[int(axis[within[0]])].name}"
        raise must_be("compose", "messages", "between ranks that do other things", on, mend)


def _calls(trace: Trace, asked: RoleRequests, meets: Sequence[I64], each: RequestColumns, ends: I64) -> I64:
    """Return [C] the call of each request, place after place.

    Args:
        trace: The trace of the representatives, of whose groups places are the members.
        asked: Their requests.
        meets: For each axis, [P] the first of the places that share groups.
        each: The columns of all requests, as in `_columns`.
        ends: Where each request goes, likewise.

    Raises:
        InputError: as `members_of_calls`.
    """
    axis, _, src, dst = ends
    peer = np.where((dst < 0) | (each.kind == Kind.RECV), src, dst)
    member = np.array([occurrence_numbers(of_axis) for of_axis in meets], dtype=np.int64).reshape(
        len(meets), -1 if meets else 1
    )[axis, peer]
    far = np.maximum(-1 - dst, 0)  # messages of a ring that go equally far have tags of their own
    roots, tags = np.where(src >= 0, member, each.root), each.tag - far * (1 + each.tag.max(initial=0))
    sizes = np.cumsum([len(own.row) for own in asked.roles])[:-1]
    of_places = zip(asked.roles, np.split(roots, sizes), np.split(tags, sizes), strict=True)
    asked = asked._replace(roles=[own._replace(root=root, tag=tag) for own, root, tag in of_places], who="places")
    first = np.cumsum([0, *map(len, trace.events)])
    call, n_calls = np.empty(first[-1], np.int64), 0
    for place, rows in members_of_calls(asked, equivalent_groups(trace)):
        call[first[place] + rows] = n_calls + np.arange(len(rows))[:, None]
        n_calls += len(rows)
    return call[each.row]


def _distinct(
    representatives: Representatives,
    meets: Sequence[I64],
    names: Sequence[str],
    kind: Sequence[int],
    one: RequestColumns,
    splits: tuple[int, ...],
) -> DistinctRequest:
    """Return the distinct request that a row of the columns describes, with all groups that make it.

    Args:
        representatives: The representatives.
        meets: For each axis, [P] the first of the places that share groups.
        names: The words to which the columns refer.
        kind: Where the request goes, as in `_columns`.
        one: The row.
        splits: Its split sizes.
    """
    axis, together, src, dst = kind
    every = representatives.axes[axis].ranks
    of = representatives.place_of_rank[every]
    if src >= 0 > dst:
        there = every[(of == src).all(axis=1)]
        ranks = np.stack((there, np.roll(there, dst + 1, axis=1)), axis=-1).reshape(-1, 2)
    elif src >= 0:
        there = (of == src).any(axis=1) & (of == dst).any(axis=1)
        ranks = np.stack([every[there][of[there] == end] for end in (src, dst)], axis=1)
    else:
        ranks = every[meets[axis][of[:, 0]] == together]
    said = MESSAGE if src >= 0 else names[int(one.name)], names[int(one.dtype)]
    amounts = int(one.root), int(one.size_bytes), int(one.elements)
    name = representatives.axes[axis].name
    return DistinctRequest(axis, name, *said, *amounts, splits, ranks, choosing(ranks, every), RequestWay(*kind))


def choosing(ranks: I64, every: I64) -> I64:
    """Return the groups [.., members] that choose an algorithm: `ranks` on an axis of few groups, else the first of `every`.

    Args:
        ranks: [groups, members] the groups that make a request.
        every: [groups, members] all groups of the axis.
    """
    return ranks if len(every) <= CHOOSING else every[:1]
