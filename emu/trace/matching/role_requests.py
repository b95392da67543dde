"""What each role of a trace asks for, and what groups that are alike ask for together.

G groups that are alike, A ranks of each that ask; I meetings of each group, of P members; C requests of a role.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.collective.algorithm import Request
from emu.errors import must_be
from emu.trace.device.dtypes import timed_bytes
from emu.trace.matching.equivalent_groups import Requester
from emu.trace.trace import Events, Group, Kind, Trace

MESSAGE = "message"


class CallSpec(NamedTuple):
    """What is asked for."""

    name: str  # the operation, or MESSAGE
    root: int
    size_bytes: int  # as timed
    elements: int
    dtype: str  # that ran
    blocks: bytes  # elements of each block, as `emu.trace.split_sizes` packs them; none: an even cut of `elements`

    def request(self, group: Group) -> Request:
        """What was asked by a group, as it ran."""
        return Request(self.name, group.ranks, self.root, self.elements, self.dtype, axis=group.axis)


class MatchedCalls(NamedTuple):
    """The collectives of groups that are alike, or their messages from member 0 to member 1: the same in each group."""

    groups: I64  # [G] index into the trace's groups
    ranks: I64  # [G, A]
    place: I64  # [I, P] which of these each member is
    rows: I64  # [I, P] which event of its role each one's request is
    ask: I64  # [I] index into `asks`
    asks: tuple[CallSpec, ...]  # by when they are asked for first, as each group counts its meetings


class RequestColumns(NamedTuple):
    """Requests of a role: columns [C]."""

    row: I64  # of the role's events
    kind: I64
    group: I64  # number of the role
    instance: I64
    root: I64
    tag: I64
    name: I64  # index into a list of words, as `dtype`
    dtype: I64
    size_bytes: I64  # as timed
    elements: I64
    setup: I64  # 1 if it is of step 0
    n_splits: I64

    def take(self, which: I64 | Bool | slice) -> "RequestColumns":
        """Some of them."""
        return RequestColumns(*(c[which] for c in self))

    @staticmethod
    def joined(parts: Sequence["RequestColumns"]) -> "RequestColumns":
        """One after another."""
        none = [np.empty(0, np.int64)]
        return RequestColumns(*(np.concatenate(none + [part[c] for part in parts]) for c in range(len(RequestColumns._fields))))


class RoleRequests(NamedTuple):
    """The requests of all roles, and what they refer to."""

    roles: list[RequestColumns]
    names: list[str]
    events: tuple[Events, ...]

    def of(self, asker: Requester) -> RequestColumns:
        """Its requests on the group, by instance."""
        role = self.roles[asker.role]
        own = role.take(np.isin(role.group, asker.numbers))
        return own.take(np.argsort(own.instance, kind="stable"))

    def given(self, asker: Requester, row: int) -> I64:
        """The split sizes of a request."""
        events = self.events[asker.role]
        return events.split[events.split_start[row] : events.split_start[row + 1]]


def role_requests(trace: Trace, dtype: str) -> RoleRequests:
    """The requests of all roles.

    Args:
        trace: Of all ranks.
        dtype: What float32 is timed as.

    Raises:
        InputError: an unknown dtype.
    """
    words = {w for e in trace.events for i in np.flatnonzero(_asks(e)).tolist() for w in (e.name[i], e.dtype[i])}
    names = sorted(words)
    number = {name: i for i, name in enumerate(names)}
    return RoleRequests([_of_role(e, number, dtype) for e in trace.events], names, trace.events)


def _asks(events: Events) -> Bool:
    return np.asarray((events.kind == Kind.COLLECTIVE) | (events.kind == Kind.SEND) | (events.kind == Kind.RECV))


def _of_role(events: Events, number: dict[str, int], dtype: str) -> RequestColumns:
    at = np.flatnonzero(_asks(events))
    names, dtypes = (np.array([number[words[i]] for i in at.tolist()], np.int64) for words in (events.name, events.dtype))
    columns = (events.kind, events.group, events.instance, events.root, events.tag)
    kind, group, instance, root, tag = (c[at].astype(np.int64) for c in columns)
    size, setup = timed_bytes(events, dtype)[at], (events.step[at] == 0).astype(np.int64)
    n_splits = np.diff(events.split_start)[at]
    return RequestColumns(at, kind, group, instance, root, tag, names, dtypes, size, events.count[at], setup, n_splits)


def first_of(keys: I64) -> tuple[I64, I64]:
    """Where each different column [any, I] comes first, in this order, and [I] which of them each is."""
    _, first, which = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    by_first = np.argsort(first)
    return first[by_first], np.argsort(by_first)[which.reshape(-1)]


def check_sizes(what: str, ranks: tuple[int, ...], size_bytes: I64, elements: I64) -> None:
    """Refuse members [P] that ask for other sizes than the first.

    Raises:
        InputError: as it says.
    """
    if (size_bytes != size_bytes[0]).any() or (elements != elements[0]).any():
        sizes = tuple(zip(size_bytes.tolist(), elements.tolist(), strict=True))
        named = f"bytes and count of {what} of ranks {ranks}"
        raise must_be("replay", named, "the same at all of them", sizes, "what each gives is told by split sizes")
