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

    request: RankRequest
    ticket: Any  # by which the caller knows the request again: its Work, or with a pace the key of that
    instance: int  # the number of the request, from 0


_Members = dict[int, ArrivedRequest]  # those that have called a collective, by group rank


def channel_of(request: RankRequest) -> object:
    """Return the key by which both ends of a message match: group, sender, receiver and tag."""
    ends = (request.rank, request.root) if request.operation == "send" else (request.root, request.rank)
    return request.group[:2], ends, request.tag


class CallMatcher:
    """The requests of all ranks that have arrived, and the calls that still lack the requests of some members.

    The object does not depend on how ranks are divided over threads and processes.
    """

    def __init__(self) -> None:
        self._made: defaultdict[object, int] = defaultdict(int)  # how many requests each rank has made
        self._open: defaultdict[object, _Members] = defaultdict(dict)  # collectives that not all members have called
        self._messages: defaultdict[object, deque[ArrivedRequest]] = defaultdict(deque)

    def number_request(self, request: RankRequest, ticket: Hashable) -> ArrivedRequest:
        """Return a rank's request with its number.

        Numbers count the rank's requests on one group, or its messages on one channel.
        """
        key = (channel_of(request), request.operation) if request.operation in MESSAGES else (request.group[:2], request.rank)
        self._made[key] += 1
        return ArrivedRequest(request, ticket, self._made[key] - 1)

    def match(self, arrival: ArrivedRequest) -> Sequence[ArrivedRequest]:
        """Add a request; return all requests of its call if it is now complete (a message's send first), else ().

        Raises:
            RunError: Another member made a different request with this number.
        """
        request = arrival.request
        if request.operation in MESSAGES:
            return self._message(arrival)
        key = (request.group[:2], arrival.instance)
        arrived = self._open[key]
        if arrived:
            check_agrees(request, next(iter(arrived.values())).request)
        arrived[request.rank] = arrival
        if len(arrived) < len(request.group.ranks):
            return ()
        del self._open[key]
        return [arrived[rank] for rank in sorted(arrived)]

    def _message(self, arrival: ArrivedRequest) -> Sequence[ArrivedRequest]:
        request = arrival.request
        waiting = self._messages[request.group[:2], request.root if request.operation == "send" else request.rank, request.tag]
        other = next((a for a in waiting if _is_pair(a.request, request)), None)
        if other is None:
            waiting.append(arrival)
            return ()
        waiting.remove(other)
        pair = (arrival, other) if arrival.request.operation == "send" else (other, arrival)
        check_message(*(p.request for p in pair))
        return pair

    def story(self, waits: Iterable[tuple[int, object]], others: Iterable[str], ended: Set[int]) -> str:
        """Return a text that says which ranks wait for which other ranks, for the error of a deadlock.

        Args:
            waits: Pairs of a rank and the key of the request for which it waits.
            others: Texts on waits for something other than communication, such as a lock; the most likely causes first.
            ended: The ranks that have ended.
        """
        open_calls: dict[object, tuple[ArrivedRequest, _Members | None]] = {}
        open_calls |= {a.ticket: (a, members) for members in self._open.values() for a in members.values()}
        open_calls |= {a.ticket: (a, None) for queue in self._messages.values() for a in queue}
        asked = Counter(_wait(rank, *open_calls[ticket]) for rank, ticket in waits if ticket in open_calls)
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
    request = arrival.request
    if arrived is None:
        side = "receive" if request.operation == "send" else "send"
        peer = "any rank" if request.root == ANY else f"rank {request.group.ranks[request.root]}"
        missing = f"the {side} of {peer} (tag {request.tag})"
    else:
        absent = [r for i, r in enumerate(request.group.ranks) if i not in arrived]
        missing = f"rank {rank_list(absent)}"
    return f"rank {rank} waits in {request.describe()} on {group_name(request)}, call {arrival.instance + 1}, for {missing}"
