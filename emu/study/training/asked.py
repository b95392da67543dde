"""What one rank of each place of a pipeline asks for, and which of it is the same request again.

A axes, P places, C requests of all these ranks, M meetings of them, Q different requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool, column
from emu.errors import InputError, must_be
from emu.model.generate.generate import members
from emu.model.generate.tape import Tape
from emu.model.plan import Plan
from emu.trace.requests import MESSAGE
from emu.trace.trace import PARTS, Events, Group, Kind, Trace

CHOOSING = 64  # groups of an axis, up to which each has a choice of its own


@dataclass(frozen=True, eq=False, slots=True)
class Different:
    """A request, and all groups of its axis that ask for it at once."""

    axis: int
    name: str  # the operation, or MESSAGE
    dtype: str
    root: int
    size_bytes: int
    elements: int
    splits: tuple[int, ...]  # elements of each block that a member gives; (): an even cut
    ranks: I64  # [groups, members]
    choosing: I64  # [.., members] the groups that choose what serves them: each, or for all of an axis its first
    kind: tuple[int, ...]  # equal for those that come one after another: of one axis, place and ends


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """The requests of the ranks that stand for all of their place."""

    trace: Trace  # of P ranks, one a place
    event: I64  # [C] among the events of all these ranks, rank after rank
    sends: Bool  # [C] whether it is the send of a message
    meeting: I64  # [C] in which it meets the others of its group
    different: I64  # [M] which of the different requests each meeting is for
    requests: tuple[Different, ...]  # [Q]


class _Columns(NamedTuple):
    """[C]."""

    event: I64
    asker: I64  # its place
    place: I64  # of the rank that asks; -1 where places ask together
    axis: I64
    src: I64  # place of a message's ends; -1 of a collective
    dst: I64
    instance: I64
    tag: I64
    name: I64  # into words, as `dtype`
    dtype: I64
    root: I64
    size_bytes: I64
    elements: I64
    splits: I64  # into those that occur


def asked_by(tapes: Sequence[Tape], plan: Plan, meta: tuple[tuple[str, str], ...] = ()) -> Asked:
    """What ranks that stand for their places ask for.

    Args:
        tapes: [P] of one rank of each place.
        plan: How ranks are grouped.
        meta: Of the trace.

    Raises:
        InputError: places that do not meet, or messages between ranks of one place, which the one that stands for them has not.
    """
    axes = list(dict.fromkeys(axis for tape in tapes for axis in tape.axes))
    rows = {axis: members(plan, axis) for axis in axes}
    across = [bool((rows[axis] // plan.stage_ranks != rows[axis][:, :1] // plan.stage_ranks).any()) for axis in axes]
    trace = _trace(tapes, axes, rows, across, plan, meta)
    words: dict[object, int] = {}
    columns = _columns(trace, tapes, axes, np.array(across, dtype=np.bool_), words)
    within = np.flatnonzero((columns.src >= 0) & ~np.array(across, dtype=np.bool_)[columns.axis])
    if len(within):
        axis = axes[int(columns.axis[within[0]])]
        mend = "take cp_comm=all_gather, or fewer ranks, of which the whole graph is timed"
        raise must_be("compose", "messages", "between stages in a step of so many ranks", f"some on {axis}", mend)
    meeting, first, size = _equal((columns.axis, columns.place, columns.src, columns.dst, columns.tag, columns.instance))
    _check(columns, size[meeting], [rows[axis].shape[1] if far else 1 for axis, far in zip(axes, across, strict=True)])
    same = (*columns[2:6], *columns[8:])
    request, one, _ = _equal(tuple(c[first] for c in same))
    different = tuple(_different(columns, int(first[i]), list(words), rows, axes, plan) for i in one)
    return Asked(trace, columns.event, columns.asker == columns.src, meeting, request, different)


def _trace(
    tapes: Sequence[Tape],
    axes: Sequence[str],
    rows: dict[str, I64],
    across: Sequence[bool],
    plan: Plan,
    meta: tuple[tuple[str, str], ...],
) -> Trace:
    """Of the ranks that stand for their places, each alone in its groups but in those that reach over places."""
    groups: list[Group] = []
    number: dict[tuple[str, int], int] = {}
    for axis, far in zip(axes, across, strict=True):
        places = (rows[axis][0] // plan.stage_ranks).tolist() if far else []
        for own in [tuple(places)] if far else [(place,) for place in range(plan.pp)]:
            number |= {(axis, place): len(groups) for place in own}
            groups.append(Group(axis, own))
    return Trace(
        tuple(tape.events() for tape in tapes),
        column(np.arange(plan.pp), np.int32),
        tuple(groups),
        tuple(tuple(number[axis, place] for axis in tape.axes) for place, tape in enumerate(tapes)),
        np.zeros((plan.pp, len(PARTS)), np.int64),
        meta,
    )


def _columns(trace: Trace, tapes: Sequence[Tape], axes: Sequence[str], across: Bool, words: dict[object, int]) -> _Columns:
    first = np.cumsum([0, *map(len, trace.events)])
    parts = []
    for place, (events, tape) in enumerate(zip(trace.events, tapes, strict=True)):
        at = np.flatnonzero((events.kind != Kind.COMPUTE) & (events.kind != Kind.MARK))
        axis = np.array([axes.index(name) for name in tape.axes], dtype=np.int64)[events.group[at]]
        parts.append(_of_place(events, at, axis, place, across, words)._replace(event=at + first[place]))
    return _Columns(*(np.concatenate(c) for c in zip(*parts, strict=True)))


def _of_place(events: Events, at: I64, axis: I64, place: int, across: Bool, words: dict[object, int]) -> _Columns:
    kind, peer, tag, instance, size, elements = (
        c[at].astype(np.int64) for c in (events.kind, events.root, events.tag, events.instance, events.bytes, events.count)
    )
    together = kind == Kind.COLLECTIVE
    src = np.where(together, -1, np.where(kind == Kind.SEND, place, peer))
    dst = np.where(together, -1, np.where(kind == Kind.SEND, peer, place))
    names = [events.name[i] if one else MESSAGE for i, one in zip(at.tolist(), together.tolist(), strict=True)]
    name, dtype = _numbers(names, words), _numbers([events.dtype[i] for i in at.tolist()], words)
    given = [tuple(events.split[events.split_start[i] : events.split_start[i + 1]].tolist()) for i in at.tolist()]
    own = np.where(across[axis] | ~together, -1, place)
    what = (name, dtype, np.where(together, peer, 0), size, elements, _numbers(given, words))
    return _Columns(at, np.full_like(at, place), own, axis, src, dst, instance, tag * ~together, *what)


def _numbers(found: Sequence[object], words: dict[object, int]) -> I64:
    return np.array([words.setdefault(each, len(words)) for each in found], dtype=np.int64)


def _equal(columns: Sequence[I64]) -> tuple[I64, I64, I64]:
    """[C] a number that rows with equal columns share; of each number the first row, and how many there are."""
    key = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        _, code = np.unique(values, return_inverse=True)
        key = np.unique(key * (int(code.max(initial=0)) + 1) + code, return_inverse=True)[1]
    _, first, number, size = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    return column(number, np.int64), column(first, np.int64), column(size, np.int64)


def _check(columns: _Columns, size: I64, members_across: Sequence[int]) -> None:
    """Both ends of each message, and all places of a request that reaches over places, must be there."""
    needed = np.where(columns.src >= 0, 2, np.array([1, *members_across])[columns.axis + 1])
    lonely = np.flatnonzero(size != needed)
    if len(lonely):
        row = lonely[0]
        ends = f"between places {columns.src[row]} and {columns.dst[row]}" if columns.src[row] >= 0 else "over all places"
        raise InputError(f"compose: a request {ends} must be asked by {needed[row]} of them, got {size[row]}")


def _different(
    columns: _Columns, row: int, words: list[object], rows: dict[str, I64], axes: Sequence[str], plan: Plan
) -> Different:
    axis, place, src, dst = (int(c[row]) for c in (columns.axis, columns.place, columns.src, columns.dst))
    ranks = every = rows[axes[axis]]
    if src >= 0:
        ranks = ranks[:, [src, dst]]
    elif place >= 0:
        ranks = ranks[ranks[:, 0] // plan.stage_ranks == place]
    splits, kind = words[columns.splits[row]], (axis, place, src, dst)
    said = (str(words[columns.name[row]]), str(words[columns.dtype[row]]))
    amounts = int(columns.root[row]), int(columns.size_bytes[row]), int(columns.elements[row])
    given = splits if isinstance(splits, tuple) else ()
    return Different(axis, *said, *amounts, given, ranks, choosing(ranks, every), kind)


def choosing(ranks: I64, every: I64) -> I64:
    """Of groups [groups, members] that ask at once those that choose what serves them; `every` group of the axis is given."""
    return ranks if len(every) <= CHOOSING else every[:1]
