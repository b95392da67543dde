"""The builder of a graph from events of ranks; a call becomes messages, a delay, or a body.

X events, W tasks of events: one each, or one for each rank that an event stands for.
"""

import numpy as np

from emu.arrays import F64, I64, ramps
from emu.fabric.build import Builder
from emu.fabric.lower import LoweredSchedule
from emu.trace.replay.delay import Delay, members_of


class EventBuilder(Builder):
    """The builder of a graph, event by event; events with several tasks each wait task by task for one another.

    Args:
        capacity_Bps: The capacity of each link.
        start: [X + 1] where the tasks of each event begin among the W.
    """

    def __init__(self, capacity_Bps: F64, start: I64) -> None:
        super().__init__(capacity_Bps)
        self.start = start
        # [W] The task of a computation, or the tasks with which a request is entered and left; -1: none.
        self.begins, self.ends = (np.full(start[-1], -1, np.int64) for _ in range(2))

    def compute(self, at: I64, ticks: I64, owner: int, origin: I64) -> I64:
        """Add a computation for each of the W that `at` names; return their numbers in the graph."""
        self.begins[at] = self.ends[at] = found = self.tasks(ticks, owner, origin)
        return found

    def send(self, piece: LoweredSchedule, at: I64, owner: I64, origin: I64) -> I64:
        """Add k equal calls as the messages of a lowered schedule; return the first task [k] of each.

        Args:
            piece: The lowered schedule, on the links of the builder.
            at: [k, members] which of the W each member enters and leaves.
            owner: [members] the rank of each.
            origin: [k, members] the event of its rank that is its request.
        """
        member = members_of(piece).ravel()
        owners, origins = (np.full((len(at), piece.orbit.size), -1) for _ in range(2))
        owners[:, member], origins[:, member] = owner, origin
        first = self.pieces(piece, owners, origins)
        self.begins[at], self.ends[at] = (first[:, None] + joins[member] for joins in (piece.entry, piece.exit))
        return first

    def hold(self, delay: Delay, at: I64) -> int:
        """Add a call as a delay, and return one of its tasks; `at` has the task of each member's event."""
        begins, ends = delay.add(self)
        of_group = delay.number[members_of(delay.piece).ravel()]
        self.begins[at], self.ends[at] = begins[of_group], ends[of_group]
        return int(ends[0])

    def follow(self, event: I64, waited: I64, until: I64) -> tuple[I64, I64]:
        """Add waits between events; return the events that wait, and the task that each waits for, both [any].

        Args:
            event: [any] events.
            waited: [any] the event for which each waits.
            until: [W] the tasks for whose ends others wait.
        """
        task, pred, which = _pairs(self.start, event, waited)
        task, pred = self.begins[task], until[pred]
        known = (task >= 0) & (pred >= 0)
        self.wait(task[known], pred[known])
        return event[which[known]], pred[known]


def _pairs(start: I64, event: I64, waited: I64) -> tuple[I64, I64, I64]:
    """Return which of the W tasks waits for which, and the index of the waiting event, for pairs of events.

    Two events with several tasks are paired task by task. If only one of them has, its tasks are all paired with the other.
    """
    own, other = (start[of + 1] - start[of] for of in (event, waited))
    count = np.maximum(own, other)
    which = np.repeat(np.arange(len(event)), count)
    number = ramps(np.zeros_like(count), count)
    task, pred = (start[of[which]] + np.where(wide[which] > 1, number, 0) for of, wide in ((event, own), (waited, other)))
    return task, pred, which
