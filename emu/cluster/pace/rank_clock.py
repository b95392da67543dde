"""The clock that decides when ranks of a process continue after a request, a computation or a sleep, by this host's clock."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from weakref import ref

import torch.distributed as dist

from emu.arrays import F64
from emu.backend.rank.record import Recording
from emu.backend.rank.request_work import RequestWork
from emu.cluster.call_matcher import ArrivedRequest
from emu.cluster.cluster import Agreement
from emu.cluster.pace.alarm import Alarm, now_s
from emu.cluster.pace.device_queues import DeviceQueues
from emu.cluster.pace.pacer import PaceListeners, Pacer
from emu.cluster.pace.timeliness import Tempo
from emu.cluster.pace.traffic import compile_solver
from emu.cluster.rank_state.cpu_device import THE_HOSTS
from emu.cluster.rank_state.rank_state import replace_attributes
from emu.cluster.strands.strand import Wait, current_strand, take_turn, this_strand
from emu.cluster.threads.wait_table import WaitTable

_POLL_S = 1e-3
_READY_S = 1.5e-3  # so long before a rank goes on all is prepared for it
_REHEARSAL_S = 2e-4
_EARLY_S = 5e-4  # a thread takes about as long to be woken: who waits is woken so early, and waits on by looking at the clock
_SWITCH_S = 2e-4  # of Python's threads: the alarm's waits no longer for one that computes


@dataclass(slots=True)
class _OpenRequest:
    """A request of a rank that has not been answered yet.

    `asked_s` and `due_s` are by this host's clock: when it was made, and when its answer is due, if known. `carried` says
    whether its data have been moved.
    """

    rank: int
    asked_s: float
    work: "ref[RequestWork]"  # whose tensors are its rank's alone: what lives when is the same by every clock
    due_s: float | None = None  # None: it is not known
    late_s: float = 0.0  # by how much the answer was late already when its time became known
    carried: bool = False  # whether its data have been moved
    answered: bool = False


class RankClock:
    """The clock of ranks whose messages take no time of this host: a request is answered once its data have been moved.

    No virtual time is computed here: the trace is timed after the run. Methods such as `asked`, `arrived` and `matched` are
    called when ranks make requests. They do nothing here; a clock with a pace overrides them.

    Args:
        wait_table: The strands of this process that wait, and the means to wake them.
        check: A function that raises an error on a thread that belongs to no rank, else returns once the thread has the baton.
    """

    answers_later = False  # whether ranks can compute while a request runs

    def __init__(self, wait_table: WaitTable, check: Callable[[int], None]) -> None:
        self._wait_table, self._check = wait_table, check

    def listeners(self) -> PaceListeners:
        """Return the functions that a pacer calls. Only the one for a failure does something: it stops all ranks that wait."""
        return PaceListeners(_nobody, _nobody, _nobody, self._wait_table.fail_from_outside)

    def of_events(self) -> tuple[Callable[[], float], list[str]]:
        """Return a function that gives the seconds by which CUDA events measure (this host's clock), and notes for the user."""
        return time.perf_counter, [f"{THE_HOSTS}; with --pace 1000 it is virtual time"]

    @contextmanager
    def runs(self, recording: Recording | None) -> Iterator[None]:
        """Run the clock while ranks run."""
        yield

    def settle(self, rank: int, time_s: float) -> float:
        """Return the time at which a rank makes a request, given the time at which its thread makes it on this host."""
        return time_s

    def asked(self, rank: int, work: RequestWork, time_s: float) -> None:
        """Ignore that a rank of this process has made a request; paced clocks use it.

        Args:
            rank: The rank.
            work: The request.
            time_s: The time, by this host's clock, at which the rank made it.
        """

    def arrived(self, arrival: ArrivedRequest, step: int, at_s: float) -> None:
        """Ignore that a request has reached the process that matches its call; paced clocks use it.

        Args:
            arrival: The request with its rank.
            step: The training step of the rank.
            at_s: The time, by this host's clock, at which the rank made it.
        """

    def matched(self, agreed: Agreement, arrivals: Sequence[ArrivedRequest]) -> None:
        """Ignore that a call is complete, because all its members have made their requests; paced clocks use it.

        Args:
            agreed: The call on which the members agree.
            arrivals: The requests of all members.
        """

    def carried(self, key: object, work: "ref[RequestWork]") -> None:
        """Answer a request whose data have been moved.

        Args:
            key: A key of the request.
            work: A weak reference to the request, so that nothing here keeps its tensors alive once its rank goes on.
        """
        self._wait_table.answer(work, -math.inf)

    def block(self, work: RequestWork, rank: int, timeout: timedelta | None) -> None:
        """Return once a request is done, or raise an error if the run has failed."""
        if not work.done:
            self._check(rank)
            self._wait_table.park(this_strand().number, work)
        elif current_strand() is not None and self._wait_table.baton.has_others(rank):
            self._check(rank)  # as on the ranks that came before: threads of all ranks go on in one order
            self._wait_table.give_way(this_strand().number)

    def poll(self, work: RequestWork, rank: int) -> bool:
        """Return True if no event of this host is still going to complete the request."""
        return True


def _nobody(*_: object) -> None:
    """Ignore a report of a pacer."""


class PacedClock(RankClock):
    """A clock that delays answers to requests until they are due, and ranks until their computations have ended.

    Args:
        tempo: The pace of virtual time.
        n_ranks: The number of ranks of the job.
        wait_table: The strands of this process that wait, and the means to wake them.
        check: The argument of `RankClock`.

    Attributes:
        pacer: The fabric of the messages, with its faults, if all ranks are in this process; None: the coordinator has it.
    """

    answers_later = True

    def __init__(self, tempo: Tempo, n_ranks: int, wait_table: WaitTable, check: Callable[[int], None]) -> None:
        super().__init__(wait_table, check)
        self.alarm = wait_table.alarm = Alarm(wait_table.give_up, wait_table.baton.look)
        self.pacer: Pacer | None = None
        self._tempo = tempo
        self._held: dict[object, _OpenRequest] = {}  # by the key of the work
        self._lock = threading.Lock()
        self._prepared_until_s = 0.0
        self._sleeping = 0  # ranks that go on by themselves
        self._devices = DeviceQueues(tempo, n_ranks, self._sleep_until)

    def listeners(self) -> PaceListeners:
        """Return the functions that a pacer calls with its reports."""
        return PaceListeners(self.expected, self.due, self.slowed, self._wait_table.fail_from_outside)

    def of_events(self) -> tuple[Callable[[], float], list[str]]:
        """Return a function that gives the seconds of CUDA events, virtual or by this host's clock, and notes for the user."""
        if not self._tempo.events:
            return time.perf_counter, []
        return self._virtual_s, ["elapsed_time of events is virtual time; with --pace-events off it is this host's"]

    def _virtual_s(self) -> float:
        """Return the virtual time in seconds at which the device of the calling rank has finished its work."""
        strand = current_strand()
        if strand is None or not strand.is_main or strand.is_native:
            return now_s() / self._tempo.factor
        take_turn(strand)
        return self.settle(strand.rank, now_s()) / self._tempo.factor

    @contextmanager
    def runs(self, recording: Recording | None) -> Iterator[None]:
        """Run the clock while the context lasts; computations are reported by the recording, and sleeps by `time.sleep`."""
        if self.pacer is not None:
            compile_solver()
        switch_s = sys.getswitchinterval()
        sys.setswitchinterval(min(switch_s, _SWITCH_S))
        try:
            with ExitStack() as open_:
                open_.enter_context(self.alarm)
                open_.enter_context(replace_attributes((time, "sleep", self._in_place_of(time.sleep))))
                if self._tempo.computes and recording is not None:
                    open_.enter_context(recording.with_listener(self._devices.computed))
                yield
        finally:
            sys.setswitchinterval(switch_s)

    def settle(self, rank: int, time_s: float) -> float:
        """Wait until the device of a rank has ended its work from before `time_s`.

        Returns:
            The time at which the rank may continue.
        """
        return self._devices.settle(rank, time_s)

    def asked(self, rank: int, work: RequestWork, time_s: float) -> None:
        """Store a request that a rank of this process has made, until it is answered; `time_s` is by this host's clock."""
        self._held[work.key] = _OpenRequest(rank, time_s, ref(work))

    def arrived(self, arrival: ArrivedRequest, step: int, at_s: float) -> None:
        """Report a request of a rank to the fabric; do nothing if the coordinator's process has the fabric.

        Args:
            arrival: The request with its rank.
            step: The training step of the rank.
            at_s: The time, by this host's clock, at which the rank made it.
        """
        if self.pacer is not None:
            self.pacer.arrived(replace(arrival, ticket=arrival.ticket.key), step, at_s)

    def matched(self, agreed: Agreement, arrivals: Sequence[ArrivedRequest]) -> None:
        """Report to the fabric that all members of a call have made their requests."""
        if self.pacer is not None:
            self.pacer.matched(agreed, [replace(each, ticket=each.ticket.key) for each in arrivals])

    def expected(self, key: object, time_s: float | None) -> None:
        """Set the time, by this host's clock, at which a request will probably be answered; None if it is unknown."""
        held = self._held.get(key)
        if held is None or held.due_s == time_s:  # it has been answered, or told
            return
        held.due_s = time_s
        if time_s is not None:
            self.alarm.at(time_s - _READY_S, partial(self._prepare, held))
            self.alarm.at(time_s - _EARLY_S, partial(self._answer_or_wake, key))

    def due(self, key: object, time_s: float, late_s: float) -> None:
        """Set the time, by this host's clock, at which a request is answered, and the seconds by which that is already past."""
        held = self._held.get(key)
        if held is not None:
            held.late_s = late_s
            self.expected(key, time_s)

    def slowed(self, speed: F64) -> None:
        """Set the share [N] of its full speed at which the device of each rank computes from now on."""
        self._devices.speed = speed

    def carried(self, key: object, work: "ref[RequestWork]") -> None:
        """Record that the data of a request have been moved, and answer the request if it is due."""
        self._held[key].carried = True
        self._answer_or_wake(key)

    def _prepare(self, held: _OpenRequest) -> None:
        """Load the state of the rank whose request is answered next, if there is time before the answer is due.

        If requests of several ranks are due at one time, the state of the first rank is loaded.
        """
        if held.due_s is not None and max(now_s(), self._prepared_until_s) < held.due_s - _EARLY_S:
            self._prepared_until_s = held.due_s
            self._wait_table.baton.prepare(held.rank)

    def _answer_or_wake(self, key: object) -> None:
        """Answer a request whose answer is due, or wake its rank shortly before; do nothing if its data have not been moved."""
        held = self._held.get(key)
        if held is None or not held.carried or held.due_s is None or now_s() < held.due_s - _EARLY_S:
            return
        if now_s() >= held.due_s:
            self._land(key)
        elif not self._wait_table.wake(key):
            self.alarm.at(held.due_s, partial(self._land, key))

    def _land(self, key: object) -> None:
        """Answer a request if it is due and its data have been moved."""
        with self._lock:
            held = self._held.get(key)
            if held is None or held.answered or not held.carried or held.due_s is None or now_s() < held.due_s:
                return
            held.answered = True
        if not self._wait_table.answer(held.work, held.due_s):
            self._went_on(key)

    def block(self, work: RequestWork, rank: int, timeout: timedelta | None) -> None:
        """Return once a request is done, or the run has failed.

        Raises:
            DistBackendError: It is not done within `timeout`; None, like 0, means any time.
        """
        self._check(rank)
        reached_s = self.settle(rank, now_s())
        until_s = now_s() + timeout.total_seconds() if timeout else None
        while not work.done and self._wait_table.failure is None and (until_s is None or now_s() < until_s):
            self._wait_table.park(this_strand().number, work, until_s)
            self._look_at_the_clock(work.key)
        if work.done:
            self._went_on(work.key)
            self._devices.set_late(rank, max(reached_s, work.due_s))
        elif until_s is not None and now_s() >= until_s:
            raise dist.DistBackendError(f"emu: rank {rank} has waited for {timeout} for a request that is not done")
        self._devices.goes_on(rank)

    def _look_at_the_clock(self, key: object) -> None:
        """Wait for the exact time at which a request is due, then answer it."""
        held = self._held.get(key)
        if held is None or not held.carried:
            return
        if held.due_s is not None and held.due_s - now_s() > _REHEARSAL_S:
            self._wait_table.baton.rehearse()
        while held.due_s is not None and 0 < held.due_s - now_s() < _EARLY_S:
            pass
        self._land(key)

    def poll(self, work: RequestWork, rank: int) -> bool:
        """Wait at most a millisecond for a request; return True if no event of this host will still complete it."""
        self.settle(rank, now_s())
        held = self._held.get(work.key)
        due_s = held.due_s if held is not None and held.due_s is not None else now_s() + _POLL_S
        self._park_until(rank, min(due_s, now_s() + _POLL_S))
        return not (self._sleeping or work.done or (held is not None and held.carried))

    def _went_on(self, key: object) -> None:
        """Record how late the answer to a request was, as its rank continues."""
        with self._lock:
            held = self._held.pop(key, None)
        if held is not None and held.due_s is not None:
            self._tempo.kept.message(held.due_s - held.asked_s, now_s() - held.due_s + held.late_s)

    def _sleep_until(self, rank: int, time_s: float) -> None:
        """Let other ranks run until the time at which a rank continues without a request."""
        self._sleeping += 1
        try:
            self._park_until(rank, time_s)
        finally:
            self._sleeping -= 1

    def _park_until(self, rank: int, time_s: float) -> None:
        """Let other ranks run until a time of this host's clock."""
        if now_s() < time_s:
            self._wait_table.park(this_strand().number, Wait("a time", comes=True), time_s)

    def _in_place_of(self, sleep: Callable[[float], None]) -> Callable[[float], None]:
        """Return a function that replaces `time.sleep` of a rank: other ranks run while this one sleeps.

        Args:
            sleep: The replacement so far, which hands the baton on.
        """

        def slept(seconds: float) -> None:
            strand = current_strand()
            if strand is None or not strand.is_main or strand.is_native or seconds < 0:
                sleep(seconds)  # a thread that sleeps beside its rank's program says nothing of that
                return
            take_turn(strand)
            self.settle(strand.rank, now_s())
            self._sleeping += 1
            try:
                sleep(seconds)
            finally:
                self._sleeping -= 1
            self._devices.set_late(strand.rank, now_s())  # whoever sleeps goes by this host's clock
            self._devices.goes_on(strand.rank)

        return slept
