"""The order of sends along trees: how the pieces of all trees follow one another over the links, as rounds of a schedule.

In lanes, every link out of a rank is one queue, which carries a message at its full rate, then the next. It is list scheduling:
whenever a link is free, the waiting message with the longest way still to go leaves. In streams, each hop of each tree is a
queue of its own. Then the trees share every link fairly, and none of them gets less than it was packed for, also where switches
join the ways of many ranks. An inward forest is ordered backwards in time. Source: Graham, Bounds on multiprocessing timing
anomalies, SIAM J. Appl. Math. 17 (1969). Letters: M messages, U trees, N ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.collective.schedule import Schedule, Sends
from emu.equivalence import occurrence_numbers
from emu.synthesis.forest import Forest
from emu.synthesis.hops import HopNetwork
from emu.synthesis.shortening import lengths
from emu.synthesis.splitting import Tick

_LOOKED_AT = 8  # waiting messages of a queue that are tried where the first cannot leave


@dataclass(frozen=True, eq=False, slots=True)
class TreeMessages:
    """The messages of all pieces of a forest: one for each rank but the root of a tree, and each piece."""

    hop: I64  # [M] the number of its hop, among those of the network
    before: I64  # [M] the message that brings what this one sends; -1: its root has it
    tree: I64  # [M] the number of its tree
    piece: I64  # [M] the number of its piece
    level: I64  # [M] hops before it on its way
    height: F64  # [M] seconds for each byte, from its start to the end of the last message after it; all are of one size

    @staticmethod
    def of(forest: Forest, hops: HopNetwork, pieces: int) -> "TreeMessages":
        """Return the messages of a forest whose units are cut into pieces."""
        tree, rank = np.nonzero(forest.hop >= 0)
        number = np.full(forest.hop.shape, -1)
        number[tree, rank] = np.arange(len(tree))
        before, hop = number[tree, forest.parent[tree, rank]], forest.hop[tree, rank]
        level = lengths(forest.parent, np.ones((forest.n_ranks, forest.n_ranks)))[tree, rank].astype(np.int64) - 1
        return TreeMessages.in_pieces(tree, hop, before, level, 1 / hops.rate_Bps[hop], pieces)

    @staticmethod
    def in_pieces(tree: I64, hop: I64, before: I64, level: I64, taken: F64, pieces: int) -> "TreeMessages":
        """Return the messages of several pieces from those of one, each of which takes its slowest link for `taken`."""
        height = _heights(before, level, taken)
        piece = np.repeat(np.arange(pieces), len(hop))
        many = np.tile(before, pieces)
        many = np.where(many < 0, -1, many + piece * len(hop))
        hop, tree, level = (np.tile(each, pieces) for each in (hop, tree, level))
        return TreeMessages(hop, many, tree, piece, level, np.tile(height, pieces))


def _heights(before: I64, level: I64, taken: F64) -> F64:
    """Return [M] the longest time of a way that begins with each message, whose own time is `taken`."""
    height = taken.copy()
    for depth in range(int(level.max(initial=0)), 0, -1):
        here = np.flatnonzero(level == depth)
        np.maximum.at(height, before[here], height[here] + taken[before[here]])
    return height


class Lines(NamedTuple):
    """The links that hops cross, in the order in which messages enter them, and for how long a message takes them."""

    links: Sequence[Sequence[int]]  # [H] numbers of links, or of orbits of links
    taken: Sequence[Sequence[float]]  # [H] seconds for which a message takes each of these
    n_links: int
    head_s: F64  # [H]
    apart: I64  # [H] a number by which equal messages of one rank are told apart, so that they go to different ranks

    @staticmethod
    def of(hops: HopNetwork, size: float, *, inward: bool) -> "Lines":
        """Return the lines of hops for messages of `size` bytes; inward ones enter a hop at its end, as time runs backwards."""
        turned = slice(None, None, -1 if inward else 1)
        links = [hops.links_of(hop)[turned].tolist() for hop in range(len(hops.src))]
        times = [[size / hops.capacity_Bps[link] for link in each] for each in links]
        return Lines(links, times, len(hops.capacity_Bps), hops.head_s, (hops.dst - hops.src) % hops.n_ranks)


def starts(messages: TreeMessages, lines: Lines, tick: Tick) -> I64:
    """Return the messages in the order in which they leave, if each link carries one at a time.

    Args:
        messages: The messages.
        lines: The links that their hops cross.
        tick: It is called now and then.
    """
    line, count = _Line(messages, lines), 0
    while line.events:
        line.step()
        count += 1
        if not count % 1024:
            tick()
    return np.array(line.left, np.int64)


class _Line:
    """The state of list scheduling: which links are free from when on, and which messages wait for them.

    The arguments are those of `starts`.
    """

    def __init__(self, messages: TreeMessages, lines: Lines) -> None:
        self.links, self.taken = ([each[hop] for hop in messages.hop.tolist()] for each in (lines.links, lines.taken))
        self.head = lines.head_s[messages.hop].tolist()
        self.free = [0.0] * lines.n_links
        apart = lines.apart[messages.hop]
        self.priority = list(zip((-messages.height).tolist(), messages.piece.tolist(), apart.tolist(), strict=True))
        self.waiting: dict[int, list[tuple[tuple[float, ...], int]]] = {each[0]: [] for each in lines.links}
        self.after: list[list[int]] = [[] for _ in self.links]
        self.left, self.events = list[int](), list[tuple[float, int, int]]()
        for message, before in enumerate(messages.before.tolist()):
            if before >= 0:
                self.after[before].append(message)
            else:
                heappush(self.events, (0.0, 0, message))

    def step(self) -> None:
        """Handle the next event: a message becomes ready, or a queue may go on."""
        now, kind, number = heappop(self.events)
        queue = number
        if kind == 0:
            queue = self.links[number][0]
            heappush(self.waiting[queue], (self.priority[number], number))
            if self.events and self.events[0][:2] == (now, 0):
                heappush(self.events, (now, 1, queue))  # after all that become ready now
                return
        if self.free[queue] <= now:
            self._leave(now, queue)

    def _leave(self, now: float, queue: int) -> None:
        """Let the first waiting message of a queue leave whose other links are free."""
        passed, again = list[tuple[tuple[float, ...], int]](), np.inf
        waiting = self.waiting[queue]
        while waiting and len(passed) < _LOOKED_AT:
            item = heappop(waiting)
            busy = max(self.free[link] for link in self.links[item[1]])
            if busy <= now:
                self._send(now, item[1], queue)
                again = np.inf
                break
            passed.append(item)
            again = min(again, busy)
        for item in passed:
            heappush(waiting, item)
        if again < np.inf:
            heappush(self.events, (again, 1, queue))

    def _send(self, now: float, message: int, queue: int) -> None:
        """Let a message leave: its links are taken for the time of its bytes, and what follows becomes ready on arrival."""
        self.left.append(message)
        for link, taken in zip(self.links[message], self.taken[message], strict=True):
            self.free[link] = now + taken
        heappush(self.events, (self.free[queue], 1, queue))
        arrived = now + max(self.taken[message]) + self.head[message]
        for other in self.after[message]:
            heappush(self.events, (arrived, 0, other))


def rounds_of_lanes(order: I64, messages: TreeMessages, of_hop: I64) -> I64:
    """Return [M] the round of each message: after what brings its data, and after those before it in the same queue.

    Args:
        order: [M] messages in the order in which they leave.
        messages: The messages.
        of_hop: [H] the queue of each hop.
    """
    queue = of_hop[messages.hop].tolist()
    before, last = messages.before.tolist(), dict[int, int]()
    level = [0] * len(before)
    for message in order.tolist():
        brought = level[before[message]] if before[message] >= 0 else -1
        level[message] = last[queue[message]] = max(brought, last.get(queue[message], -1)) + 1
    return np.array(level, np.int64)


def lanes(forest: Forest, hops: HopNetwork, tree_bytes: float, pieces: int, tick: Tick) -> Schedule:
    """Return the schedule of a forest in which every link of a rank carries one message after another.

    Args:
        forest: The forest.
        hops: The hops between ranks.
        tree_bytes: Bytes that a tree carries, by which latency and bandwidth are weighed.
        pieces: Pieces of these that follow one another.
        tick: It is called now and then.
    """
    messages = TreeMessages.of(forest, hops, pieces)
    order = starts(messages, Lines.of(hops, tree_bytes / pieces, inward=forest.inward), tick)
    level = rounds_of_lanes(order, messages, hops.queue)
    level = level.max(initial=0) - level if forest.inward else level
    return _schedule([_Rows(forest, messages, level, hops.channel[messages.hop])], hops, pieces)


def streams(forests: Sequence[Forest], hops: HopNetwork, pieces: int) -> Schedule:
    """Return the schedule in which each hop of each tree is a queue of its own.

    Args:
        forests: One forest; or an inward one and then an outward one with the same roots. What has been added up at a root is
            spread from it while further pieces come in.
        hops: The hops between ranks.
        pieces: Pieces of what a tree carries that follow one another.
    """
    messages = [TreeMessages.of(forest, hops, pieces) for forest in forests]
    queue = [each.tree * len(hops.src) + each.hop for each in messages]
    queue[-1] = queue[-1] + len(forests[0].root) * len(hops.src) * (len(forests) - 1)
    _, first, of = np.unique(np.concatenate(queue), return_index=True, return_inverse=True)
    hop = np.concatenate([each.hop for each in messages])[first]
    channel = np.split(hops.apart(hop, occurrence_numbers(hops.src[hop]))[of], [len(queue[0])])
    rows, begin = list[_Rows](), 0
    for forest, each, own in zip(forests, messages, channel, strict=False):
        last = int(each.level.max(initial=0))
        rows.append(_Rows(forest, each, begin + each.piece + (last - each.level if forest.inward else each.level), own))
        begin += last + 1
    return _schedule(rows, hops, pieces)


class _Rows(NamedTuple):
    """The messages of a forest with their rounds and channels."""

    forest: Forest
    messages: TreeMessages
    level: I64  # [M]
    channel: I64  # [M]


def _schedule(parts: Sequence[_Rows], hops: HopNetwork, pieces: int) -> Schedule:
    """Return the schedule of the messages of one or several forests; tree t carries the slots from t * pieces on."""
    level = np.concatenate([part.level for part in parts])
    reduce = np.repeat([part.forest.inward for part in parts], [len(part.level) for part in parts])
    hop = np.concatenate([part.messages.hop for part in parts])
    slot = np.concatenate([part.messages.tree * pieces + part.messages.piece for part in parts])
    channel = np.concatenate([part.channel for part in parts])
    order = np.argsort(level, kind="stable")
    rounds = (
        Sends(hops.src[hop[now]], hops.dst[hop[now]], slot[now], reduce[now], channel[now])
        for now in np.split(order, np.flatnonzero(np.diff(level[order])) + 1)
    )
    n_slots = len(parts[0].forest.root) * pieces
    return Schedule.build(hops.n_ranks - hops.helpers, n_slots, rounds, helpers=hops.helpers)
