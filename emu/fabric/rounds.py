"""A quick estimate for groups that send in a few rounds: a lower bound, and the time with a barrier after each round.

In a round, messages of one size start together. Max-min fairness then gives each message, on every link it crosses, at least an
equal share among all messages that cross the link (Bertsekas, Gallager 1992, 6.5.2). So a message has left after the time that
the busiest of its links takes for the whole round, and no link is done earlier: for one round the two times are equal, but for
the latency. With several rounds, a round that does not wait for the one before may slow that one down. So the second time is
not proved to be a bound; tests compare it with the solver. Letters: R pairs, D copies, L links, H hops.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, ascending, column
from emu.fabric.lowering.classes import Classes
from emu.fabric.lowering.message_routes import MessageRoutes, routes_of_pairs
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S

_HEADS = 16  # number of different latencies for which a lower bound is tried
_MOST = 2**20  # limit on the messages of a group times its rounds


class Rounds(NamedTuple):
    """The estimated time of groups that start at one time, in ticks.

    `least_fs` is a lower bound, `most_fs` the time with a barrier after each round.
    """

    least_fs: float
    most_fs: float
    busy_s: F64  # [L] seconds that each link takes at full rate
    flows: float  # messages that cross the busiest link at one time

    @property
    def middle_fs(self) -> float:
        """The mean of the lower bound and the time with a barrier after each round."""
        return (self.least_fs + self.most_fs) / 2

    @property
    def apart(self) -> float:
        """The largest possible error of `middle_fs`, as a share of it: half the distance of the two bounds."""
        return (self.most_fs - self.least_fs) / 2 / self.middle_fs if self.most_fs else 0.0


class _MessageCounts(NamedTuple):
    """The messages of one placed schedule, counted by round and pair."""

    ways: MessageRoutes
    number: I64  # [rounds, R] messages of each pair in each round, equal in all copies
    copies: int  # number of copies, D
    size_bytes: list[int]  # [rounds] size of every message of each round


def group_message_count(placed: Sequence[PlacedSchedule]) -> int:
    """Return the number of messages of all groups, including copies within a rank."""
    return sum(len(each.classes.messages.src) * len(each.copies(None).first) for each in placed)


def rounds_of(placed: Sequence[PlacedSchedule], most: int) -> Rounds | None:
    """Return the estimated times of groups that start at one time; None if the estimate does not apply.

    It does not apply if the groups have more than `most` rounds, or if messages of one round differ in size.

    Args:
        placed: The placed schedules, on one topology without optical switches that turn, and without send overhead.
        most: The largest number of rounds.

    Raises:
        InputError: No route joins a pair.
    """
    rounds = [_rounds(each.classes, min(most, _MOST // max(1, len(each.classes.messages.src)))) for each in placed]
    if any(each.overhead_fs or len(each.classes.tasks.turns) for each in placed):
        return None
    sizes = [None if of is None else _sizes(each.classes, of) for each, of in zip(placed, rounds, strict=True)]
    if None in sizes or any(each != sizes[0] for each in sizes) or not sizes[0]:
        return None
    sent = [_count_messages(each, of, sizes[0]) for each, of in zip(placed, rounds, strict=True) if of is not None]
    return _time_groups(sent, placed[0].topology)


def _rounds(classes: Classes, most: int) -> I64 | None:
    """Return [C] the round of each class of tasks; None if there may be more than `most` rounds.

    The round is the number of messages in the longest chain of predecessors that ends with the class.
    """
    n, own = len(classes.start) - 1, np.zeros(len(classes.start) - 1, np.int64)
    own[classes.queues.message] = 1
    task, after = np.repeat(np.arange(n), np.diff(classes.start)), own
    for _ in range(2 * most + 3):  # joins stand between messages
        before, known = np.zeros(n, np.int64), after
        np.maximum.at(before, task, known[classes.pred])
        after = before + own
        if after.max(initial=0) > most:
            return None
        if np.array_equal(after, known):
            return after
    return None


def _sizes(classes: Classes, rounds: I64) -> list[int] | None:
    """Return the message size of each round, in bytes; None if messages of one round differ in size."""
    message = classes.queues.message
    size, of = classes.messages.size_bytes[message], rounds[message]
    found = [np.unique(size[of == r]).tolist() for r in range(1, int(of.max(initial=0)) + 1)]
    return [each[0] for each in found] if all(len(each) == 1 for each in found) else None


def _count_messages(placed: PlacedSchedule, rounds: I64, sizes: list[int]) -> _MessageCounts:
    """Return the number of messages of a placed schedule for each round and pair.

    Args:
        placed: The placed schedule.
        rounds: [C] the round of each class of tasks.
        sizes: The size of the messages of each round.
    """
    copies, queues = placed.copies(None).first, placed.classes.queues
    of, pairs = rounds[queues.message] - 1, len(queues.tail)
    number = np.bincount(of * pairs + queues.pair, minlength=len(sizes) * pairs).reshape(len(sizes), pairs)
    return _MessageCounts(
        routes_of_pairs(placed.topology, placed.route_pairs(copies)), np.asarray(number, np.int64), len(copies), sizes
    )


def _time_groups(sent: Sequence[_MessageCounts], topology: Topology) -> Rounds:
    """Return the times of all groups together.

    Args:
        sent: The messages of each placed schedule.
        topology: Their topology.
    """
    rate = topology.capacity_Bps / TICKS_PER_S
    total, crossing, most_fs = np.zeros(len(rate)), np.zeros(len(rate)), 0.0
    alike = np.column_stack([sent[0].size_bytes, *(each.number for each in sent)])
    first, times = np.unique(alike, axis=0, return_index=True, return_counts=True)[1:]
    for r, n in zip(first.tolist(), times.tolist(), strict=True):
        number = sum((_sum_on_links(each, each.number[r], len(rate)) for each in sent), np.zeros(len(rate)))
        taken = number * sent[0].size_bytes[r] / rate
        most_fs += n * max(_last_arrival(each, r, taken) for each in sent)
        total, crossing = total + n * taken, crossing + n * number * taken
    busiest = total.argmax()
    flows = max(1.0, float(crossing[busiest] / total[busiest]) / topology.parts) if total[busiest] else 1.0
    return Rounds(min(_least_time(sent, rate), most_fs), most_fs, total / TICKS_PER_S, flows)


def _sum_on_links(sent: _MessageCounts, amount: F64 | I64, n_links: int) -> F64:
    """Return [L] the sum, for each link, of an amount over all pairs whose routes cross the link.

    Args:
        sent: The messages of one placed schedule.
        amount: [R] or [R D] the amount of each pair.
        n_links: The number of links.
    """
    of_way = np.repeat(amount, len(sent.ways.head_fs) // max(1, len(amount)))
    crossing = np.repeat(of_way, np.diff(sent.ways.start)) * sent.ways.weight
    return column(np.bincount(sent.ways.link, crossing, n_links), np.float64)


def _last_arrival(sent: _MessageCounts, r: int, taken: F64) -> float:
    """Return the ticks until the last message of a round arrives, if each waits for its busiest link.

    Args:
        sent: The messages of one placed schedule.
        r: The number of the round.
        taken: [L] the ticks that each link needs for all messages of the round.
    """
    waits = np.maximum.reduceat(taken[sent.ways.link], sent.ways.start[:-1]) + sent.ways.head_fs
    return float(waits[np.repeat(sent.number[r], sent.copies) > 0].max(initial=0.0))


def _least_time(sent: Sequence[_MessageCounts], rate: F64) -> float:
    """Return a lower bound of the ticks until all messages of all rounds have arrived.

    For a given latency, the bound is this latency plus the largest time that a link needs for the messages whose routes have at
    least this latency. The largest of the bounds for several latencies is returned.
    """
    heads = ascending(np.concatenate([each.ways.head_fs for each in sent]))
    least = 0.0
    for head in heads[:: -(-len(heads) // _HEADS)].tolist():
        carried = np.zeros(len(rate))
        for each in sent:
            bytes_of = np.repeat(column(each.size_bytes, np.int64) @ each.number, each.copies)
            carried += _sum_on_links(each, bytes_of * (each.ways.head_fs >= head), len(rate))
        least = max(least, float((carried / rate).max(initial=0.0)) + head)
    return least
