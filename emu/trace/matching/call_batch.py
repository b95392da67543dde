"""Batches of calls: equal calls of several groups of one communicator, which are lowered together as one schedule.

A call is one collective call or one message. Batches follow one another in the order in which their calls come to their
members. G groups of the trace; M calls of K kinds, where a kind is the calls of equivalent groups: I calls of P members in each
group.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.equivalence import Orbits, occurrence_numbers
from emu.trace.matching.role_requests import MESSAGE, CallSpec, MatchedCalls
from emu.trace.trace import Group


class CallTable(NamedTuple):
    """The calls of all groups, as columns [M]; a call is found by its kind, the group of that kind and its turn in the group.

    `what` is the number of its batch key, `level` how many equal messages its ends had before.
    """

    kind: I64  # index among the K kinds
    group: I64  # index among the groups of the kind
    turn: I64  # index among the I calls of the kind
    ask: I64  # index into `MatchedCalls.asks`
    what: I64  # the number of the batch key
    number: I64  # index into the trace's groups
    level: I64  # how many equal messages its ends had before; -1 for a collective

    def take(self, which: I64) -> "CallTable":
        """Return the rows that `which` selects, in its order."""
        return CallTable(*(c[which] for c in self))

    @staticmethod
    def of(calls: Sequence[MatchedCalls], key_numbers: Sequence[I64]) -> "CallTable":
        """Return a table of calls in the order in which members come to them.

        Calls at equal rows are ordered too: collectives before messages, then by group.

        Args:
            calls: [K] the calls of each kind.
            key_numbers: [K] for each kind, [groups of the kind, asks] the number of each call's batch key.
        """
        parts, orders = [], []
        for kind, (met, what, when) in enumerate(zip(calls, key_numbers, _whens(calls), strict=True)):
            shape = len(met.groups), len(met.ask)
            talks = met.asks[0].name == MESSAGE
            level = _levels(met, when) if talks else np.full(shape[1], -1)
            group, turn = np.indices(shape)
            of_kind = kind, group, turn, met.ask, what[:, met.ask], met.groups[:, None], level
            parts.append([np.broadcast_to(c, shape).ravel() for c in of_kind])
            src, dst = met.ranks[:, met.place[:, 0]], met.ranks[:, met.place[:, -1]]
            orders.append([np.broadcast_to(c, shape).ravel() for c in (dst, src, met.groups[:, None], talks, when)])
        columns, keys = ([np.concatenate(c) for c in zip(*each, strict=True)] for each in (parts, orders))
        return CallTable(*columns).take(np.lexsort(keys))


def _whens(calls: Sequence[MatchedCalls]) -> list[I64]:
    """Return [I], for each kind of calls, the position of its I calls in one order that is common to all kinds."""
    tables = [np.ascontiguousarray(met.rows, ">u4") for met in calls]  # big-endian bytes compare like the numbers
    known = {(table.shape, table.tobytes()): table for table in tables}
    words = {key: table.view(f"V{4 * key[0][1]}").ravel().tolist() for key, table in known.items()}
    number = {word: i for i, word in enumerate(sorted({word for of_kind in words.values() for word in of_kind}))}
    when = {key: np.array([number[word] for word in of_kind], np.int64) for key, of_kind in words.items()}
    return [when[table.shape, table.tobytes()] for table in tables]


def _levels(met: MatchedCalls, when: I64) -> I64:
    """Return [I] the number of equal-sized earlier messages of each message's sender or receiver."""
    before: defaultdict[tuple[int, int, int], int] = defaultdict(int)
    level = np.zeros(len(when), np.int64)
    for i in np.argsort(when, kind="stable").tolist():
        # A sender may have sent more than its receiver got.
        ends = [(int(met.ask[i]), end, int(place)) for end, place in enumerate(met.place[i])]
        level[i] = max(before[end] for end in ends)
        before.update((end, int(level[i]) + 1) for end in ends)
    return level


def _members(table: CallTable, calls: Sequence[MatchedCalls]) -> tuple[I64, I64, I64]:
    """Return the rank of each member and the event of its role that is its request, call after call.

    The third array, [M + 1], says where the members of each call begin.
    """
    size = np.array([met.rows.shape[1] for met in calls])[table.kind]
    first = np.concatenate(([0], np.cumsum(size)))
    ranks, rows = np.empty(first[-1], np.int64), np.empty(first[-1], np.int64)
    by_kind = np.argsort(table.kind, kind="stable")
    ends = np.searchsorted(table.kind[by_kind], np.arange(len(calls) + 1))
    for met, (low, high) in zip(calls, pairwise(ends.tolist()), strict=True):
        own = by_kind[low:high]
        at, turn = first[own, None] + np.arange(met.rows.shape[1]), table.turn[own]
        ranks[at], rows[at] = met.ranks[table.group[own, None], met.place[turn]], met.rows[turn]
    return ranks, rows, first


class BatchKey(NamedTuple):
    """The key of a batch, equal for all its calls: the operation, the sizes, the algorithm and the communicator."""

    communicator: int
    served: AlgorithmOnDims | None  # the algorithm that serves the collective; None for messages
    name: str  # the operation, or MESSAGE
    n_ranks: int  # the ranks of each call
    root: int
    size_bytes: int
    elements: int
    blocks: bytes  # see `CallSpec.blocks`


class CallBatch(NamedTuple):
    """Equal calls of different ranks; no rank is in two of them, but a rank may send one message and receive another."""

    what: BatchKey
    ranks: I64  # [calls, members]
    rows: I64  # [calls, members] the event of the member's role that is its request
    requests: tuple[Request, ...]  # the different requests for collectives that no batch before has


def communicators(groups: Sequence[Group]) -> list[int]:
    """Return [G] the communicator of each group; groups of one axis that share no rank have one communicator."""
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
    calls: Sequence[MatchedCalls], groups: Sequence[Group], numbers: Sequence[int], choice: Choice, *, apart: bool
) -> list[CallBatch]:
    """Return the calls in batches, in the order in which ranks come to them: the first call of each group, then the second.

    Args:
        calls: [K] the calls of all ranks; at least one call of each kind.
        groups: [G] the groups of the trace.
        numbers: [G] the communicator of each group.
        choice: The choice of algorithms for the collectives.
        apart: True if each batch holds one call alone, as with optical switches: one group waits while they turn for another.
    """
    if not calls:
        return []
    keys: dict[BatchKey, int] = {}
    table = CallTable.of(calls, [_key_numbers(met, groups, numbers, choice, keys) for met in calls])
    number = np.arange(len(table.kind)) if apart else _batches(table, len(groups))
    order = np.argsort(number, kind="stable")
    table, number = table.take(order), number[order]
    requests: defaultdict[int, list[Request]] = defaultdict(list)
    for at, request in _requests(table, calls, groups):
        requests[int(number[at])].append(request)
    ranks, rows, first = _members(table, calls)
    found, batches = list(keys), []
    spans = pairwise([*np.flatnonzero(np.diff(number, prepend=-1)).tolist(), len(number)])
    for i, (low, high) in enumerate(spans):
        own_ranks, own_rows = (c[first[low] : first[high]].reshape(high - low, -1) for c in (ranks, rows))
        batches.append(CallBatch(found[table.what[low]], own_ranks, own_rows, tuple(requests[i])))
    return batches


def _key_numbers(
    met: MatchedCalls, groups: Sequence[Group], numbers: Sequence[int], choice: Choice, keys: dict[BatchKey, int]
) -> I64:
    """Return [groups of the kind, specs] the number of each call's batch key; new keys are added to `keys`."""
    of_groups = [(numbers[group], groups[group]) for group in met.groups.tolist()]
    return np.array(
        [[keys.setdefault(_batch_key(ask, *of, choice), len(keys)) for ask in met.asks] for of in of_groups], np.int64
    )


def _batch_key(ask: CallSpec, communicator: int, group: Group, choice: Choice) -> BatchKey:
    if ask.name == MESSAGE:
        return BatchKey(communicator, None, MESSAGE, 2, 0, ask.size_bytes, 0, b"")
    served = choice.algorithm_for(ask.request(group))
    return BatchKey(communicator, served, ask.name, len(group.ranks), ask.root, ask.size_bytes, ask.elements, ask.blocks)


def _batches(table: CallTable, n_groups: int) -> I64:
    """Return [M] the batch number of each call; batches are numbered by their first call."""
    met = occurrence_numbers(table.what * n_groups + table.number)  # which all members of a collective have as often
    return Orbits.by_value(table.what, np.where(table.level < 0, met, table.level)).in_order().number


def _requests(table: CallTable, calls: Sequence[MatchedCalls], groups: Sequence[Group]) -> Iterator[tuple[int, Request]]:
    """Yield each different request for a collective, with the index of the first call that it belongs to."""
    together = np.flatnonzero(table.level < 0)
    first = Orbits.by_value(table.number[together], table.ask[together]).in_order().first  # a group is of one kind
    for at in together[first].tolist():
        yield at, calls[table.kind[at]].asks[table.ask[at]].request(groups[table.number[at]])
