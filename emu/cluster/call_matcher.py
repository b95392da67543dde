"""The matcher of the requests of running ranks, which finds the requests of each collective call and of each message."""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from emu.backend.rank.rank_requests import ANY, RankRequest
from emu.cluster.cluster import MESSAGES, check_agrees, group_name
from emu.errors import RunError, rank_list

_LISTED, _OTHERS = 4, 3


@dataclass(frozen=True, eq=False, slots=True)
class ArrivedRequest:
    """A request with its number: the n-th collective of its group, or the n-th message of its sender, receiver and tag."""

    call: RankRequest
    made: Any  # the caller's key of the call, such as its Work
    instance: int


_Members = dict[int, ArrivedRequest]  # those that have called a collective, by group rank


def channel_of(call: RankRequest) -> object:
    """Return the key by which both ends of a message match: group, sender, receiver and tag."""
    ends = (call.rank, call.root) if call.operation == "send" else (call.root, call.rank)
    return call.group[:2], ends, call.tag


class CallMatcher:
    """The requests of all ranks that have arrived, and the calls that still lack the requests of some members.

    The object does not depend on how ranks are divided over threads and processes.
    """

    def __init__(self) -> None:
        self._made: defaultdict[object, int] = defaultdict(int)  # how many requests each rank has made
        self._open: defaultdict[object, _Members] = defaultdict(dict)  # collectives that not all members have called
        self._messages: defaultdict[object, deque[ArrivedRequest]] = defaultdict(deque)

    def arrival(self, call: RankRequest, made: Hashable) -> ArrivedRequest:
        """Return a rank's request with its number.

        Numbers count the rank's requests on one group, or its messages on one channel.
        """
        key = (channel_of(call), call.operation) if call.operation in MESSAGES else (call.group[:2], call.rank)
        self._made[key] += 1
        return ArrivedRequest(call, made, self._made[key] - 1)

    def arrive(self, arrival: ArrivedRequest) -> Sequence[ArrivedRequest]:
        """Add a request; return all requests of its call if it is now complete (a message's send first), else ().

        Raises:
            RunError: Another member made a different request with this number.
        """
        call = arrival.call
        if call.operation in MESSAGES:
            return self._message(arrival)
        key = (call.group[:2], arrival.instance)
        arrived = self._open[key]
        if arrived:
            check_agrees(call, next(iter(arrived.values())).call)
        arrived[call.rank] = arrival
        if len(arrived) < len(call.group.ranks):
            return ()
        del self._open[key]
        return [arrived[rank] for rank in sorted(arrived)]

    def _message(self, arrival: ArrivedRequest) -> Sequence[ArrivedRequest]:
        call = arrival.call
        waiting = self._messages[call.group[:2], call.root if call.operation == "send" else call.rank, call.tag]
        other = next((a for a in waiting if _is_pair(a.call, call)), None)
        if other is None:
            waiting.append(arrival)
            return ()
        waiting.remove(other)
        pair = (arrival, other) if arrival.call.operation == "send" else (other, arrival)
        check_message(*(p.call for p in pair))
        return pair

    def story(self, waits: Iterable[tuple[int, object]], others: Iterable[str], ended: Set[int]) -> str:
        """Return a text that says which ranks wait for which other ranks, for the error of a deadlock.

        Args:
            waits: Pairs of a rank and the key of the request for which it waits.
            others: Texts on waits for something other than communication, such as a lock; the most likely causes first.
            ended: The ranks that have ended.
        """
        open_calls: dict[object, tuple[ArrivedRequest, _Members | None]] = {}
        open_calls |= {a.made: (a, members) for members in self._open.values() for a in members.values()}
        open_calls |= {a.made: (a, None) for queue in self._messages.values() for a in queue}
        asked = Counter(_wait(rank, *open_calls[made]) for rank, made in waits if made in open_calls)
        outside = Counter(others)
        equal = [*outside.items()]
        listed = [*equal[:_OTHERS], *asked.items(), *equal[_OTHERS:]][:_LISTED]
        left = asked.total() + outside.total() - sum(count for _, count in listed)
        told = [text if count == 1 else f"{text}, in {count} threads" for text, count in listed]
        more = [f"{left} more {'threads of ranks' if outside else 'ranks'} wait"] if left else []
        gone = [f"rank {rank_list(sorted(ended))} has ended"] if ended else []
        return "; ".join(told + more + gone)


def _is_pair(one: RankRequest, other: RankRequest) -> bool:
    """Return True if one request is a send and the other the receive of it; both go to one rank under one tag."""
    if one.operation == other.operation:
        return False
    sent, received = (one, other) if one.operation == "send" else (other, one)
    return received.root in (ANY, sent.rank)


def check_message(sent: RankRequest, received: RankRequest) -> None:
    """Check that the receiver of a message expects its size and dtype.

    Raises:
        RunError: another size or dtype.
    """
    if (sent.count, sent.dtype) != (received.count, received.dtype):
        raise RunError(
            f"mismatch on {group_name(sent)}: rank {sent.global_rank} calls {sent.describe()} with tag {sent.tag}, "
            f"rank {received.global_rank} {received.describe()}; let size and dtype agree"
        )


def _wait(rank: int, arrival: ArrivedRequest, arrived: _Members | None) -> str:
    call = arrival.call
    if arrived is None:
        side = "receive" if call.operation == "send" else "send"
        peer = "any rank" if call.root == ANY else f"rank {call.group.ranks[call.root]}"
        missing = f"the {side} of {peer} (tag {call.tag})"
    else:
        absent = [r for i, r in enumerate(call.group.ranks) if i not in arrived]
        missing = f"rank {rank_list(absent)}"
    return f"rank {rank} waits in {call.describe()} on {group_name(call)}, call {arrival.instance + 1}, for {missing}"
