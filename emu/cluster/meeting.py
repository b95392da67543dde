"""Calls that belong together: the n-th of each member of a group, or the n-th send and receive of a pair and tag."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from emu.backend.rank.call import Call
from emu.backend.rank.work import Work
from emu.cluster.cluster import check_agrees, place
from emu.errors import RunError

_LISTED = 4


@dataclass(frozen=True, eq=False, slots=True)
class Arrival:
    """A call that was made, and its place: the n-th collective of its group, or message of its pair and tag."""

    call: Call
    work: Work
    instance: int


@dataclass(eq=False, slots=True)
class _Meeting:
    """One collective that not all members have called yet, by group rank."""

    arrived: dict[int, Arrival] = field(default_factory=dict)


class Meetings:
    """Brings the calls of all ranks together; knows nothing of threads."""

    def __init__(self) -> None:
        self._made: defaultdict[object, int] = defaultdict(int)
        self._meetings: dict[object, _Meeting] = {}
        self._messages: defaultdict[object, deque[Arrival]] = defaultdict(deque)

    def arrive(self, call: Call, work: Work) -> tuple[Arrival, Sequence[Arrival]]:
        """Add a call; return it with its place, and all calls of its meeting if it is the last (else none).

        Raises:
            RunError: another member called something else at the same place.
        """
        if call.operation in ("send", "recv"):
            return self._message(call, work)
        group = call.group[:2]
        arrival = Arrival(call, work, self._next((group, call.rank)))
        meeting = self._meetings.setdefault((group, arrival.instance), _Meeting())
        for first in meeting.arrived.values():
            check_agrees(call, first.call)
            break
        meeting.arrived[call.rank] = arrival
        if len(meeting.arrived) < len(call.group.ranks):
            return arrival, ()
        del self._meetings[group, arrival.instance]
        return arrival, [meeting.arrived[rank] for rank in sorted(meeting.arrived)]

    def _message(self, call: Call, work: Work) -> tuple[Arrival, Sequence[Arrival]]:
        ends = (call.rank, call.root) if call.operation == "send" else (call.root, call.rank)
        channel = (call.group[:2], ends, call.tag)
        arrival = Arrival(call, work, self._next((channel, call.operation)))
        waiting = self._messages[channel]
        if not waiting or waiting[0].call.operation == call.operation:
            waiting.append(arrival)
            return arrival, ()
        other = waiting.popleft()
        pair = (arrival, other) if call.operation == "send" else (other, arrival)
        check_message(*(p.call for p in pair))
        return arrival, pair

    def _next(self, key: object) -> int:
        self._made[key] += 1
        return self._made[key] - 1

    def story(self, waits: dict[int, Work], ended: set[int]) -> str:
        """Who waits for what: `waits` by rank, and the ranks that have ended."""
        open_calls: dict[Work, tuple[Arrival, _Meeting | None]] = {}
        open_calls |= {a.work: (a, m) for m in self._meetings.values() for a in m.arrived.values()}
        open_calls |= {a.work: (a, None) for queue in self._messages.values() for a in queue}
        told = [_wait(rank, *open_calls[work]) for rank, work in sorted(waits.items()) if work in open_calls]
        more = [f"{len(told) - _LISTED} more ranks wait"] if len(told) > _LISTED else []
        gone = [f"rank {_listed(sorted(ended))} has ended"] if ended else []
        return "; ".join(told[:_LISTED] + more + gone)


def check_message(sent: Call, received: Call) -> None:
    """Refuse a message that its receiver does not expect.

    Raises:
        RunError: another size or dtype.
    """
    if (sent.count, sent.dtype) != (received.count, received.dtype):
        raise RunError(
            f"mismatch on {place(sent)}: rank {sent.global_rank} calls {sent.describe()} with tag {sent.tag}, "
            f"rank {received.global_rank} {received.describe()}; let size and dtype agree"
        )


def _wait(rank: int, arrival: Arrival, meeting: _Meeting | None) -> str:
    call = arrival.call
    if meeting is None:
        side = "receive" if call.operation == "send" else "send"
        missing = f"the {side} of rank {call.group.ranks[call.root]} (tag {call.tag})"
    else:
        absent = [r for i, r in enumerate(call.group.ranks) if i not in meeting.arrived]
        missing = f"rank {_listed(absent)}"
    return f"rank {rank} waits in {call.describe()} on {place(call)}, call {arrival.instance + 1}, for {missing}"


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
