"""The messages of a trace: for each, the n-th send of its (group, src, dst, tag) and the n-th receive.

G equivalent groups, A requesters of each; C sends and receives on one of the groups, I messages.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.errors import InputError
from emu.trace.matching.role_requests import (
    MESSAGE,
    CallSpec,
    EquivalentGroups,
    MatchedCalls,
    RequestColumns,
    RoleRequests,
    check_sizes,
    first_of,
)
from emu.trace.trace import Kind


def matched_messages(asked: RoleRequests, groups: Iterable[EquivalentGroups]) -> Iterator[MatchedCalls]:
    """Return the messages of all groups, without those of set-up.

    Raises:
        InputError: a message that nobody sends or receives, or one whose ends state different sizes.
    """
    between = asked._replace(roles=[role.take(role.kind != Kind.COLLECTIVE) for role in asked.roles])
    found = (_Queues.of(between, each) for each in groups)
    return (each.calls() for each in found if len(each.requester))


class _Queues(NamedTuple):
    """The sends and receives on the first of some equivalent groups, queue after queue; in each queue the sends come first."""

    groups: EquivalentGroups
    requests: RequestColumns  # [C]
    requester: I64  # [C] the index of the requester of each request
    ends: I64  # [3, C] sender, receiver and tag

    @staticmethod
    def of(asked: RoleRequests, groups: EquivalentGroups) -> "_Queues":
        each = [asked.of(who) for who in groups.requesters]
        asker = np.repeat(np.arange(len(each)), [len(own.row) for own in each])
        every = RequestColumns(
            *(np.concatenate([np.empty(0, np.int64), *(own[c] for own in each)]) for c in range(len(RequestColumns._fields)))
        )
        own, peer = groups.ranks[0][asker], np.array(groups.first.ranks, np.int64)[every.root]
        sends = every.kind == Kind.SEND
        ends = np.stack((np.where(sends, own, peer), np.where(sends, peer, own), every.tag))
        order = np.lexsort((every.row, every.kind, *ends[::-1]))
        return _Queues(groups, every.take(order), asker[order], ends[:, order])

    def calls(self) -> MatchedCalls:
        """Return the messages that are no set-up, after a check that both ends agree."""
        sends = self.requests.kind == Kind.SEND
        uneven = self._first_uneven(sends)
        even = np.arange(len(sends)) < uneven
        send, recv = np.flatnonzero(even & sends), np.flatnonzero(even & ~sends)
        pairs = np.stack((send, recv), axis=1)[~(self.requests.setup[send] | self.requests.setup[recv]).astype(bool)]
        self._check_sizes(pairs)
        if uneven < len(sends):
            raise self._uneven(uneven)
        size = self.requests.size_bytes[pairs[:, 0]]
        at, ask = first_of(size[None])
        asks = tuple(CallSpec(MESSAGE, 0, each, 0, "", b"") for each in size[at].tolist())
        return MatchedCalls(self.groups.numbers, self.groups.ranks, self.requester[pairs], self.requests.row[pairs], ask, asks)

    def _first_uneven(self, sends: Bool) -> int:
        """Return where the first queue begins that has more sends than receives or fewer, or C."""
        start = np.flatnonzero((np.diff(self.ends, prepend=self.ends[:, :1] - 1) != 0).any(axis=0))
        more = np.add.reduceat(np.where(sends, 1, -1), start)
        return int(start[np.argmax(more != 0)]) if more.any() else len(sends)

    def _check_sizes(self, pairs: I64) -> None:
        """Check that both ends state one size, for pairs [I, 2] of requests."""
        size, elements = self.requests.size_bytes[pairs], self.requests.elements[pairs]
        for i in np.flatnonzero((size[:, 0] != size[:, 1]) | (elements[:, 0] != elements[:, 1]))[:1].tolist():
            ranks = tuple(self.ends[:2, pairs[i, 0]].tolist())
            check_sizes(f"{MESSAGE} {self.requests.instance[pairs[i, 0]]}", ranks, size[i], elements[i])

    def _uneven(self, first: int) -> InputError:
        queue = (self.ends == self.ends[:, first, None]).all(axis=0)
        sends = int((self.requests.kind[queue] == Kind.SEND).sum())
        src, dst, tag = self.ends[:, first].tolist()
        what = f"{sends} sends and {int(queue.sum()) - sends} receives of tag {tag}"
        between = f"messages between ranks {sorted({src, dst})} on group {self.groups.first.axis!r}"
        return InputError(f"trace: {between} must be sent and received equally often, got {what}")
