"""Which requests of a trace are one: what groups of one communicator ask alike, sent as one schedule on all of them at once.

M meetings of K kinds, a kind being what groups that are alike ask for; G groups of the trace.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice, Request, Served
from emu.trace.matching.role_requests import MESSAGE, CallSpec, MatchedCalls
from emu.trace.matching.call_order import CallMembers, CallTable
from emu.trace.trace import Group


class BatchKey(NamedTuple):
    """What the meetings of a batch have in common."""

    communicator: int
    served: Served | None  # None: messages
    name: str  # the operation, or MESSAGE
    n_ranks: int  # of each meeting
    root: int
    size_bytes: int
    elements: int
    blocks: bytes  # as of an `CallSpec`


class CallBatch(NamedTuple):
    """Meetings that differ only in who meets: no rank is in two, though it may send one message and receive another."""

    what: BatchKey
    ranks: I64  # [meetings, members]
    rows: I64  # [meetings, members] which event of its role each one's request is
    requests: tuple[Request, ...]  # the different ones for a collective that no batch before has


def communicators(groups: Sequence[Group]) -> list[int]:
    """[G] the number of each group's communicator: groups of one axis that share no rank have one in common."""
    layers: defaultdict[str, list[tuple[int, set[int]]]] = defaultdict(list)
    numbers: list[int] = []
    for group in groups:
        room = next((layer for layer in layers[group.axis] if layer[1].isdisjoint(group.ranks)), None)
        if room is None:
            room = (len({*numbers}), set())
            layers[group.axis].append(room)
        room[1].update(group.ranks)
        numbers.append(room[0])
    return numbers


def batches_of(
    meetings: Sequence[MatchedCalls], groups: Sequence[Group], numbers: Sequence[int], choice: Choice, *, apart: bool
) -> list[CallBatch]:
    """The meetings in batches: the first of each group, then the second, as its ranks come to them.

    Args:
        meetings: [K] of all ranks; at least one of each kind.
        groups: [G].
        numbers: [G] the communicator of each group.
        choice: What serves collectives.
        apart: Whether each is left alone, as where optical switches turn and one group waits for another.
    """
    if not meetings:
        return []
    whats: dict[BatchKey, int] = {}
    table = CallTable.of(meetings, [_numbered(met, groups, numbers, choice, whats) for met in meetings])
    number = np.arange(len(table.kind)) if apart else _batches(table, len(groups))
    order = np.argsort(number, kind="stable")
    table, number = table.take(order), number[order]
    requests: defaultdict[int, list[Request]] = defaultdict(list)
    for at, request in _requests(table, meetings, groups):
        requests[int(number[at])].append(request)
    members, found = CallMembers.of(table, meetings), list(whats)
    spans = pairwise([*np.flatnonzero(np.diff(number, prepend=-1)).tolist(), len(number)])
    return [
        CallBatch(found[table.what[low]], *members.between(low, high), tuple(requests[i])) for i, (low, high) in enumerate(spans)
    ]


def _numbered(met: MatchedCalls, groups: Sequence[Group], numbers: Sequence[int], choice: Choice, whats: dict[BatchKey, int]) -> I64:
    """[groups of the kind, asks] the number of what is asked; new ones are added."""
    of_groups = [(numbers[group], groups[group]) for group in met.groups.tolist()]
    return np.array([[whats.setdefault(_what(ask, *of, choice), len(whats)) for ask in met.asks] for of in of_groups], np.int64)


def _what(ask: CallSpec, communicator: int, group: Group, choice: Choice) -> BatchKey:
    if ask.name == MESSAGE:
        return BatchKey(communicator, None, MESSAGE, 2, 0, ask.size_bytes, 0, b"")
    served = choice.served(ask.request(group))
    return BatchKey(communicator, served, ask.name, len(group.ranks), ask.root, ask.size_bytes, ask.elements, ask.blocks)


def _batches(table: CallTable, n_groups: int) -> I64:
    """[M] the batch of each meeting, by when the first of a batch comes."""
    code = table.what * n_groups + table.number
    order = np.argsort(code, kind="stable")
    ordered, level = code[order], np.empty_like(code)
    level[order] = np.arange(len(code)) - np.searchsorted(ordered, ordered)  # members of a collective have met as often
    level = np.where(table.level < 0, level, table.level)
    _, first, which = np.unique(table.what * len(code) + level, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[which])


def _requests(table: CallTable, meetings: Sequence[MatchedCalls], groups: Sequence[Group]) -> Iterator[tuple[int, Request]]:
    """The different requests for collectives, each with the first meeting that is for it."""
    together = np.flatnonzero(table.level < 0)
    most = max(len(met.asks) for met in meetings)
    _, first = np.unique(table.number[together] * most + table.ask[together], return_index=True)  # a group is of one kind
    for at in np.sort(together[first]).tolist():
        yield at, meetings[table.kind[at]].asks[table.ask[at]].request(groups[table.number[at]])
