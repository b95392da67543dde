"""The order in which the calls of a trace come to their members.

M calls of K kinds, where a kind is the calls of equivalent groups: I calls of P members in each group.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.trace.matching.role_requests import MESSAGE, MatchedCalls


class CallTable(NamedTuple):
    """The calls of all groups, as columns [M]."""

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
    """Return [I] for each kind, the position of its calls in one order of all kinds, by the rows of their members."""
    tables = [np.ascontiguousarray(met.rows, ">u4") for met in calls]  # big-endian bytes compare like the numbers
    known = {(table.shape, table.tobytes()): table for table in tables}
    words = {key: table.view(f"V{4 * key[0][1]}").ravel().tolist() for key, table in known.items()}
    number = {word: i for i, word in enumerate(sorted({word for of_kind in words.values() for word in of_kind}))}
    when = {key: np.array([number[word] for word in of_kind], np.int64) for key, of_kind in words.items()}
    return [when[table.shape, table.tobytes()] for table in tables]


def _levels(met: MatchedCalls, when: I64) -> I64:
    """Return [I] for each message, how many messages of equal size its sender had sent or its receiver had received before."""
    before: defaultdict[tuple[int, int, int], int] = defaultdict(int)
    level = np.zeros(len(when), np.int64)
    for i in np.argsort(when, kind="stable").tolist():
        # A sender may have sent more than its receiver got.
        ends = [(int(met.ask[i]), end, int(place)) for end, place in enumerate(met.place[i])]
        level[i] = max(before[end] for end in ends)
        before.update((end, int(level[i]) + 1) for end in ends)
    return level


class CallMembers(NamedTuple):
    """The members of calls, as columns of all members, call after call."""

    ranks: I64
    rows: I64
    first: I64  # [M + 1]

    @staticmethod
    def of(table: CallTable, calls: Sequence[MatchedCalls]) -> "CallMembers":
        """Return the members of the calls of a table."""
        size = np.array([met.rows.shape[1] for met in calls])[table.kind]
        first = np.concatenate(([0], np.cumsum(size)))
        ranks, rows = np.empty(first[-1], np.int64), np.empty(first[-1], np.int64)
        by_kind = np.argsort(table.kind, kind="stable")
        ends = np.searchsorted(table.kind[by_kind], np.arange(len(calls) + 1))
        for met, (low, high) in zip(calls, pairwise(ends.tolist()), strict=True):
            own = by_kind[low:high]
            at, turn = first[own, None] + np.arange(met.rows.shape[1]), table.turn[own]
            ranks[at], rows[at] = met.ranks[table.group[own, None], met.place[turn]], met.rows[turn]
        return CallMembers(ranks, rows, first)

    def between(self, low: int, high: int) -> tuple[I64, I64]:
        """Return [high - low, P] ranks and rows of the members of calls `low` to `high`, which all have P members."""
        ranks, rows = (c[self.first[low] : self.first[high]].reshape(high - low, -1) for c in (self.ranks, self.rows))
        return ranks, rows
