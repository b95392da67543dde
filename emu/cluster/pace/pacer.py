"""The fabric of a run driven by this host's clock: it takes requests as ranks make them, and says when each is answered.

One for all ranks of a job, whichever process they are in: whatever is under way at the same time shares the links.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from emu.backend.rank.call import Call, dtype_name
from emu.cluster.cluster import MESSAGES, Agreed, agree
from emu.cluster.meeting import Arrival, channel_of
from emu.cluster.pace.alarm import Alarm, now_s
from emu.cluster.pace.pace import Pace
from emu.collective.algorithm import Choice
from emu.collective.operation import ROUTED, operation
from emu.fabric.engine.layout import NEVER
from emu.trace.batch import What
from emu.trace.device.dtypes import FLOAT_BYTES
from emu.trace.requests import MESSAGE
from emu.trace.trace import Group


@dataclass(eq=False, slots=True)
class _Asked:
    """A request of which some members have arrived."""

    ranks: tuple[int, ...]
    came_fs: int = 0  # the last of those that have
    what: What | None = None  # None: its sizes are not known before all have arrived
    number: int | None = None  # of the traffic; None: it has not begun there
    arrived: dict[int, Any] = field(default_factory=dict)  # what each member is known by
    answered: int = 0  # members


class Pacer:
    """Takes the requests of one job; its clock begins with the first.

    Args:
        pace: The fabric, and how fast its time goes.
        n_ranks: Of the job.
        choice: Which algorithm serves each operation.
        due: Is given what a request of a rank is known by and the time of this host at which it is answered, ahead of it where
            that is known; on the alarm's thread or on that of a rank.
        alarm: What is used to drive it.
    """

    def __init__(self, pace: Pace, n_ranks: int, choice: Choice, due: Callable[[Any, float], None], alarm: Alarm) -> None:
        self._tempo, self._choice, self._due, self._alarm = pace.tempo, choice, due, alarm
        self._traffic = pace.traffic(n_ranks)
        self._lock = threading.RLock()
        self._queues: defaultdict[object, dict[int, _Asked]] = defaultdict(dict)  # by place: of a group, or a pair and tag
        self._latest: dict[object, int] = {}  # of each queue, the number of the last request that has begun
        self._next: defaultdict[object, int] = defaultdict(int)  # and the place of the next
        self._under_way: dict[int, _Asked] = {}
        self._stepping = NEVER
        self._began_s: float | None = None

    def set_capacity(self, link: int, capacity_Bps: float) -> None:
        """Let a link of the topology have another capacity from now on.

        Raises:
            InputError: no such link, or a capacity that cannot be.
        """
        with self._lock:
            now = self._step()
            self._traffic.set_capacity(link, now, capacity_Bps)
            self._step()

    def came(self, arrival: Arrival) -> None:
        """A rank has made a request; its members may exchange what they have as soon as both ends are there."""
        call, now_fs = arrival.call, self._now_fs()  # what this host takes for it is not of the request
        if call.operation in MESSAGES:  # these meet in another order than they come
            return
        with self._lock:
            asked = self._asked(call.group[:2], arrival.instance, call.group.ranks, {call.rank: arrival.made}, now_fs)
            if asked.number is not None:
                self._enter(asked, {call.rank: arrival.made})
            elif asked.what is None and _tells_all(call):
                self._begin(call.group[:2], arrival.instance, self._what(agree(self._choice, [call], 0), call))

    def met(self, agreed: Agreed, arrivals: Sequence[Arrival]) -> None:
        """All that take part have made a request."""
        first, now_fs = arrivals[0].call, self._now_fs()
        with self._lock:
            if agreed.served is not None:
                self._begin(first.group[:2], arrivals[0].instance, self._what(agreed, first))
                return
            channel = channel_of(first)
            ranks = tuple(each.call.global_rank for each in arrivals)
            place = self._next[channel] + len(self._queues[channel])
            self._asked(channel, place, ranks, dict(enumerate(each.made for each in arrivals)), now_fs)
            self._begin(channel, place, self._what(agreed, first))

    def _asked(self, queue: object, place: int, ranks: tuple[int, ...], made: dict[int, Any], now_fs: int) -> _Asked:
        asked = self._queues[queue].get(place) or self._queues[queue].setdefault(place, _Asked(ranks))
        asked.arrived.update(made)
        asked.came_fs = now_fs
        return asked

    def _begin(self, queue: object, place: int, what: What) -> None:
        """Begin what is known and whose turn it is in its queue."""
        waiting = self._queues[queue]
        waiting[place].what = waiting[place].what or what
        while (asked := waiting.get(self._next[queue])) is not None and asked.what is not None:
            if asked.number is None:
                before = self._latest.get(queue)
                asked.number = self._traffic.ask(asked.what, asked.ranks, asked.came_fs, before)
                self._latest[queue] = asked.number
                self._under_way[asked.number] = asked
                self._enter(asked, asked.arrived)
            if len(asked.arrived) < len(asked.ranks):
                break
            del waiting[self._next[queue]]
            self._next[queue] += 1

    def _enter(self, asked: _Asked, members: dict[int, Any]) -> None:
        assert asked.number is not None
        for member in members:
            self._traffic.enter(asked.number, member, asked.came_fs)
        self._step()

    def _what(self, agreed: Agreed, call: Call) -> What:
        axis = self._traffic.communicator(Group(call.group.axis, call.group.ranks))
        name = dtype_name(call.dtype)
        item = FLOAT_BYTES[self._tempo.dtype] if name == "float32" else call.dtype.itemsize
        if agreed.served is None:
            return What(axis, None, MESSAGE, 2, 0, agreed.size * item, 0, b"")
        of = operation(call.operation, len(call.group.ranks), call.root)
        even = call.operation in ROUTED or (agreed.counts == of.block_counts(agreed.size)).all()
        blocks = b"" if even else agreed.counts.tobytes()
        return What(axis, agreed.served, of.name, of.n_ranks, of.root, agreed.size * item, agreed.size, blocks)

    def _real_s(self, virtual_fs: int) -> float:
        return (self._began_s or 0.0) + self._tempo.real_s(virtual_fs)

    def _now_fs(self) -> int:
        if self._began_s is None:
            self._began_s = now_s()
        return self._tempo.virtual_fs(now_s() - self._began_s)

    def _step(self) -> int:
        """Let happen what has happened by now, and come back when something happens next."""
        with self._lock:
            now = self._now_fs()
            for each in self._traffic.advance(now):
                self._answer(each.request, each.member, each.end_fs)
            following = self._traffic.next_fs
            if following not in (NEVER, self._stepping):
                self._alarm.at(self._real_s(following), self._step_at(following))
            self._stepping = following
            return now

    def _answer(self, request: int, member: int, end_fs: int) -> None:
        asked = self._under_way[request]
        self._due(asked.arrived[member], self._real_s(end_fs))
        asked.answered += 1
        if asked.answered == len(asked.ranks):
            del self._under_way[request]

    def _step_at(self, time_fs: int) -> Callable[[], None]:
        def step() -> None:
            with self._lock:
                if time_fs == self._stepping:  # else another came before it
                    self._stepping = NEVER
                    self._step()

        return step


def _tells_all(call: Call) -> bool:
    """Whether one member's call tells the size of every block."""
    return len(call.known.block) == operation(call.operation, len(call.group.ranks), call.root).n_blocks
