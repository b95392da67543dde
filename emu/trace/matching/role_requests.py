"""The requests of each role of a trace as columns, and the calls that equivalent groups make with them.

Groups are equivalent if their members play the same roles, place by place, so that all of them make the same requests. A call
states the sizes of its blocks where its members give blocks of uneven sizes, as in an all_to_all of experts' tokens.
N ranks, G equivalent groups, A requesters of each; I calls of each group, of P members; C requests of a role; B blocks.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.collective.choice import Request
from emu.collective.operation import Operation
from emu.errors import InputError, must_be
from emu.trace.steps import computes
from emu.trace.timed_dtype import timed_bytes
from emu.trace.trace import Events, Group, Kind, Trace

MESSAGE = "message"


class Requester(NamedTuple):
    """A rank that may make requests on a group: its role, and its position in the group."""

    role: int
    numbers: tuple[int, ...]  # the numbers that the role gives the group
    place: int  # the rank's place in the group; -1: the rank is no member


class EquivalentGroups(NamedTuple):
    """Groups of the trace whose members, position by position, play the same roles; one of them is matched for all."""

    first: Group
    numbers: I64  # [G] indexes into the trace's groups, ascending
    requesters: tuple[Requester, ...]  # by place, then by rank
    ranks: I64  # [G, A] the ranks of the requesters of each group


def equivalent_groups(trace: Trace) -> list[EquivalentGroups]:
    """Return all groups of a trace in classes of equivalent groups, in the order of the first group of each class."""
    found: dict[tuple[int, tuple[Requester, ...]], tuple[list[int], list[tuple[int, ...]]]] = {}
    for number, requesters in enumerate(_requesters(trace)):
        who = tuple(requester for requester, _ in requesters)
        numbers, ranks = found.setdefault((len(trace.groups[number].ranks), who), ([], []))
        numbers.append(number)
        ranks.append(tuple(rank for _, rank in requesters))
    return [
        EquivalentGroups(trace.groups[numbers[0]], np.array(numbers), who, np.array(ranks, np.int64).reshape(len(numbers), -1))
        for (_, who), (numbers, ranks) in found.items()
    ]


def _requesters(trace: Trace) -> list[list[tuple[Requester, int]]]:
    """Return, for each group of a trace, its requesters and their ranks."""
    places = [{rank: i for i, rank in enumerate(g.ranks)} for g in trace.groups]
    found: list[list[tuple[Requester, int]]] = [[] for _ in trace.groups]
    for rank, role in enumerate(trace.role_of_rank.tolist()):
        numbers: defaultdict[int, list[int]] = defaultdict(list)
        for number, group in enumerate(trace.group_of[rank]):
            numbers[group].append(number)
        for group, own in numbers.items():
            found[group].append((Requester(role, tuple(own), places[group].get(rank, -1)), rank))
    return [sorted(requesters, key=lambda who: (who[0].place, who[1])) for requesters in found]


class CallSpec(NamedTuple):
    """The operation, the root and the sizes that all requests of a call state."""

    name: str  # the operation, or MESSAGE
    root: int
    size_bytes: int  # bytes in the dtype that is timed
    elements: int
    dtype: str  # the dtype that ran
    blocks: bytes  # elements of each block, as `packed_blocks` packs them; b"": `elements` are divided evenly

    def request(self, group: Group) -> Request:
        """Return the request of a group for this call, in the dtype that ran."""
        return Request(self.name, group.ranks, self.root, self.elements, self.dtype, axis=group.axis)


class MatchedCalls(NamedTuple):
    """The collective calls (or messages from member 0 to member 1) of G equivalent groups: I calls, equal in each group.

    `rows` has the event of each member that is its request, `ask` the index of the specification of the call.
    """

    groups: I64  # [G] indexes into the trace's groups
    ranks: I64  # [G, A]
    place: I64  # [I, P] the column of `ranks` of each member
    rows: I64  # [I, P] the event of each member's role that is its request
    ask: I64  # [I] index into `asks`
    asks: tuple[CallSpec, ...]  # in the order in which a group first makes them


class RequestColumns(NamedTuple):
    """The requests of one role: one entry of each column for each of C requests.

    `row` is the row of the event. `root` is the root of a rooted operation or the peer of a message. `instance` counts the
    calls on a group. `setup` is 1 before the first step. `n_splits` is the number of uneven blocks, 0 if all are even.
    """

    row: I64  # among the events of the role
    kind: I64
    group: I64  # the number that the role gives the group
    instance: I64
    root: I64
    tag: I64
    name: I64  # index into `RoleRequests.names`, as `dtype`
    dtype: I64
    size_bytes: I64  # bytes in the dtype that is timed
    elements: I64
    setup: I64  # 1 for a request of step 0
    n_splits: I64

    @property
    def talks(self) -> Bool:
        """Array [C] of which requests are sends or receives of messages."""
        return np.asarray(self.kind != Kind.COLLECTIVE)

    def take(self, which: I64 | Bool | slice) -> "RequestColumns":
        """Return the requests that `which` selects."""
        return RequestColumns(*(c[which] for c in self))


class RoleRequests(NamedTuple):
    """The requests of all roles as columns, with the texts and the split sizes to which the columns refer by index."""

    roles: list[RequestColumns]
    names: list[str]
    events: tuple[Events, ...]
    who: str = "ranks"  # what makes them, in error messages

    def of(self, requester: Requester, *, messages: bool) -> RequestColumns:
        """Return the messages, or the collectives, of a requester on its group, sorted by instance."""
        role = self.roles[requester.role]
        first, *others = requester.numbers
        here = np.isin(role.group, requester.numbers) if others else role.group == first  # which is much faster
        own = np.flatnonzero(here & (role.talks == messages))
        return role.take(own[np.argsort(role.instance[own], kind="stable")])

    def splits(self, role: int, row: int) -> I64:
        """Return the split sizes of the request in a row of the events of a role."""
        events = self.events[role]
        return events.split[events.split_start[row] : events.split_start[row + 1]]


def role_requests(roles: Sequence[Events], dtype: str) -> RoleRequests:
    """Return the requests of some roles.

    Args:
        roles: The events of each role.
        dtype: The dtype as which float32 is timed.

    Raises:
        InputError: an unknown dtype.
    """
    number: dict[str, int] = {}
    columns = [_requests_of_role(events, number, dtype) for events in roles]
    return RoleRequests(columns, list(number), tuple(roles))


def _requests_of_role(events: Events, number: dict[str, int], dtype: str) -> RequestColumns:
    """Return the requests of one role as columns; `number` has the index of each text, and gets the indices of new texts."""
    at = np.flatnonzero(~computes(events))
    rows = at.tolist()
    words = (events.name, events.dtype)
    name, ran = (_numbered([of[i] for i in rows], number) for of in words)
    columns = (events.kind, events.group, events.instance, events.root, events.tag)
    kind, group, instance, root, tag = (c[at].astype(np.int64) for c in columns)
    size, setup = timed_bytes(events, dtype)[at], (events.step[at] == 0).astype(np.int64)
    return RequestColumns(
        at, kind, group, instance, root, tag, name, ran, size, events.count[at], setup, np.diff(events.split_start)[at]
    )


def _numbered(words: Sequence[str], number: dict[str, int]) -> I64:
    """Return [C] the index of each text in `number`, which gets the indices of new texts."""
    for word in dict.fromkeys(words):
        number.setdefault(word, len(number))
    return np.fromiter(map(number.__getitem__, words), np.int64, len(words))


def check_sizes(what: str, size_bytes: I64, elements: I64) -> None:
    """Check that all members [P] of the call `what` state the same bytes and elements.

    Raises:
        InputError: the sizes differ.
    """
    if (size_bytes != size_bytes[0]).any() or (elements != elements[0]).any():
        sizes = tuple(zip(size_bytes.tolist(), elements.tolist(), strict=True))
        raise must_be("trace", f"bytes and count of {what}", "equal on all members", sizes, "give uneven blocks by split sizes")


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
