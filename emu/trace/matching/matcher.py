"""The matcher of requests: it finds the requests that make one collective call, and the two ends of each message.

A collective call is the n-th request of every member of a group. A message is the n-th send and the n-th receive of one queue:
one group, sender, receiver and tag. The requests are those of the roles of a trace, or of one rank of each place of a step.
G equivalent groups, A requesters of each; I calls of each group, of P members; C sends and receives on one of the groups.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool, ascending
from emu.collective.choice import Request
from emu.collective.operation import operation
from emu.equivalence import Orbits
from emu.errors import InputError
from emu.trace.matching.role_requests import (
    MESSAGE,
    CallSpec,
    EquivalentGroups,
    MatchedCalls,
    RequestColumns,
    RoleRequests,
    check_sizes,
    equivalent_groups,
    packed_blocks,
    role_requests,
)
from emu.trace.trace import Kind, Trace


def members_of_calls(requests: RoleRequests, groups: Sequence[EquivalentGroups]) -> list[tuple[I64, I64]]:
    """Return [I, P] the role of each member of each call, and [I, P] the event of that role that is its request.

    Groups follow one another, each with its collective calls by turn, then its messages by ends and turn. Set-up is among them.

    Raises:
        InputError: members are missing or do not agree; a message that nobody sends or receives.
    """
    found: list[_GroupCollectives | _Queues] = [*_collectives(requests, groups), *_queues(requests, groups)]
    return [each.members() for each in sorted(found, key=lambda each: int(each.groups.numbers[0]))]


def _collectives(requests: RoleRequests, groups: Iterable[EquivalentGroups]) -> list["_GroupCollectives"]:
    """Return the matched collectives of equivalent groups; groups without collectives are left out."""
    return [_GroupCollectives.of(requests, each) for each in _asking(requests, groups, messages=False)]


def _queues(requests: RoleRequests, groups: Iterable[EquivalentGroups]) -> list["_Queues"]:
    """Return the sends and receives of equivalent groups; groups without messages are left out."""
    return [_Queues.of(requests, each) for each in _asking(requests, groups, messages=True)]


def _asking(requests: RoleRequests, groups: Iterable[EquivalentGroups], *, messages: bool) -> Iterator[EquivalentGroups]:
    """Yield the groups that have messages (or collectives), with only those members that ask for any."""
    asked = [{*np.flatnonzero(np.bincount(role.group[role.talks == messages])).tolist()} for role in requests.roles]
    for each in groups:
        kept = [i for i, who in enumerate(each.requesters) if not asked[who.role].isdisjoint(who.numbers)]
        if kept:
            yield each._replace(requesters=tuple(each.requesters[i] for i in kept), ranks=each.ranks[:, kept])


class _GroupCollectives(NamedTuple):
    """The requests for collectives on equivalent groups: the groups, and the requests of each of A requesters."""

    requests: RoleRequests
    groups: EquivalentGroups
    each: list[RequestColumns]  # [A] of each requester; requesters that differ in their place alone share one object

    @staticmethod
    def of(requests: RoleRequests, groups: EquivalentGroups) -> "_GroupCollectives":
        """Return the collectives of equivalent groups, from the requests of their members."""
        known = {who[:2]: requests.of(who, messages=False) for who in groups.requesters}
        return _GroupCollectives(requests, groups, [known[who[:2]] for who in groups.requesters])

    def members(self) -> tuple[I64, I64]:
        """Return the role and the event of each member of all calls including set-up, after a check that members agree."""
        self._check_all()
        rows = np.stack([each.row for each in self.each], axis=1)
        return np.broadcast_to([who.role for who in self.groups.requesters], rows.shape), rows

    def calls(self) -> MatchedCalls:
        """Return the calls after set-up with their specifications, after a check that all members agree."""
        self._check_all()
        kept = np.flatnonzero(~np.any([each.setup for each in self._different()], axis=0))
        given = np.any([each.n_splits[kept] > 0 for each in self._different()], axis=0)
        blocks = [self._blocks(i) if uneven else b"" for i, uneven in zip(kept.tolist(), given.tolist(), strict=True)]
        ask, asks = self._asks(self.each[0].take(kept), blocks)
        rows = np.stack([each.row[kept] for each in self.each], axis=1)
        place = np.broadcast_to(np.arange(len(self.each)), rows.shape)
        return MatchedCalls(self.groups.numbers, self.groups.ranks, place, rows, ask, asks)

    def _check_all(self) -> None:
        complete = self._complete()
        for instance in self._instances_to_check(complete).tolist():
            self._check(instance)
        assert complete, "_check raises where a member is missing"

    def _different(self) -> list[RequestColumns]:
        return list({id(each): each for each in self.each}.values())

    def _complete(self) -> bool:
        """Return whether each member of the group makes each call exactly once."""
        places = [who.place for who in self.groups.requesters]
        turn = self.each[0].instance
        same = all(np.array_equal(each.instance, turn) for each in self._different())
        return same and places == list(range(len(self.groups.first.ranks))) and bool((np.diff(turn) > 0).all())

    def _instances_to_check(self, complete: bool) -> I64:
        """Return the call numbers whose members disagree; all numbers if a member is missing."""
        if not complete:
            return ascending(np.concatenate([each.instance for each in self.each]))
        first, different = self.each[0], self._different()
        if len(different) == 1:
            return np.empty(0, np.int64)
        unlike = [(each.name != first.name) | (each.root != first.root) for each in different]
        sizes = [(each.size_bytes != first.size_bytes) | (each.elements != first.elements) for each in different]
        setup = np.any([each.setup for each in different], axis=0)
        return np.asarray(first.instance[np.any(unlike, axis=0) | (~setup & np.any(sizes, axis=0))])

    def _check(self, instance: int) -> None:
        """Check that all members of a group make the same collective call with number `instance`."""
        found = [(each, i) for each, own in enumerate(self.each) for i in _range_of_value(own.instance, instance)]
        one = RequestColumns(*(np.array([getattr(self.each[a], name)[i] for a, i in found]) for name in RequestColumns._fields))
        ranks, names, who = tuple(self.groups.ranks[0, [a for a, _ in found]].tolist()), self.requests.names, self.requests.who
        what = self._call_text(int(one.name[0]), instance)
        if [self.groups.requesters[a].place for a, _ in found] != list(range(len(self.groups.first.ranks))):
            raise InputError(f"trace: {what} must be requested by {who} {self.groups.first.ranks}, got {ranks}")
        if _differ(one.name) or _differ(one.root):
            asked_for = tuple((names[n], r) for n, r in zip(one.name, one.root.tolist(), strict=True))
            raise InputError(f"trace: {what} must have one operation and one root on all members, got {asked_for}")
        if not one.setup.any():
            check_sizes(f"{names[one.name[0]]} {instance} of {who} {ranks}", one.size_bytes, one.elements)

    def _call_text(self, name: int, instance: int) -> str:
        return f"{self.requests.names[name]} {instance} on group {self.groups.first.axis!r}"

    def _blocks(self, at: int) -> bytes:
        """Return the elements of each block of the call in a row of each requester's requests."""
        first, roles = self.each[0], [who.role for who in self.groups.requesters]
        given = [self.requests.splits(role, int(own.row[at])) for role, own in zip(roles, self.each, strict=True)]
        op = operation(self.requests.names[first.name[at]], len(given), int(first.root[at]))
        return packed_blocks(self._call_text(int(first.name[at]), int(first.instance[at])), op, given, int(first.elements[at]))

    def _asks(self, first: RequestColumns, blocks: list[bytes]) -> tuple[I64, tuple[CallSpec, ...]]:
        """Return the distinct specifications of calls, and which of them each call has.

        Args:
            first: The first member's requests, one for each call.
            blocks: The sizes of each call's blocks in packed form; b"" if no member gave sizes.

        Returns:
            [I] the index of each call's specification, and the specifications.
        """
        number = {block: i for i, block in enumerate(dict.fromkeys(blocks))}
        packed = np.array([number[block] for block in blocks], np.int64)
        different = first.name, first.root, first.size_bytes, first.elements, first.dtype, packed
        ask, at, _ = Orbits.by_value(*different).in_order()
        names, columns = self.requests.names, first.take(at)
        name, dtype = ([names[i] for i in of] for of in (columns.name.tolist(), columns.dtype.tolist()))
        sizes = (c.tolist() for c in (columns.root, columns.size_bytes, columns.elements))
        return ask, tuple(map(CallSpec, name, *sizes, dtype, (blocks[i] for i in at.tolist())))


def _range_of_value(values: I64, value: int) -> range:
    """Return the range of indices at which a value stands in an ascending array."""
    return range(*np.searchsorted(values, (value, value + 1)).tolist())


def _differ(values: I64) -> bool:
    return bool((values != values[0]).any())


class _Queues(NamedTuple):
    """The sends and receives of the first of some equivalent groups, queue by queue; in a queue, sends come first.

    A queue is the messages from one member to another with one tag.
    """

    groups: EquivalentGroups
    who: str  # as in `RoleRequests`
    requests: RequestColumns  # [C]
    requester: I64  # [C] the index of the requester of each request
    ends: I64  # [3, C] sender, receiver and tag

    @staticmethod
    def of(asked: RoleRequests, groups: EquivalentGroups) -> "_Queues":
        each = [asked.of(who, messages=True) for who in groups.requesters]
        asker = np.repeat(np.arange(len(each)), [len(own.row) for own in each])
        every = RequestColumns(*(np.concatenate(c) for c in zip(*each, strict=True)))
        own, peer = groups.ranks[0][asker], np.array(groups.first.ranks, np.int64)[every.root]
        sends = every.kind == Kind.SEND
        ends = np.stack((np.where(sends, own, peer), np.where(sends, peer, own), every.tag))
        differ = (key for key in (every.kind, *ends[::-1]) if (key != key[0]).any())  # each key costs a sort
        order = np.lexsort((every.row, *differ))
        return _Queues(groups, asked.who, every.take(order), asker[order], ends[:, order])

    def members(self) -> tuple[I64, I64]:
        """Return the role and the event of both ends of all messages including set-up, after a check that they agree."""
        pairs, roles = self._pairs(), np.array([who.role for who in self.groups.requesters])
        return roles[self.requester[pairs]], self.requests.row[pairs]

    def calls(self) -> MatchedCalls:
        """Return the messages after set-up with their sizes, after a check that both ends agree."""
        pairs = self._pairs()
        pairs = pairs[~self._in_setup(pairs)]
        size = self.requests.size_bytes[pairs[:, 0]]
        ask, at, _ = Orbits.by_value(size).in_order()
        asks = tuple(CallSpec(MESSAGE, 0, each, 0, "", b"") for each in size[at].tolist())
        return MatchedCalls(self.groups.numbers, self.groups.ranks, self.requester[pairs], self.requests.row[pairs], ask, asks)

    def _pairs(self) -> I64:
        """Return [I, 2] the send and the receive of each message, after a check that both agree."""
        sends = self.requests.kind == Kind.SEND
        uneven = self._first_uneven(sends)
        even = np.arange(len(sends)) < uneven
        send, recv = np.flatnonzero(even & sends), np.flatnonzero(even & ~sends)
        pairs = np.stack((send, recv), axis=1)
        self._check_sizes(pairs[~self._in_setup(pairs)])
        if uneven < len(sends):
            raise self._uneven(uneven)
        return pairs

    def _in_setup(self, pairs: I64) -> Bool:
        """Return [I] whether an end of each message is part of set-up."""
        return np.asarray(self.requests.setup[pairs].any(axis=1))

    def _first_uneven(self, sends: Bool) -> int:
        """Return the index of the first queue with unequal numbers of sends and receives; C if there is none."""
        start = np.flatnonzero((np.diff(self.ends, prepend=self.ends[:, :1] - 1) != 0).any(axis=0))
        more = np.add.reduceat(np.where(sends, 1, -1), start)
        return int(start[np.argmax(more != 0)]) if more.any() else len(sends)

    def _check_sizes(self, pairs: I64) -> None:
        """Check that both ends of each message state the same size; `pairs` [I, 2] are requests."""
        size, elements = self.requests.size_bytes[pairs], self.requests.elements[pairs]
        for i in np.flatnonzero((size[:, 0] != size[:, 1]) | (elements[:, 0] != elements[:, 1]))[:1].tolist():
            ranks = tuple(self.ends[:2, pairs[i, 0]].tolist())
            check_sizes(f"{MESSAGE} {self.requests.instance[pairs[i, 0]]} of {self.who} {ranks}", size[i], elements[i])

    def _uneven(self, first: int) -> InputError:
        queue = (self.ends == self.ends[:, first, None]).all(axis=0)
        sends = int((self.requests.kind[queue] == Kind.SEND).sum())
        src, dst, tag = self.ends[:, first].tolist()
        what = f"{sends} sends and {int(queue.sum()) - sends} receives of tag {tag}"
        between = f"messages between {self.who} {sorted({src, dst})} on group {self.groups.first.axis!r}"
        return InputError(f"trace: {between} must be sent and received equally often, got {what}")


def matched_calls(trace: Trace, dtype: str) -> list[MatchedCalls]:
    """Return every collective call and every message of a trace, without those of set-up.

    Args:
        trace: A trace of all ranks.
        dtype: The dtype as which float32 is timed.

    Raises:
        InputError: an unknown dtype; members are missing or do not agree; a message that nobody sends or receives.
    """
    asked, groups = role_requests(trace.events, dtype), equivalent_groups(trace)
    found = [*(each.calls() for each in _collectives(asked, groups)), *(each.calls() for each in _queues(asked, groups))]
    return [met for met in found if len(met.ask)]


def collective_requests(trace: Trace) -> list[Request]:
    """Return the different requests for collectives of a trace, without those of set-up.

    Raises:
        InputError: members of a collective are missing or do not agree.
    """
    met = [each.calls() for each in _collectives(role_requests(trace.events, "float32"), equivalent_groups(trace))]
    of_group = {group: each for each in met for group in each.groups.tolist()}
    asks = (ask.request(trace.groups[group]) for group in sorted(of_group) for ask in of_group[group].asks)
    return list(dict.fromkeys(asks))
