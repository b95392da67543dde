"""The operations of a GOAL schedule (Group Operation Assembly Language) as columns; LogGOPSim and ATLAHS run such schedules.

N ranks, O operations of all ranks, rank after rank; W waits between operations of one rank. Source of the format: Hoefler,
Siebert and Lumsdaine, Group Operation Assembly Language (ICPP 2009); Hoefler, Schneider and Lumsdaine, LogGOPSim (HPDC 2010).
"""

from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush

import numpy as np

from emu.arrays import I64, Bool
from emu.errors import InputError

MOST_CPUS = 256  # numbers of cpus, and of NICs, that the binary form has


class Op(IntEnum):
    """The kinds of operations of a GOAL schedule: a send, a receive, a computation; numbers are those of its binary form."""

    SEND = 1
    RECV = 2
    CALC = 3


@dataclass(frozen=True, eq=False, slots=True)
class GoalOps:
    """The O operations of all ranks of a GOAL schedule, as columns, and the W waits among them.

    An operation waits for another one of its rank: until that has started, or until it is done.
    """

    first: I64  # [N + 1] where the operations of each rank begin
    kind: I64  # [O] an Op
    size: I64  # [O] bytes of a message, or nanoseconds of a computation
    peer: I64  # [O] the rank at the other end of a message
    tag: I64  # [O] the tag of a message
    cpu: I64  # [O] the cpu on which the operation runs
    nic: I64  # [O] the NIC of a message
    line: I64  # [O] the line of the file; 0: the file has no lines
    waiting: I64  # [W] the operation that waits
    waited: I64  # [W] the operation of the same rank that it waits for
    at_start: Bool  # [W] True: until the other has started; False: until it is done

    @property
    def n_ranks(self) -> int:
        """The number N of ranks."""
        return len(self.first) - 1

    @property
    def rank(self) -> I64:
        """Array [O] of the rank of each operation."""
        return np.repeat(np.arange(self.n_ranks), np.diff(self.first))

    def place(self, op: int) -> str:
        """Return the position of an operation in its file, such as `line 12`, for error messages."""
        if self.line[op]:
            return f"line {self.line[op]}"
        rank = int(np.searchsorted(self.first, op, side="right")) - 1
        return f"operation {op - int(self.first[rank])} of rank {rank}"

    def take(self, which: I64) -> "GoalOps":
        """Return the schedule with the given operations only; waits for other operations are dropped.

        Args:
            which: The numbers of the operations, rank after rank.
        """
        place = np.full(len(self.kind), -1)
        place[which] = np.arange(len(which))
        waiting, waited = place[self.waiting], place[self.waited]
        known = (waiting >= 0) & (waited >= 0)
        first = np.searchsorted(self.rank[which], np.arange(self.n_ranks + 1))
        columns = {name: getattr(self, name)[which] for name in ("kind", "size", "peer", "tag", "cpu", "nic", "line")}
        return GoalOps(first, **columns, waiting=waiting[known], waited=waited[known], at_start=self.at_start[known])

    def in_order(self, file: str) -> "GoalOps":
        """Return the operations sorted so that each waits for earlier ones only; otherwise their order is kept.

        Args:
            file: The name of the file in error messages.

        Raises:
            InputError: operations wait for one another in a circle.
        """
        late = self.waited >= self.waiting
        if not late.any():
            return self
        order = np.arange(len(self.kind))
        for rank in np.unique(self.rank[self.waiting[late]]).tolist():
            low, high = self.first[rank : rank + 2].tolist()
            own = (self.waiting >= low) & (self.waiting < high)
            order[low:high] = low + self._sorted(high - low, self.waiting[own] - low, self.waited[own] - low, (low, file))
        return self.take(order)

    def _sorted(self, count: int, waiting: I64, waited: I64, told: tuple[int, str]) -> I64:
        """Return the operations of one rank, sorted by their waits; `told` is its first operation and the file."""
        followers: list[list[int]] = [[] for _ in range(count)]
        for later, before in zip(waiting.tolist(), waited.tolist(), strict=True):
            followers[before].append(later)
        left = np.bincount(waiting, minlength=count).tolist()
        free, found = [op for op in range(count) if not left[op]], []
        heapify(free)
        while free:
            found.append(heappop(free))
            for op in followers[found[-1]]:
                left[op] -= 1
                if not left[op]:
                    heappush(free, op)
        if len(found) < count:
            stuck = self.place(told[0] + next(op for op in range(count) if left[op]))
            raise InputError(f"goal: {told[1]!r} {stuck}: waits for itself, by what it requires; take one requires away")
        return np.array(found, np.int64)
