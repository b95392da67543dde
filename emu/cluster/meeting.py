"""Calls that belong together: the n-th of each member of a group, or the n-th send and receive of a pair and tag."""

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from emu.backend.rank.call import ANY, Call
from emu.cluster.cluster import MESSAGES, check_agrees, place
from emu.errors import RunError

_LISTED, _OTHERS = 4, 3


@dataclass(frozen=True, eq=False, slots=True)
class Arrival:
    """A call that was made, and its place: the n-th collective of its group, or message of its pair and tag."""

    call: Call
    made: Any  # what the caller knows it by, such as its Work
    instance: int


@dataclass(eq=False, slots=True)
class _Meeting:
    """One collective that not all members have called yet, by group rank."""

    arrived: dict[int, Arrival] = field(default_factory=dict)


class Places:
    """Counts the calls of each rank, so that each has a place."""

    def __init__(self) -> None:
        self._made: defaultdict[object, int] = defaultdict(int)

    def arrival(self, call: Call, made: Hashable) -> Arrival:
        """The next call of a rank, with its place."""
        key = (channel_of(call), call.operation) if call.operation in MESSAGES else (call.group[:2], call.rank)
        self._made[key] += 1
        return Arrival(call, made, self._made[key] - 1)


def channel_of(call: Call) -> object:
    """Where a message meets its other end: group, sender, receiver and tag."""
    ends = (call.rank, call.root) if call.operation == "send" else (call.root, call.rank)
    return call.group[:2], ends, call.tag


class Meetings:
    """Brings the calls of all ranks together; knows nothing of threads and processes."""

    def __init__(self) -> None:
        self._meetings: dict[object, _Meeting] = {}
        self._messages: defaultdict[object, deque[Arrival]] = defaultdict(deque)

    def arrive(self, arrival: Arrival) -> Sequence[Arrival]:
        """Add a call; all calls of its meeting if it is the last (else none), of a message the sender's first.

        Raises:
            RunError: another member called something else at the same place.
        """
        call = arrival.call
        if call.operation in MESSAGES:
            return self._message(arrival)
        key = (call.group[:2], arrival.instance)
        meeting = self._meetings.setdefault(key, _Meeting())
        for first in meeting.arrived.values():
            check_agrees(call, first.call)
            break
        meeting.arrived[call.rank] = arrival
        if len(meeting.arrived) < len(call.group.ranks):
            return ()
        del self._meetings[key]
        return [meeting.arrived[rank] for rank in sorted(meeting.arrived)]

    def _message(self, arrival: Arrival) -> Sequence[Arrival]:
        call = arrival.call
        waiting = self._messages[call.group[:2], call.root if call.operation == "send" else call.rank, call.tag]
        other = next((a for a in waiting if _meet(a.call, call)), None)
        if other is None:
            waiting.append(arrival)
            return ()
        waiting.remove(other)
        pair = (arrival, other) if arrival.call.operation == "send" else (other, arrival)
        check_message(*(p.call for p in pair))
        return pair

    def story(self, waits: Iterable[tuple[int, object]], others: Iterable[str], ended: Set[int]) -> str:
        """Return who waits for what.

        Args:
            waits: A rank, and what its caller knows the request by that it waits for.
            others: Who waits outside of communication, in words; those first that others are likely to wait for.
            ended: The ranks that have ended.
        """
        open_calls: dict[object, tuple[Arrival, _Meeting | None]] = {}
        open_calls |= {a.made: (a, m) for m in self._meetings.values() for a in m.arrived.values()}
        open_calls |= {a.made: (a, None) for queue in self._messages.values() for a in queue}
        asked, others = [_wait(rank, *open_calls[made]) for rank, made in waits if made in open_calls], [*others]
        told = [*others[:_OTHERS], *asked, *others[_OTHERS:]]
        who = "threads of ranks" if others else "ranks"
        more = [f"{len(told) - _LISTED} more {who} wait"] if len(told) > _LISTED else []
        gone = [f"rank {_listed(sorted(ended))} has ended"] if ended else []
        return "; ".join(told[:_LISTED] + more + gone)


def _meet(one: Call, other: Call) -> bool:
    """Whether they are a send and a receive of it; both are of messages to one rank under one tag."""
    if one.operation == other.operation:
        return False
    sent, received = (one, other) if one.operation == "send" else (other, one)
    return received.root in (ANY, sent.rank)


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
        peer = "any rank" if call.root == ANY else f"rank {call.group.ranks[call.root]}"
        missing = f"the {side} of {peer} (tag {call.tag})"
    else:
        absent = [r for i, r in enumerate(call.group.ranks) if i not in meeting.arrived]
        missing = f"rank {_listed(absent)}"
    return f"rank {rank} waits in {call.describe()} on {place(call)}, call {arrival.instance + 1}, for {missing}"


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
