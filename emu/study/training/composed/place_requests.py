"""The requests of one rank of each place, and which of them are equal.

A place is a set of ranks that one rank stands for: all ranks of a stage of a pipeline, or the ranks of a script that do the
same work. That one rank is the representative of the place.
A axes, N ranks, P places, C requests of the representatives, M calls of them, Q distinct requests. A call is a
collective, or a send and its receive, as the representatives see it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool, column, equal_rows
from emu.errors import InputError, must_be
from emu.model.generate.generate import members
from emu.model.generate.tape import Tape
from emu.model.plan.plan import Plan
from emu.trace.device.dtypes import timed_bytes
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.trace import PARTS, Events, Group, Kind, Trace

CHOOSING = 64  # groups of an axis, up to which each has a choice of its own


@dataclass(frozen=True, eq=False, slots=True)
class DistinctRequest:
    """A request, and all groups of its axis that make it at one time."""

    axis: int
    axis_name: str
    name: str  # the operation, or MESSAGE
    dtype: str
    root: int
    size_bytes: int
    elements: int
    splits: tuple[int, ...]  # elements of each block that a member gives; (): an even cut
    ranks: I64  # [groups, members]
    choosing: I64  # [.., members] the groups that choose what serves them: each, or for all of an axis its first
    kind: tuple[int, ...]  # equal for those that come one after another: of one axis, place and ends


@dataclass(frozen=True, eq=False)
class PlaceRequests:
    """The requests of the representatives of all places."""

    trace: Trace  # of P ranks, one a place
    event: I64  # [C] among the events of all these ranks, rank after rank
    sends: Bool  # [C] whether it is the send of a message
    call: I64  # [C] the call that each request belongs to
    different: I64  # [M] which of the different requests each call is for
    requests: tuple[DistinctRequest, ...]  # [Q]
    of: "Representatives"
    axis_of_group: tuple[int, ...]  # of each group of the trace

    @cached_property
    def first_event(self) -> I64:
        """[P + 1] the first event of each place among those of all places, and the number of these."""
        return np.cumsum([0, *map(len, self.trace.events)]).astype(np.int64)

    @cached_property
    def place_of_event(self) -> I64:
        """The place of each event of all places."""
        return np.repeat(np.arange(len(self.trace.events)), np.diff(self.first_event))

    @cached_property
    def turn_in_place(self) -> I64:
        """[N] how many ranks of its place come before each rank."""
        places = self.of.place_of_rank
        order, turn = np.argsort(places, kind="stable"), np.empty(len(places), np.int64)
        turn[order] = np.arange(len(places)) - np.searchsorted(places[order], places[order])
        return turn


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """The groups into which one axis divides the ranks."""

    name: str
    ranks: I64  # [groups, members]


@dataclass(frozen=True, eq=False, slots=True)
class Representatives:
    """One rank of each place, with its events; it stands for all ranks of the place."""

    events: tuple[Events, ...]  # [P]
    axes_of: tuple[tuple[int, ...], ...]  # [P] the axis of each group, as the rank numbers it
    axes: tuple[Axis, ...]  # [A]
    place_of_rank: I64  # [N]
    meta: tuple[tuple[str, str], ...] = ()  # of the trace
    peak_by_part: I64 | None = None  # [P, parts of memory] of all ranks of a place the most; None: it is known otherwise
    dtype: str = "float32"  # what float32 is timed as
    rings: bool = False  # whether each is the first of its groups, and the others of its place send as far as it does

    def beside(self, rank: int, place: int, waited: Sequence[str] = ()) -> int:
        """Return the rank of a place that a rank waits for.

        Groups of the axes in `waited` are searched first. The answer is the lowest rank of the place in a group of the waiting
        rank. If these groups have no rank of the place, the groups of their members are searched, and so on.

        Args:
            rank: The rank that waits.
            place: The place of the rank that it waits for.
            waited: Names of axes, the longest wait first.
        """
        axes = sorted(self.axes, key=lambda axis: waited.index(axis.name) if axis.name in waited else len(waited))
        reached = np.array([rank])
        for _ in range(len(self.events) + 1):
            groups = [axis.ranks[np.isin(axis.ranks, reached).any(axis=1)].ravel() for axis in axes]
            found = (group[(self.place_of_rank[group] == place) & (group != rank)] for group in groups)
            nearest = next((int(others.min()) for others in found if len(others)), None)
            if nearest is not None:
                return nearest
            reached = np.unique(np.concatenate([reached, *groups]))
        return int(np.flatnonzero(self.place_of_rank == place)[0])


class _Columns(NamedTuple):
    """The columns [C] of the requests."""

    event: I64
    sends: Bool  # whether it is the send of a message
    together: I64  # the first of the places that ask together with that of the rank that asks
    axis: I64
    src: I64  # place of a message's ends; -1 of a collective
    dst: I64  # ... in a ring, of which all are in one place, -1 less how far each member sends
    instance: I64
    tag: I64
    name: I64  # into words, as `dtype`
    dtype: I64
    root: I64
    size_bytes: I64
    elements: I64
    splits: I64  # into those that occur


def representatives_of_plan(tapes: Sequence[Tape], plan: Plan, meta: tuple[tuple[str, str], ...] = ()) -> Representatives:
    """Return one rank of each stage of a plan.

    Args:
        tapes: [P] the tape of one rank of each place.
        plan: The plan, which gives the groups of ranks.
        meta: The meta data of the trace.
    """
    axes = list(dict.fromkeys(axis for tape in tapes for axis in tape.axes))
    return Representatives(
        tuple(tape.events() for tape in tapes),
        tuple(tuple(axes.index(axis) for axis in tape.axes) for tape in tapes),
        tuple(Axis(axis, members(plan, axis)) for axis in axes),
        np.arange(plan.world) // plan.stage_ranks,
        meta,
        rings=True,
    )


@lru_cache(maxsize=1)  # of one plan several placements are asked for one after another
def place_requests(standing: Representatives) -> PlaceRequests:
    """Return the requests of the representatives of all places.

    Raises:
        InputError: Some place lacks a request that its group makes, or a message goes between two ranks of one place.
    """
    places = [standing.place_of_rank[axis.ranks] for axis in standing.axes]
    meets = [_together(of_axis, len(standing.events)) for of_axis in places]
    words: dict[object, int] = {}
    columns = _columns(standing, places, meets, words)
    within = np.flatnonzero((columns.src >= 0) & (columns.src == columns.dst))
    if len(within):
        axis = standing.axes[int(columns.axis[within[0]])].name
        mend = "take fewer ranks, of which the whole graph is timed"
        raise must_be("compose", "messages", "between ranks that do other things", f"some on {axis}", mend)
    call, first, size = equal_rows((columns.axis, columns.together, columns.src, columns.dst, columns.tag, columns.instance))
    _check(columns, size[call], [np.bincount(each, minlength=len(standing.events)) for each in meets])
    request, one, _ = equal_rows(tuple(c[first] for c in (*columns[2:6], *columns[8:])))
    different = tuple(_different(columns, int(first[i]), list(words), standing, places, meets) for i in one)
    trace, axis_of_group = _trace(standing, meets), tuple(i for i, first in enumerate(meets) for _ in np.unique(first))
    return PlaceRequests(trace, columns.event, columns.sends, call, request, different, standing, axis_of_group)


def _together(places: I64, n_places: int) -> I64:
    """Return [P] the first of the places that share groups on an axis, given the places [groups, members] of its groups."""
    first = np.arange(n_places)
    for group in np.unique(np.sort(places, axis=1), axis=0):
        of = first[np.unique(group)]
        first[np.isin(first, of)] = of.min()
    return first


def _trace(standing: Representatives, meets: Sequence[I64]) -> Trace:
    """Return the trace of the representatives; a group holds several of them if it reaches over places."""
    groups: list[Group] = []
    number: dict[tuple[int, int], int] = {}
    for i, (axis, first) in enumerate(zip(standing.axes, meets, strict=True)):
        for each in np.unique(first).tolist():
            number[i, each] = len(groups)
            groups.append(Group(axis.name, tuple(np.flatnonzero(first == each).tolist())))
    n_places = len(standing.events)
    return Trace(
        standing.events,
        column(np.arange(n_places), np.int32),
        tuple(groups),
        tuple(tuple(number[axis, int(meets[axis][place])] for axis in own) for place, own in enumerate(standing.axes_of)),
        np.zeros((n_places, len(PARTS)), np.int64) if standing.peak_by_part is None else standing.peak_by_part,
        standing.meta,
    )


def _columns(standing: Representatives, places: Sequence[I64], meets: Sequence[I64], words: dict[object, int]) -> _Columns:
    """Return the columns of the requests of all places, place after place."""
    first = np.cumsum([0, *map(len, standing.events)])
    parts = []
    for place, (events, axes) in enumerate(zip(standing.events, standing.axes_of, strict=True)):
        at = np.flatnonzero((events.kind != Kind.COMPUTE) & (events.kind != Kind.MARK))
        axis = np.array(axes, dtype=np.int64)[events.group[at]]
        size = timed_bytes(events, standing.dtype)[at]
        own = _of_place(events, at, axis, place, places, meets, words)
        own = own._replace(event=at + first[place], size_bytes=size)
        parts.append(_with_rings(own, events.root[at].astype(np.int64), standing) if standing.rings else own)
    return _Columns(*(np.concatenate(c) for c in zip(*parts, strict=True)))


def _with_rings(own: _Columns, root: I64, standing: Representatives) -> _Columns:
    """Return the same columns, where a message within a place says how many members further each member sends."""
    members = np.array([axis.ranks.shape[1] for axis in standing.axes], dtype=np.int64)[own.axis]
    far = np.where(own.sends, root, -root) % members
    return own._replace(dst=np.where((own.src >= 0) & (own.src == own.dst), -1 - far, own.dst))


def _of_place(
    events: Events, at: I64, axis: I64, place: int, places: Sequence[I64], meets: Sequence[I64], words: dict[object, int]
) -> _Columns:
    """Return the columns of the requests of one place.

    Args:
        events: The events of its representative.
        at: [C] the rows of the requests among the events.
        axis: [C] the axis of each request.
        place: The number of the place.
        places: For each axis, [groups, members] the place of each member.
        meets: For each axis, [P] the first of the places that share groups.
        words: The numbers given to names so far; new names are added.
    """
    kind, root, tag, instance, elements = (
        c[at].astype(np.int64) for c in (events.kind, events.root, events.tag, events.instance, events.count)
    )
    together, sends = kind == Kind.COLLECTIVE, kind == Kind.SEND
    peer = _peers(axis, root, place, places)
    src = np.where(together, -1, np.where(sends, place, peer))
    dst = np.where(together, -1, np.where(sends, peer, place))
    names = [events.name[i] if one else MESSAGE for i, one in zip(at.tolist(), together.tolist(), strict=True)]
    name, dtype = _numbers(names, words), _numbers([events.dtype[i] for i in at.tolist()], words)
    given = [tuple(events.split[events.split_start[i] : events.split_start[i + 1]].tolist()) for i in at.tolist()]
    own = np.array([each[place] for each in meets], dtype=np.int64)[axis]
    what = (name, dtype, np.where(together, root, 0), at, elements, _numbers(given, words))
    return _Columns(at, sends, own, axis, src, dst, instance, tag * ~together, *what)


def _peers(axis: I64, root: I64, place: int, places: Sequence[I64]) -> I64:
    """Return the place of the member that each request of a place names by its number in the group."""
    groups = [each[(each == place).any(axis=1).argmax()] for each in places]
    of = np.cumsum([0, *map(len, groups)])
    return np.asarray(np.concatenate([axis[:0], *groups])[of[axis] + root])


def _numbers(found: Sequence[object], words: dict[object, int]) -> I64:
    """Return [C] the number of each word; a new word gets the next number."""
    return np.array([words.setdefault(each, len(words)) for each in found], dtype=np.int64)


def _check(columns: _Columns, size: I64, places_of: Sequence[I64]) -> None:
    """Refuse a message without both ends, and a request that some of its places do not make."""
    together = np.array([len(each) for each in places_of], dtype=np.int64)
    needed = np.concatenate([columns.axis[:0], *places_of])[(np.cumsum(together) - together)[columns.axis] + columns.together]
    needed = np.where(columns.src >= 0, 2, needed)
    lonely = np.flatnonzero(size != needed)
    if len(lonely):
        row = lonely[0]
        ends = f"between places {columns.src[row]} and {columns.dst[row]}" if columns.src[row] >= 0 else "over all places"
        raise InputError(f"compose: a request {ends} must be asked by {needed[row]} of them, got {size[row]}")


def _different(
    columns: _Columns, row: int, words: list[object], standing: Representatives, places: Sequence[I64], meets: Sequence[I64]
) -> DistinctRequest:
    """Return the distinct request that a row of the columns is an example of, with all groups that make it."""
    axis, together, src, dst = (int(c[row]) for c in (columns.axis, columns.together, columns.src, columns.dst))
    ranks, of = standing.axes[axis].ranks, places[axis]
    every = ranks
    if src >= 0 > dst:
        there = ranks[(of == src).all(axis=1)]
        ranks = np.stack((there, np.roll(there, dst + 1, axis=1)), axis=-1).reshape(-1, 2)
    elif src >= 0:
        there = (of == src).any(axis=1) & (of == dst).any(axis=1)
        ends = [ranks[there][of[there] == end] for end in (src, dst)]
        ranks = np.stack(ends, axis=1)
    else:
        ranks = ranks[meets[axis][of[:, 0]] == together]
    splits, kind = words[columns.splits[row]], (axis, together, src, dst)
    said = (str(words[columns.name[row]]), str(words[columns.dtype[row]]))
    amounts = int(columns.root[row]), int(columns.size_bytes[row]), int(columns.elements[row])
    given = splits if isinstance(splits, tuple) else ()
    return DistinctRequest(axis, standing.axes[axis].name, *said, *amounts, given, ranks, choosing(ranks, every), kind)


def choosing(ranks: I64, every: I64) -> I64:
    """Return the groups [.., members] that choose an algorithm: every group of a small axis, else the first group.

    Args:
        ranks: [groups, members] the groups that make a request.
        every: [groups, members] all groups of the axis.
    """
    return ranks if len(every) <= CHOOSING else every[:1]
