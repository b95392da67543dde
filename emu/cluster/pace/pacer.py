"""The fabric of a paced run: it receives requests from ranks and decides when each is answered, by this host's clock.

There is one for all ranks of a job, in any process: messages that are under way at the same time share the links.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emu.arrays import F64
from emu.backend.rank.rank_requests import RankRequest, dtype_name
from emu.cluster.call_matcher import ArrivedRequest, channel_of
from emu.cluster.cluster import MESSAGES, Agreement, settle_call
from emu.cluster.pace.alarm import Alarm, now_s
from emu.cluster.pace.timeliness import Pace
from emu.collective.choice import Choice
from emu.collective.operation import ROUTED, operation
from emu.errors import LostError, RunError
from emu.fabric.engine.state_layout import NEVER
from emu.topology.fault_injection.machine_history import MachineMoment
from emu.topology.fault_injection.machine_state import why_stopped
from emu.trace.matching.call_batch import BatchKey
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.timed_dtype import item_as
from emu.trace.trace import Group
from emu.units import format_time, seconds

_APART_S, _MOST_AFTER_S = 5e-4, 1e-3  # of this host: to look at the fabric takes it about so long where it has slept


class PaceListeners(NamedTuple):
    """The functions by which the fabric reports to ranks, on the alarm's thread or on that of a rank.

    Args:
        expected: A function that is called with the key of a rank's request, and with the time of this host at which the
            request is expected to be answered (None: not known now). It is called some time ahead, and again if that time
            changes.
        due: A function that is called at the latest when a request is answered: with its key, the time of this host, and the
            seconds by which that is late already because the fabric heard of a member too late.
        slowed: A function that is called with the share [N] of its full speed at which the NPU of each rank computes from now
            on.
        stop: A function that is called with the reason why the job cannot go on.
    """

    expected: Callable[[Any, float | None], None]
    due: Callable[[Any, float, float], None]
    slowed: Callable[[F64], None]
    stop: Callable[[BaseException], None]


@dataclass(eq=False, slots=True)
class _PartialRequest:
    """A request that at least one, but perhaps not every, member has made.

    It has the tick at which each member came, and the tick at which each member is expected to get its answer.
    """

    ranks: tuple[int, ...]
    came_fs: dict[int, int] = field(default_factory=dict)  # when each member has
    what: BatchKey | None = None  # None: its sizes are not known before all have arrived
    number: int | None = None  # of the traffic; None: it has not begun there
    arrived: dict[int, Any] = field(default_factory=dict)  # what each member is known by
    expected_fs: dict[int, int] = field(default_factory=dict)  # when each member that has been told will have its answer
    answered: int = 0  # members
    late_fs: int = 0  # by which a member at most has entered after it came

    @property
    def all_came_fs(self) -> int:
        """The tick at which the last of the members so far made the request."""
        return max(self.came_fs.values())


class Pacer:
    """The fabric of one job in real time: it takes the ranks' requests and answers each when its virtual time has passed.

    Args:
        pace: The fabric, and the speed of its time.
        n_ranks: The number of ranks of the job.
        choice: The algorithm of each operation.
        listeners: The functions by which it reports.
        alarm: The alarm that calls it when its next event is due.
    """

    def __init__(self, pace: Pace, n_ranks: int, choice: Choice, listeners: PaceListeners, alarm: Alarm) -> None:
        self._tempo, self._choice, self._listeners, self._alarm = pace.tempo, choice, listeners, alarm
        self._traffic = pace.traffic(n_ranks)
        self._lock = threading.RLock()
        self._queues: defaultdict[object, dict[int, _PartialRequest]] = defaultdict(
            dict
        )  # by place: of a group, or a pair and tag
        self._latest: dict[object, int] = {}  # of each queue, the number of the last request that has begun
        self._next: defaultdict[object, int] = defaultdict(int)  # and the place of the next
        self._under_way: dict[int, _PartialRequest] = {}
        self._came_fs: dict[Any, int] = {}  # sends and receives that have not met
        self._stepping = NEVER
        self._began_s: float | None = None

    def arrived(self, arrival: ArrivedRequest, step: int, at_s: float) -> None:
        """Process a request that a rank has made; two members can exchange messages as soon as both have made it.

        Args:
            arrival: The request with its key.
            step: The training step of the rank; 0: it has begun none.
            at_s: The time of the request by this host's clock. The delay until this process hears of it does not count.
        """
        request, ticket, now_fs = arrival.request, arrival.ticket, self._at_fs(at_s)
        with self._lock:
            self._traffic.step(step, now_fs)
            if request.operation in MESSAGES:  # these meet in another order than they come
                self._came_fs[ticket] = now_fs
                return
            asked = self._request_at(request.group[:2], arrival.instance, request.group.ranks)
            asked.arrived[request.rank], asked.came_fs[request.rank] = ticket, now_fs
            if asked.number is not None:
                self._enter(asked, [request.rank])
            elif asked.what is None and _tells_all(request):
                agreed = settle_call(self._choice, [request], 0)
                self._begin(request.group[:2], arrival.instance, self._batch_key(agreed, request))

    def matched(self, agreed: Agreement, arrivals: Sequence[ArrivedRequest]) -> None:
        """Process the agreed sizes of a call that all its members have made."""
        first = arrivals[0].request
        with self._lock:
            if agreed.served is not None:
                queue, place = first.group[:2], arrivals[0].instance
                asked = self._queues[queue].get(place)
                if asked is not None:  # else it has begun with the last of them, who told all
                    self._begin(queue, place, self._batch_key(agreed, first), asked.all_came_fs)
                return
            channel = channel_of(first)
            place = self._next[channel] + len(self._queues[channel])
            asked = self._request_at(channel, place, tuple(each.request.global_rank for each in arrivals))
            asked.arrived = dict(enumerate(each.ticket for each in arrivals))
            asked.came_fs = {member: self._came_fs.pop(made) for member, made in asked.arrived.items()}
            self._begin(channel, place, self._batch_key(agreed, first), asked.all_came_fs)

    def _request_at(self, queue: object, place: int, ranks: tuple[int, ...]) -> _PartialRequest:
        """Return the request at a position of a queue; create it if no member has made it before."""
        return self._queues[queue].get(place) or self._queues[queue].setdefault(place, _PartialRequest(ranks))

    def _begin(self, queue: object, place: int, what: BatchKey, since_fs: int = 0) -> None:
        """Begin the next requests of a queue, up to the first whose sizes are unknown.

        Args:
            queue: The key of the queue.
            place: The index of a request in the queue whose sizes are now known.
            what: The sizes of this request.
            since_fs: The tick before which no member enters.
        """
        waiting = self._queues[queue]
        waiting[place].what = what  # as the member said who told all before, if one did
        while (asked := waiting.get(self._next[queue])) is not None and asked.what is not None:
            if asked.number is None:
                asked.came_fs = {member: max(since_fs, at_fs) for member, at_fs in asked.came_fs.items()}
                before = self._latest.get(queue)
                asked.number = self._traffic.ask(asked.what, asked.ranks, min(asked.came_fs.values()), before)
                self._latest[queue] = asked.number
                self._under_way[asked.number] = asked
                self._enter(asked, sorted(asked.arrived, key=asked.came_fs.__getitem__))
            if len(asked.arrived) < len(asked.ranks):
                break
            del waiting[self._next[queue]]
            self._next[queue] += 1

    def _enter(self, asked: _PartialRequest, members: Sequence[int]) -> None:
        """Let some members of a request that is on the fabric enter it, each at the tick at which it came.

        Args:
            asked: The request.
            members: The numbers of the members in the group.
        """
        assert asked.number is not None
        for member in members:
            late_fs = self._traffic.enter(asked.number, member, asked.came_fs[member])
            asked.late_fs = max(asked.late_fs, late_fs)
        self._step()

    def _batch_key(self, agreed: Agreement, request: RankRequest) -> BatchKey:
        """Return the key under which the fabric times a request: its sizes, its algorithm and its communicator."""
        axis = self._traffic.communicator(Group(request.group.axis, request.group.ranks))
        name = dtype_name(request.dtype)
        item = item_as(request.dtype.itemsize, name, self._tempo.dtype)
        if agreed.served is None:
            return BatchKey(axis, None, MESSAGE, 2, 0, agreed.size * item, 0, b"")
        of = operation(request.operation, len(request.group.ranks), request.root)
        even = request.operation in ROUTED or (agreed.counts == of.block_counts(agreed.size)).all()
        blocks = b"" if even else agreed.counts.tobytes()
        return BatchKey(axis, agreed.served, of.name, of.n_ranks, of.root, agreed.size * item, agreed.size, blocks)

    def _real_s(self, virtual_fs: int) -> float:
        """Return the time by this host's clock, in seconds, at which a virtual tick falls."""
        return (self._began_s or 0.0) + self._tempo.real_s(virtual_fs)

    def _at_fs(self, at_s: float) -> int:
        """Return the tick at a time of this host; the first call starts the clock."""
        if self._began_s is None:
            self._began_s = at_s
        return max(0, self._tempo.virtual_fs(at_s - self._began_s))

    def _step(self) -> None:
        """Process all events up to now, report them, and schedule the next call of this function."""
        with self._lock:
            for each in self._traffic.advance(self._at_fs(now_s())):
                self._answer(*each)
            while self._traffic.moments:
                self._tell(self._traffic.moments.pop(0))
            self._expect()
            following = self._traffic.next_fs
            if following not in (NEVER, self._stepping):
                self._alarm.at(self._next_step_s(self._real_s(following)), self._step_at(following))
            self._stepping = following

    def _expect(self) -> None:
        """Report in advance when requests will probably be answered."""
        expected = {(request, member): end_fs for request, member, end_fs in self._traffic.expected()}
        for number, asked in self._under_way.items():
            for member in [each for each in asked.expected_fs if (number, each) not in expected]:
                del asked.expected_fs[member]
                self._listeners.expected(asked.arrived[member], None)
        for (number, member), end_fs in expected.items():
            asked = self._under_way[number]
            if asked.expected_fs.get(member) != end_fs:
                asked.expected_fs[member] = end_fs
                self._listeners.expected(asked.arrived[member], self._real_s(end_fs))

    def _next_step_s(self, time_s: float) -> float:
        """Return the time at which `_step` is called next: `time_s` or slightly later.

        It is later if a rank is about to continue at that time: both would compute at once, and the rank would be late.
        """
        latest_s = time_s + _MOST_AFTER_S
        for end_s in sorted(self._real_s(end) for asked in self._under_way.values() for end in asked.expected_fs.values()):
            if abs(end_s - time_s) < _APART_S:
                time_s = min(end_s + _APART_S, latest_s)
        return time_s

    def _tell(self, moment: MachineMoment) -> None:
        """Report a change of the machine, such as a fault, to the ranks."""
        when = format_time(seconds(moment.time_fs))
        self._tempo.kept.met(f"{event} at {when}" for event in moment.events)
        self._listeners.slowed(moment.speed)
        for fault, rank in moment.taken:
            too = "" if fault.part == "rank" else f", and rank {rank} with it"
            self._listeners.stop(LostError(f"at {when} of virtual time {fault.state}{too}"))
        if moment.stops:
            self._listeners.stop(RunError(f"at {when} of virtual time {why_stopped(moment.states, moment.stops)}"))

    def _answer(self, request: int, member: int, end_fs: int) -> None:
        """Report that a member of a request has its answer and leaves the request at a tick."""
        asked = self._under_way[request]
        asked.expected_fs.pop(member, None)
        self._listeners.due(asked.arrived[member], self._real_s(end_fs), self._tempo.real_s(asked.late_fs))
        asked.answered += 1
        if asked.answered == len(asked.ranks):
            del self._under_way[request]

    def _step_at(self, time_fs: int) -> Callable[[], None]:
        """Return a function that calls `_step` if this tick is still the planned one when it runs, and else does nothing."""

        def step() -> None:
            with self._lock:
                if time_fs == self._stepping:  # else another came before it
                    self._stepping = NEVER
                    self._step()

        return step


def _tells_all(request: RankRequest) -> bool:
    """Return whether the request of one member is enough to know the size of every block."""
    return len(request.known.block) == operation(request.operation, len(request.group.ranks), request.root).n_blocks
