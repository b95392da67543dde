"""What ran, without times: events by role, as columns.

R roles, N ranks, E events, W waits, S split sizes, G groups, P parts of memory. Ranks that did the same share a role, and so
its events. What makes cross-rank order is only that members of one (group, instance), or both ends of one (group, src, dst,
tag, n), meet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from emu.arrays import F64, I16, I32, I64, digest

COMMAND = "command"  # the key of a trace's meta that names which command of Emu made it: run, train or estimate
UPDATE = "optimizer"  # the mark where an optimizer begins to change the weights
# What the memory of a rank holds: the optimizer's state is what it keeps, activations are whatever is nothing else.
PARTS = ("weights", "gradients", "optimizer_state", "activations")


class Kind(IntEnum):
    """What an event is."""

    COMPUTE = 0  # an operator: FLOPs and bytes of memory traffic
    COLLECTIVE = 1  # a request on a group
    SEND = 2  # to `peer` (a global rank's offset is resolved by role: see `peer`)
    RECV = 3
    MARK = 4  # a named moment: the end of a step, a phase


@dataclass(frozen=True, eq=False, slots=True)
class Events:
    """The events of one role in the order they were issued; `seq` is the row."""

    step: I32  # [E] 0 is set-up
    kind: I16  # [E] a Kind
    stream: I16  # [E] of the rank's device, that it was issued on; 0: the default one. Its computations are in order
    name: tuple[str, ...]  # [E] operator, operation or mark
    dtype: tuple[str, ...]  # [E] torch's name without the module, e.g. "float32"; "tf32" of its products where TF32 was allowed
    flops: F64  # [E]
    bytes: I64  # [E] as it ran: inputs and outputs of an operator, the operation's size for a request, the message
    count: I64  # [E] the elements of `dtype` among those bytes, which another dtype would scale
    kernel: I16  # [E] a Kernel; of what is no computation OTHER
    batch: I32  # [E] as this and the next three: the sizes of a Shape
    m: I32  # [E]
    n: I32  # [E]
    k: I32  # [E]
    group: I32  # [E] index into Trace.groups' axis names; -1 for computations
    instance: I32  # [E] the n-th call on that group, equal on all members
    root: I32  # [E] of a rooted operation, or the peer of a send or receive, as a group rank; else 0
    tag: I32  # [E] of a send or receive
    wait_start: I64  # [E + 1]
    wait: I32  # [W] earlier events of the same role that must have ended before this one starts
    split_start: I64  # [E + 1]
    split: I64  # [S] elements of each block that the rank gives to a collective (an all_to_all's: for each member); none: even

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """Ranks that talk together, in group-rank order; the axis says what for (a plan's word, "world" or "")."""

    axis: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """What each role did, which rank plays which role, and which group each rank means by an event's group number.

    An event's `group` is a number of the role; `group_of[rank][number]` is an index into `groups`, so that ranks of equal
    roles can share events though they talk to different peers.
    """

    events: tuple[Events, ...]  # [R]
    role_of_rank: I32  # [N]
    groups: tuple[Group, ...]  # [G]
    group_of: tuple[tuple[int, ...], ...]  # [N] by role's group number
    peak_by_part: I64  # [R, P] live storage of the role when there was most, as it ran
    meta: tuple[tuple[str, str], ...] = ()  # what made it: command, script or model, plan, versions

    @property
    def n_ranks(self) -> int:
        """N."""
        return len(self.role_of_rank)

    @property
    def command(self) -> str:
        """Which command of Emu made it; "" where it does not say, as older ones do not."""
        return dict(self.meta).get(COMMAND, "")

    @property
    def peak_bytes(self) -> I64:
        """[R] largest live storage of each role."""
        return np.asarray(self.peak_by_part.sum(axis=1))

    def events_of(self, rank: int) -> Events:
        """The events that `rank` went through."""
        return self.events[int(self.role_of_rank[rank])]

    def digest(self) -> str:
        """Equal traces have equal digests."""
        groups = [(g.axis, g.ranks) for g in self.groups]
        return digest((*_flat(self.events), self.role_of_rank, self.peak_by_part, groups, self.group_of))


def _flat(events: Sequence[Events]) -> list[object]:
    return [getattr(e, name) for e in events for name in Events.__slots__]
