"""The trace of a run: the events of each role, as columns, without times.

R roles, N ranks, E events, W waits, S split sizes, G groups, P parts of memory. Ranks that did exactly the same share a role,
and so its events. Ranks wait for one another only in calls: the members of one (group, instance) belong together, and so do
both ends of one message, the n-th of its (group, src, dst, tag).

Also here: the line of the user's program that made each request of a trace, stored in the trace's meta.

No time depends on these lines, so they are no part of the events.

Also here: the kind of kernel that does a computation, and the sizes that decide how well it fills the device.

Also here: the dtype that events are timed in: float32 as it ran, or as another data type.

E events of a role.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import F64, I16, I32, I64, column, digest
from emu.notebook_view import html_of
from emu.registry import unknown


class Kernel(IntEnum):
    """A kind of kernel; a device needs a time of its own for each kind."""

    OTHER = 0  # a kernel that moves bytes, or one whose FLOPs have an unknown shape
    PRODUCT = 1  # BATCH matrices [M, K] times as many [K, N]; of a grouped product M is the rows of each group
    ATTENTION = 2  # one kernel that writes no scores: BATCH heads of all sequences, M queries, N keys, K elements a head
    CAUSAL = 3  # ATTENTION under a causal mask, which needs only half of the scores
    ATTENTION_BACKWARD = 4  # the gradients of queries, keys and values of that attention
    CAUSAL_BACKWARD = 5  # the same under a causal mask
    SCATTER_ADD = 6  # adds M rows of N elements to rows that repeat, each element by an atomic operation


ATTENTIONS = (Kernel.ATTENTION, Kernel.CAUSAL, Kernel.ATTENTION_BACKWARD, Kernel.CAUSAL_BACKWARD)
MASKED = (Kernel.CAUSAL, Kernel.CAUSAL_BACKWARD)
BACKWARD = (Kernel.ATTENTION_BACKWARD, Kernel.CAUSAL_BACKWARD)
_UNMASKED = {Kernel.CAUSAL: Kernel.ATTENTION, Kernel.CAUSAL_BACKWARD: Kernel.ATTENTION_BACKWARD}
_BACKWARD = {Kernel.ATTENTION: Kernel.ATTENTION_BACKWARD, Kernel.CAUSAL: Kernel.CAUSAL_BACKWARD}


class Shape(NamedTuple):
    """The kernel and the sizes of one computation; a size of 0 is unknown."""

    kernel: Kernel = Kernel.OTHER
    batch: int = 0
    m: int = 0
    n: int = 0
    k: int = 0

    def unmasked(self, queries: int = 1, keys: int = 1) -> "Shape":
        """Return the shape of an attention in which part of the queries sees a whole part of the keys, without a mask.

        Args:
            queries: The number of equal parts into which the queries are divided; the result has one of them.
            keys: The number of equal parts into which the keys are divided; the result has one of them.
        """
        if self.kernel not in _UNMASKED:
            return self
        return self._replace(kernel=_UNMASKED[self.kernel], m=self.m // queries, n=self.n // keys)

    def backward(self) -> "Shape":
        """Return the shape of the kernel that works out the gradients of an attention; of any other kernel the same."""
        return self._replace(kernel=_BACKWARD.get(self.kernel, self.kernel))


MOVES = Shape()


COMMAND = "command"  # the key of a trace's meta that names which command of Emu made it: run, train or estimate
UPDATE = "optimizer"  # the mark where an optimizer begins to change the weights
# The parts of a rank's memory. Activations are all storage that belongs to no other part.
PARTS = ("weights", "gradients", "optimizer_state", "activations")


class Kind(IntEnum):
    """The kind of an event."""

    COMPUTE = 0  # an operator: FLOPs and bytes of memory traffic
    COLLECTIVE = 1  # a request on a group
    SEND = 2  # a message to the group rank that `root` names
    RECV = 3  # a message from the group rank that `root` names
    MARK = 4  # a named moment: the end of a step, a phase


def _no_times() -> F64:
    return column((), np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class Events:
    """The events of one role in the order they were issued; `seq` is the row."""

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
    """A process group: ranks that communicate with each other, in the order of their group ranks.

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
        """Return what it was recorded of, and the events and the memory of each role, for a notebook."""
        return html_of(self)

    @property
    def n_ranks(self) -> int:
        """The number N of ranks."""
        return len(self.role_of_rank)

    @property
    def command(self) -> str:
        """The command of Emu that made the trace: "run", "train" or "estimate"; "" for older traces, which do not name it."""
        return dict(self.meta).get(COMMAND, "")

    @property
    def peak_bytes(self) -> I64:
        """[R] The largest live storage of each role, in bytes."""
        return np.asarray(self.peak_by_part.sum(axis=1))

    def events_of(self, rank: int) -> Events:
        """Return the events of the role that `rank` plays."""
        return self.events[int(self.role_of_rank[rank])]

    def digest(self) -> str:
        """Return a digest of the trace; equal traces have equal digests."""
        groups = [(g.axis, g.ranks) for g in self.groups]
        return digest((*_flat(self.events), self.role_of_rank, self.peak_by_part, groups, self.group_of))


def _flat(events: Sequence[Events]) -> list[object]:
    return [getattr(e, name) for e in events for name in Events.__slots__]


_KEY = "lines"
Lines = Mapping[int, str]  # the line of the user's program, by the number of a role's event


def lines_entry(lines: Sequence[Lines]) -> tuple[tuple[str, str], ...]:
    """Return an entry for a trace's meta that holds the lines of each role [R], or no entry if no line is known."""
    words = list(dict.fromkeys(line for of_role in lines for line in of_role.values()))
    number = {word: i for i, word in enumerate(words)}
    packed = [[list(of_role), [number[line] for line in of_role.values()]] for of_role in lines]
    return ((_KEY, json.dumps([words, packed])),) if words else ()


def lines_of(trace: Trace) -> list[Lines]:
    """Return [R] for each role of a trace, the line of each of its requests whose line is known, by the event's number."""
    words, packed = json.loads(dict(trace.meta).get(_KEY, "[[], []]"))
    found: list[Lines] = [{event: words[i] for event, i in zip(*of_role, strict=True)} for of_role in packed]
    return found or [{} for _ in trace.events]


FLOAT_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
TF32 = "tf32"  # of a product of float32 elements that the setting of the program let round its factors to TF32
AS_RAN = "as-ran"  # in place of a dtype: each operator and message is timed in the dtype that it ran in
_SINGLE = ("float32", TF32)
_REDUCED = "bfloat16"  # what float32 is timed as where a trace does not say that it is timed as it ran
_AS_RAN_BY = ("run", "estimate")  # commands that time what they record or generate as it ran


def check_dtype(dtype: str) -> None:
    """Refuse what float32 cannot be timed as.

    Raises:
        InputError: neither `AS_RAN` nor a dtype of `FLOAT_BYTES`; the message names the nearest.
    """
    if dtype != AS_RAN and dtype not in FLOAT_BYTES:
        raise unknown("dtype", dtype, (AS_RAN, *FLOAT_BYTES))


def usual_dtype(trace: Trace) -> str:
    """Return what float32 of a trace is timed as where nobody says: as the command that made the trace times it.

    A trace that names no command is timed as bfloat16, as all traces were before they named one.
    """
    return AS_RAN if trace.command in _AS_RAN_BY else _REDUCED


def timed_as(ran: str, dtype: str) -> str:
    """Return the dtype that an event of dtype `ran` is timed as."""
    return dtype if dtype != AS_RAN and ran in _SINGLE else ran


def timed_bytes(events: Events, dtype: str) -> I64:
    """Return [E] the bytes of each event, had its float32 elements been of `dtype`.

    Raises:
        InputError: an unknown dtype.
    """
    check_dtype(dtype)
    return np.asarray(events.bytes - is_single(events) * events.count * (4 - item_as(4, "float32", dtype)))


def item_as(item_bytes: int, ran: str, dtype: str) -> int:
    """Return the bytes of an element of a dtype that ran, as it is timed."""
    return FLOAT_BYTES[dtype] if dtype != AS_RAN and ran in _SINGLE else item_bytes


def is_single(events: Events) -> I64:
    """Return [E] 1 where an event is of float32 elements, with or without TF32; else 0."""
    return np.array([d in _SINGLE for d in events.dtype], dtype=np.int64)
