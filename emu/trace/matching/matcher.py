"""The matcher of a trace's requests: it finds which requests make one collective call, and which two make one message.

The messages of a trace: for each, the n-th send of its (group, src, dst, tag) and the n-th receive.

G equivalent groups, A requesters of each; C sends and receives on one of the groups, I messages.

The collective calls of a trace: for each, the n-th requests of all members of a group.

G equivalent groups, A requesters of each; I collective calls of each group.

The sizes of the blocks of a collective whose members give blocks of uneven sizes, such as an all_to_all of experts' tokens.

N members, B blocks.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.collective.algorithm import Request
from emu.collective.operation import Operation, operation
from emu.equivalence import Orbits
from emu.errors import InputError, must_be
from emu.trace.matching.role_requests import (
    MESSAGE,
    CallSpec,
    EquivalentGroups,
    MatchedCalls,
    RequestColumns,
    RoleRequests,
    check_sizes,
    equivalent_groups,
    role_requests,
)
from emu.trace.trace import Kind, Trace


def packed_blocks(where: str, op: Operation, given: Sequence[I64], elements: int) -> bytes:
    """Return the elements of each block, packed into bytes, so that collectives of equal block sizes compare equal.

    Args:
        where: The name of the collective in error messages.
        op: The operation of the collective.
        given: [N] for each member, the elements of its blocks in their order; an empty array means an even division.
        elements: The elements of all blocks together.

    Raises:
        InputError: a member gives a wrong number of sizes, or two members give different sizes of one block.
    """
    counts = np.full(op.n_blocks, -1, np.int64)
    even = op.block_counts(elements)
    for member, sizes in enumerate(given):
        blocks = op.input_blocks(member)
        if len(sizes) not in (0, len(blocks)):
            what = f"none, or one for each of its {len(blocks)} blocks"
            raise must_be("trace", f"split sizes of member {member} of {where}", what, len(sizes))
        stated = sizes if len(sizes) else even[blocks]
        if ((counts[blocks] >= 0) & (counts[blocks] != stated)).any():
            raise InputError(f"trace: member {member} of {where} gives another size of a block than an earlier member does")
        counts[blocks] = stated
    return counts.tobytes()


def block_counts(packed: bytes) -> I64:
    """Return [B] the elements of each block, from bytes that `packed_blocks` packed."""
    return np.frombuffer(packed, np.int64)


def matched_collectives(requests: RoleRequests, groups: Iterable[EquivalentGroups]) -> Iterator[MatchedCalls]:
    """Return the collective calls of all groups, without those of set-up.

    Raises:
        InputError: members are missing or do not agree.
    """
    together = requests._replace(roles=[role.take(role.kind == Kind.COLLECTIVE) for role in requests.roles])
    found = (_GroupCollectives.of(together, each) for each in groups)
    return (each.calls() for each in found if each.each)


class _GroupCollectives(NamedTuple):
    """The requests for collectives on equivalent groups."""

    requests: RoleRequests
    groups: EquivalentGroups
    each: list[RequestColumns]  # [A] of each requester; requesters that differ in their place alone share one object

    @staticmethod
    def of(requests: RoleRequests, groups: EquivalentGroups) -> "_GroupCollectives":
        """Return the requests on some groups, without requesters that make no request."""
        known = {who[:2]: requests.of(who) for who in groups.requesters}
        kept = [i for i, who in enumerate(groups.requesters) if len(known[who[:2]].row)]
        requesters = tuple(groups.requesters[i] for i in kept)
        each = [known[who[:2]] for who in requesters]
        return _GroupCollectives(requests, groups._replace(requesters=requesters, ranks=groups.ranks[:, kept]), each)

    def calls(self) -> MatchedCalls:
        """Return the calls that are no set-up, after a check that all members agree."""
        complete = self._complete()
        blocks = {i: self._checked_blocks(i) for i in self._instances_to_check(complete).tolist()}
        assert complete, "_checked_blocks raises where a member is missing"
        kept = np.flatnonzero(~np.any([each.setup for each in self._different()], axis=0))
        ask, asks = self._asks(self.each[0].take(kept), [blocks.get(i, b"") for i in self.each[0].instance[kept].tolist()])
        rows = np.stack([each.row[kept] for each in self.each], axis=1)
        place = np.broadcast_to(np.arange(len(self.each)), rows.shape)
        return MatchedCalls(self.groups.numbers, self.groups.ranks, place, rows, ask, asks)

    def _different(self) -> list[RequestColumns]:
        return list({id(each): each for each in self.each}.values())

    def _complete(self) -> bool:
        """Return True if each member makes each call once."""
        places = [who.place for who in self.groups.requesters]
        turn = self.each[0].instance
        same = all(np.array_equal(each.instance, turn) for each in self._different())
        return same and places == list(range(len(self.groups.first.ranks))) and bool((np.diff(turn) > 0).all())

    def _instances_to_check(self, complete: bool) -> I64:
        """Return the instances whose members do not agree or give split sizes; all instances, where some member is missing."""
        if not complete:
            return np.unique(np.concatenate([each.instance for each in self.each]))
        first, different = self.each[0], self._different()
        unlike = [(each.name != first.name) | (each.root != first.root) for each in different]
        sizes = [(each.size_bytes != first.size_bytes) | (each.elements != first.elements) for each in different]
        given = [each.n_splits > 0 for each in different]
        setup = np.any([each.setup for each in different], axis=0)
        return np.asarray(first.instance[np.any(unlike, axis=0) | (~setup & np.any([*sizes, *given], axis=0))])

    def _checked_blocks(self, instance: int) -> bytes:
        """Check one collective call, and return the elements of each block; b"" if all members give blocks of even sizes."""
        found = [(each, i) for each, own in enumerate(self.each) for i in _places_of(own.instance, instance)]
        one = RequestColumns(*(np.array([getattr(self.each[a], name)[i] for a, i in found]) for name in RequestColumns._fields))
        ranks = tuple(self.groups.ranks[0, [a for a, _ in found]].tolist())
        name = self.requests.names[one.name[0]]
        what = f"{name} {instance} on group {self.groups.first.axis!r}"
        if [self.groups.requesters[a].place for a, _ in found] != list(range(len(self.groups.first.ranks))):
            raise InputError(f"trace: {what} must be requested by ranks {self.groups.first.ranks}, got {ranks}")
        if _differ(one.name) or _differ(one.root):
            asked_for = tuple((self.requests.names[n], r) for n, r in zip(one.name, one.root.tolist(), strict=True))
            raise InputError(f"trace: {what} must have one operation and one root on all members, got {asked_for}")
        if one.setup.any():
            return b""
        roles = [self.groups.requesters[a].role for a, _ in found]
        given = [self.requests.splits(role, row) for role, row in zip(roles, one.row.tolist(), strict=True)]
        op = operation(name, len(given), int(one.root[0]))
        blocks = packed_blocks(what, op, given, int(one.elements[0])) if any(map(len, given)) else b""
        check_sizes(f"{name} {instance}", ranks, one.size_bytes, one.elements)
        return blocks

    def _asks(self, first: RequestColumns, blocks: list[bytes]) -> tuple[I64, tuple[CallSpec, ...]]:
        """Return [I] the index of each call's specification, and the specifications, as the first member states them."""
        number = {block: i for i, block in enumerate(dict.fromkeys(blocks))}
        packed = np.array([number[block] for block in blocks], np.int64)
        different = first.name, first.root, first.size_bytes, first.elements, first.dtype, packed
        ask, at, _ = Orbits.equal(*different).in_order()
        names, columns = self.requests.names, first.take(at)
        name, dtype = ([names[i] for i in of] for of in (columns.name.tolist(), columns.dtype.tolist()))
        sizes = (c.tolist() for c in (columns.root, columns.size_bytes, columns.elements))
        return ask, tuple(map(CallSpec, name, *sizes, dtype, (blocks[i] for i in at.tolist())))


def _places_of(values: I64, value: int) -> range:
    """Return the places of a value among ascending values."""
    return range(*np.searchsorted(values, (value, value + 1)).tolist())


def _differ(values: I64) -> bool:
    return bool((values != values[0]).any())


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
        ask, at, _ = Orbits.equal(size).in_order()
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


def matched_calls(trace: Trace, dtype: str) -> list[MatchedCalls]:
    """Return every collective call and every message of a trace, without those of set-up.

    Args:
        trace: A trace of all ranks.
        dtype: The dtype as which float32 is timed.

    Raises:
        InputError: an unknown dtype; members are missing or do not agree; a message that nobody sends or receives.
    """
    asked, groups = role_requests(trace.events, dtype), equivalent_groups(trace)
    found = [*matched_collectives(asked, groups), *matched_messages(asked, groups)]
    return [met for met in found if len(met.ask)]


def collective_requests(trace: Trace) -> list[Request]:
    """Return the different requests for collectives of a trace, without those of set-up.

    Raises:
        InputError: members of a collective are missing or do not agree.
    """
    met = matched_collectives(role_requests(trace.events, "float32"), equivalent_groups(trace))
    of_group = {group: each for each in met for group in each.groups.tolist()}
    asks = (ask.request(trace.groups[group]) for group in sorted(of_group) for ask in of_group[group].asks)
    return list(dict.fromkeys(asks))
