"""Where ranks meet in a trace: the members of one collective, both ends of one message.

X events of all ranks, rank after rank; C requests among them, with S split sizes of all roles.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I16, I64, Bool
from emu.collective.algorithm import Request
from emu.collective.operation import operation
from emu.errors import InputError, must_be
from emu.trace.device import timed_bytes
from emu.trace.split import packed_blocks
from emu.trace.trace import Events, Kind, Trace

MESSAGE = "message"


class Meeting(NamedTuple):
    """One collective on a group, or one message from member 0 to member 1."""

    name: str  # the operation, or MESSAGE
    group: int  # index into the trace's groups
    ranks: tuple[int, ...]  # members in order
    events: I64  # [members] which of the X events each one's request is
    root: int
    size_bytes: int  # as timed
    elements: int
    dtype: str  # that ran
    blocks: bytes  # elements of each block, as `emu.trace.split` packs them; none: an even cut of `elements`

    @property
    def request(self) -> Request:
        """What was asked, as it ran."""
        return Request(self.name, self.ranks, self.root, self.elements, self.dtype)


class _Requests(NamedTuple):
    """Columns [C]."""

    event: I64  # among X
    rank: I64
    kind: I64
    group: I64  # index into the trace's groups
    member: I64  # the rank's place in the group; -1 if it is not in it
    instance: I64
    root: I64
    tag: I64
    name: I64  # index into a list of words, as `dtype`
    dtype: I64
    size_bytes: I64  # as timed
    elements: I64
    setup: I64  # 1 if it is of step 0
    first_split: I64  # among S
    n_splits: I64

    def take(self, which: I64 | Bool | slice) -> "_Requests":
        return _Requests(*(c[which] for c in self))


class _Asked(NamedTuple):
    """All requests, and what they refer to."""

    requests: _Requests
    names: list[str]
    splits: I64  # [S]


def meetings_of(trace: Trace, dtype: str) -> Iterator[Meeting]:
    """Every collective and message but those of set-up, in no order that matters.

    Args:
        trace: Of all ranks.
        dtype: What float32 is timed as.

    Raises:
        InputError: an unknown dtype; members that are missing or do not agree; a message that nobody sends or receives.
    """
    asked = _asked(trace, dtype)
    together = asked.requests.kind == Kind.COLLECTIVE
    yield from _collectives(trace, asked._replace(requests=asked.requests.take(together)))
    yield from _messages(trace, asked._replace(requests=asked.requests.take(~together)))


def requests_of(trace: Trace) -> list[Request]:
    """The different requests for collectives, but those of set-up.

    Raises:
        InputError: members of one that are missing or do not agree.
    """
    asked = _asked(trace, "float32")
    met = _collectives(trace, asked._replace(requests=asked.requests.take(asked.requests.kind == Kind.COLLECTIVE)))
    return list(dict.fromkeys(meeting.request for meeting in met))


def _asked(trace: Trace, dtype: str) -> _Asked:
    names = sorted({w for e in trace.events for i in np.flatnonzero(_asks(e.kind)) for w in (e.name[i], e.dtype[i])})
    number = {name: i for i, name in enumerate(names)}
    first = np.cumsum([0, *(len(e.split) for e in trace.events)]).tolist()
    roles = [_of_role(e, number, dtype, low) for e, low in zip(trace.events, first, strict=False)]
    splits = np.concatenate([np.empty(0, np.int64), *(e.split for e in trace.events)])
    return _Asked(_of_ranks(trace, roles), names, splits)


def _asks(kind: I16) -> Bool:
    return np.asarray((kind == Kind.COLLECTIVE) | (kind == Kind.SEND) | (kind == Kind.RECV))


def _of_role(events: Events, number: dict[str, int], dtype: str, first_split: int) -> _Requests:
    """The requests of a role, as a rank of number 0 would make them on groups of the role's numbers."""
    at = np.flatnonzero(_asks(events.kind))
    names, dtypes = (np.array([number[words[i]] for i in at], dtype=np.int64) for words in (events.name, events.dtype))
    kind, group, instance, root, tag, elements, step = (
        c[at].astype(np.int64)
        for c in (events.kind, events.group, events.instance, events.root, events.tag, events.count, events.step)
    )
    none = np.zeros_like(at)
    size = timed_bytes(events, dtype)[at]
    setup = (step == 0).astype(np.int64)
    split = events.split_start[at] + first_split, np.diff(events.split_start)[at]
    return _Requests(at, none, kind, group, none, instance, root, tag, names, dtypes, size, elements, setup, *split)


def _of_ranks(trace: Trace, roles: list[_Requests]) -> _Requests:
    places = [{rank: i for i, rank in enumerate(g.ranks)} for g in trace.groups]
    first, parts = 0, []
    for rank, role in enumerate(trace.role_of_rank.tolist()):
        asked = roles[role]
        groups = np.array([*trace.group_of[rank], -1], dtype=np.int64)
        own = np.array([*(places[g].get(rank, -1) for g in trace.group_of[rank]), -1], dtype=np.int64)
        parts.append(
            asked._replace(
                event=asked.event + first,
                rank=np.full_like(asked.event, rank),
                group=groups[asked.group],
                member=own[asked.group],
            )
        )
        first += len(trace.events[role])
    return _Requests(*(np.concatenate(c) for c in zip(*parts, strict=True)))


def _collectives(trace: Trace, asked: _Asked) -> Iterator[Meeting]:
    requests, names, splits = asked
    requests = requests.take(np.lexsort((requests.member, requests.instance, requests.group)))
    for members in _runs(requests, np.stack((requests.group, requests.instance))):
        group, name = trace.groups[members.group[0]], names[members.name[0]]
        what = f"{name} {members.instance[0]} on group {group.axis!r}"
        if members.member.tolist() != list(range(len(group.ranks))):
            raise InputError(f"replay: {what} must be asked by ranks {group.ranks}, got {tuple(members.rank.tolist())}")
        if _differ(members.name) or _differ(members.root):
            asked_for = tuple((names[n], r) for n, r in zip(members.name, members.root.tolist(), strict=True))
            raise InputError(f"replay: {what} must be one operation and root of all members, got {asked_for}")
        if not members.setup.any():
            yield _meeting(name, members, names, _blocks(what, name, members, splits))


def _blocks(what: str, name: str, members: _Requests, splits: I64) -> bytes:
    """The elements of each block, from what each member gives; nothing where all give even ones."""
    ends = zip(members.first_split.tolist(), members.n_splits.tolist(), strict=True)
    given = [splits[first : first + n] for first, n in ends]
    op = operation(name, len(given), int(members.root[0]))
    return packed_blocks(what, op, given, int(members.elements[0])) if any(map(len, given)) else b""


def _messages(trace: Trace, whole: _Asked) -> Iterator[Meeting]:
    """The n-th send of each (group, src, dst, tag) with the n-th receive."""
    asked, names, _ = whole
    of_group = [np.array(g.ranks) for g in trace.groups]
    peer = np.array([of_group[g][r] for g, r in zip(asked.group, asked.root, strict=True)], dtype=np.int64)
    sends = asked.kind == Kind.SEND
    src, dst = np.where(sends, asked.rank, peer), np.where(sends, peer, asked.rank)
    order = np.lexsort((asked.event, asked.kind, asked.tag, dst, src, asked.group))
    ends = np.stack((asked.group, src, dst, asked.tag))[:, order]
    for both in _runs(asked.take(order), ends):
        half, kinds = len(both.event) // 2, both.kind.tolist()
        if kinds != [Kind.SEND] * half + [Kind.RECV] * half:
            what = f"{kinds.count(Kind.SEND)} sends and {kinds.count(Kind.RECV)} receives of tag {both.tag[0]}"
            peers = sorted({*both.rank.tolist(), *peer[asked.event == both.event[0]].tolist()})
            between = f"messages between ranks {peers} on group {trace.groups[both.group[0]].axis!r}"
            raise InputError(f"replay: {between} must be sent and received equally often, got {what}")
        for n in range(half):
            pair = both.take(np.array([n, n + half]))
            if not pair.setup.any():
                yield _meeting(MESSAGE, pair, names, b"")


def _runs(asked: _Requests, keys: I64) -> Iterator[_Requests]:
    """Runs of requests with equal keys [any, C]."""
    start = np.flatnonzero(np.diff(keys, prepend=keys[:, :1] - 1).any(axis=0)).tolist()
    for low, high in pairwise([*start, keys.shape[1]]):
        yield asked.take(slice(low, high))


def _differ(values: I64) -> bool:
    return bool((values != values[0]).any())


def _meeting(name: str, members: _Requests, names: list[str], blocks: bytes) -> Meeting:
    ranks = tuple(members.rank.tolist())
    if _differ(members.size_bytes) or _differ(members.elements):
        sizes = tuple(zip(members.size_bytes.tolist(), members.elements.tolist(), strict=True))
        what = f"bytes and count of {name} {members.instance[0]} of ranks {ranks}"
        raise must_be("replay", what, "the same at all of them", sizes, "what each gives is told by split sizes")
    return Meeting(
        name,
        int(members.group[0]),
        ranks,
        members.event,
        int(members.root[0]),
        int(members.size_bytes[0]),
        int(members.elements[0]),
        names[members.dtype[0]],
        blocks,
    )
