"""The trace of a run: the events of each role, as columns, without times.

R roles, N ranks, E events, W waits, S split sizes, G groups, P parts of memory. Ranks that did exactly the same share a role,
and so its events. Ranks wait for one another only in calls: the members of one (group, instance) belong together, and so do
both ends of one message, the n-th of its (group, src, dst, tag).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from emu.arrays import F64, I16, I32, I64, column, digest
from emu.notebook_view import html_of

COMMAND = "command"  # the key of a trace's meta that names which command of Emu made it: run, train or estimate
UPDATE = "optimizer"  # the mark where an optimizer begins to change the weights
# The parts of a rank's memory. Activations are all storage that belongs to no other part.
PARTS = ("weights", "gradients", "optimizer_state", "activations")


class Kind(IntEnum):
    """The kind of an event: a computation, a collective, a send, a receive or a mark."""

    COMPUTE = 0  # an operator: FLOPs and bytes of memory traffic
    COLLECTIVE = 1  # a request on a group
    SEND = 2  # a message to the group rank that `root` names
    RECV = 3  # a message from the group rank that `root` names
    MARK = 4  # a named moment: the end of a step, a phase


def _no_times() -> F64:
    return column((), np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class Events:
    """The events of one role as columns with one row an event, in the order of issue; an event is referred to by its row.

    `step` is the training step, 0 before the first one. `instance` counts the calls on a group. `wait` has the rows of the
    events that must have ended before an event starts: those of event i are `wait[wait_start[i] : wait_start[i + 1]]`. `split`
    has the sizes of uneven blocks in the same form.
    """

    step: I32  # [E] 0 is set-up
    kind: I16  # [E] a Kind
    stream: I16  # [E] the stream of the device on which the event was issued; 0: the default stream
    name: tuple[str, ...]  # [E] operator, operation or mark
    dtype: tuple[str, ...]  # [E] torch's name without the module, e.g. "float32"; "tf32" of its products where TF32 was allowed
    flops: F64  # [E]
    bytes: I64  # [E] inputs and outputs of an operator, the size of a collective, or a message, in the dtype that ran
    count: I64  # [E] the elements of `dtype` in these bytes; with another dtype their bytes change
    kernel: I16  # [E] a Kernel; OTHER for events that are no computation
    batch: I32  # [E] `batch` of the Shape, as `m`, `n` and `k` below
    m: I32  # [E]
    n: I32  # [E]
    k: I32  # [E]
    group: I32  # [E] the group's number in the role, see `Trace.group_of`; -1 for computations
    instance: I32  # [E] the n-th call on that group, equal on all members
    root: I32  # [E] a group rank: the root of a rooted operation, or the peer of a send or receive; else 0
    tag: I32  # [E] the tag of a send or receive
    wait_start: I64  # [E + 1]
    wait: I32  # [W] earlier events of the same role that must have ended before this one starts
    split_start: I64  # [E + 1]
    split: I64  # [S] elements of each block that the rank gives to a collective; no entry: blocks of even sizes
    lasts_s: F64 = field(default_factory=_no_times)  # [E] as it was measured, of a request with waiting; empty: nothing was

    def __len__(self) -> int:
        return len(self.kind)


_TYPES = (
    *(np.int32, np.int16, np.int16, None, None, np.float64),
    *(np.int64, np.int64, np.int16, *[np.int32] * 8),
    *(np.int64, np.int32, np.int64, np.int64),
)


def typed_events(columns: Iterable[Any]) -> Events:
    """Return the events with these columns, in the order of `Events`; each gets its type."""
    typed: list[Any] = [of if dtype is None else column(of, dtype) for of, dtype in zip(columns, _TYPES, strict=True)]
    return Events(*typed)


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """A process group: ranks that communicate with one another, in the order of their group ranks.

    The axis names the purpose of the group: a plan's axis, "world" or "".
    """

    axis: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Trace:
    """The events of each role, the role of each rank, and the groups of each rank.

    The `group` of an event is a number that its role gives; `group_of[rank][number]` is an index into `groups`. So ranks of
    equal roles share events though they communicate with different peers.
    """

    events: tuple[Events, ...]  # [R]
    role_of_rank: I32  # [N]
    groups: tuple[Group, ...]  # [G]
    group_of: tuple[tuple[int, ...], ...]  # [N] index into `groups`, by the group number of the role
    peak_by_part: I64  # [R, P] bytes of each part of memory when the role's live storage was largest
    meta: tuple[tuple[str, str], ...] = ()  # key and value: the command, the script or model, the plan, versions

    def __repr__(self) -> str:
        events = sum(len(of.step) for of in self.events)
        return f"<Trace of {self.n_ranks} ranks in {len(self.events)} roles: {events} events>"

    def _repr_html_(self) -> str:
        """Return the command, the events and the memory of each role for a notebook, as HTML."""
        return html_of(self)

    @property
    def n_ranks(self) -> int:
        """The number N of ranks."""
        return len(self.role_of_rank)

    @property
    def command(self) -> str:
        """The Emu command that made the trace: "run", "train" or "estimate"; "" for older traces."""
        return dict(self.meta).get(COMMAND, "")

    @property
    def peak_bytes(self) -> I64:
        """[R] The largest live storage of each role, in bytes."""
        return np.asarray(self.peak_by_part.sum(axis=1))

    def events_of(self, rank: int) -> Events:
        """Return the events of a rank, which are those of its role."""
        return self.events[int(self.role_of_rank[rank])]

    def digest(self) -> str:
        """Return a digest of the trace; equal traces have equal digests."""
        groups = [(g.axis, g.ranks) for g in self.groups]
        return digest((*_flat(self.events), self.role_of_rank, self.peak_by_part, groups, self.group_of))


def _flat(events: Sequence[Events]) -> list[object]:
    return [getattr(e, name) for e in events for name in Events.__slots__]
