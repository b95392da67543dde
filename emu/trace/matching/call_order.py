"""In which order the meetings of a trace come to their members.

M meetings of K kinds, a kind being what groups that are alike ask for: I meetings of P members in each of its groups.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.trace.matching.role_requests import MESSAGE, MatchedCalls


class CallTable(NamedTuple):
    """The meetings of all groups as columns [M]."""

    kind: I64  # among K
    group: I64  # among those of the kind
    turn: I64  # among the I of the kind
    ask: I64  # among what groups of the kind ask
    what: I64  # number of what meetings of a batch have in common
    number: I64  # of the trace's group
    level: I64  # of a message: how many alike its ends had before, one after another; -1: a collective

    def take(self, which: I64) -> "CallTable":
        """Some of them, or all in another order."""
        return CallTable(*(c[which] for c in self))

    @staticmethod
    def of(meetings: Sequence[MatchedCalls], asked: Sequence[I64]) -> "CallTable":
        """In the order in which members come to them; at equal rows collectives before messages, then as groups stand."""
        parts, orders = [], []
        for kind, (met, what, when) in enumerate(zip(meetings, asked, _whens(meetings), strict=True)):
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


def _whens(meetings: Sequence[MatchedCalls]) -> list[I64]:
    """[I] of each kind, where its meetings come among all by the rows of their members, the first member's first."""
    tables = [np.ascontiguousarray(met.rows, ">u4") for met in meetings]  # as bytes they compare as the numbers do
    known = {(table.shape, table.tobytes()): table for table in tables}
    words = {key: table.view(f"V{4 * key[0][1]}").ravel().tolist() for key, table in known.items()}
    number = {word: i for i, word in enumerate(sorted({word for of_kind in words.values() for word in of_kind}))}
    when = {key: np.array([number[word] for word in of_kind], np.int64) for key, of_kind in words.items()}
    return [when[table.shape, table.tobytes()] for table in tables]


def _levels(met: MatchedCalls, when: I64) -> I64:
    """[I] how many messages of equal sizes had been sent by a sender, or got by a receiver, one after another."""
    before: defaultdict[tuple[int, int, int], int] = defaultdict(int)
    level = np.zeros(len(when), np.int64)
    for i in np.argsort(when, kind="stable").tolist():
        # A sender may have sent more than its receiver got.
        ends = [(int(met.ask[i]), end, int(place)) for end, place in enumerate(met.place[i])]
        level[i] = max(before[end] for end in ends)
        before.update((end, int(level[i]) + 1) for end in ends)
    return level


class CallMembers(NamedTuple):
    """Who meets: columns of all members, meeting after meeting."""

    ranks: I64
    rows: I64
    first: I64  # [M + 1]

    @staticmethod
    def of(table: CallTable, meetings: Sequence[MatchedCalls]) -> "CallMembers":
        """Those of the meetings of a table."""
        size = np.array([met.rows.shape[1] for met in meetings])[table.kind]
        first = np.concatenate(([0], np.cumsum(size)))
        ranks, rows = np.empty(first[-1], np.int64), np.empty(first[-1], np.int64)
        by_kind = np.argsort(table.kind, kind="stable")
        ends = np.searchsorted(table.kind[by_kind], np.arange(len(meetings) + 1))
        for met, (low, high) in zip(meetings, pairwise(ends.tolist()), strict=True):
            own = by_kind[low:high]
            at, turn = first[own, None] + np.arange(met.rows.shape[1]), table.turn[own]
            ranks[at], rows[at] = met.ranks[table.group[own, None], met.place[turn]], met.rows[turn]
        return CallMembers(ranks, rows, first)

    def between(self, low: int, high: int) -> tuple[I64, I64]:
        """[high - low, P] ranks and rows of meetings of as many members each."""
        ranks, rows = (c[self.first[low] : self.first[high]].reshape(high - low, -1) for c in (self.ranks, self.rows))
        return ranks, rows
