"""The waiting strands of a process, what each waits for, and the first error of the run, which ends all of them."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from weakref import ref

from emu.backend.rank.request_work import RequestWork
from emu.backend.rank.source_lines import traceback_of
from emu.cluster.pace.alarm import Alarm
from emu.cluster.processes.coordinator_client import CoordinatorClient
from emu.cluster.rank_failure import RankExit, job_error, takes_precedence
from emu.cluster.strands.next_instruction import at_next_instruction
from emu.cluster.strands.strand import Strand, Wait
from emu.cluster.threads.baton import Baton
from emu.errors import EmuError, RunError


class WaitTable:
    """The waiting strands of this process, and the first error of the run.

    Args:
        baton: The baton of the strands of this process.
        coordinator: The client of the coordinator, which reaches the other processes; None: all ranks are in this process.
    """

    def __init__(self, baton: Baton, coordinator: CoordinatorClient | None) -> None:
        self.baton, self.coordinator = baton, coordinator
        self.alarm: Alarm | None = None  # wakes strands at times; None: the baton does
        self.lock = threading.RLock()  # over what a thread beside the strands changes: works, and who waits for them
        self.waits: dict[int, RequestWork | Wait] = {}  # by strand
        self._waiting: defaultdict[object, list[int]] = defaultdict(list)  # strands, by the key of what they wait for
        self._timed: set[int] = set()  # of the strands that rest, those that go on at a time
        self._back = set[int]()  # strands that have come back from native code and have not had the baton since
        self.failure: BaseException | None = None
        self.story: Callable[[], str] = str  # who waits for what
        self.resumed: Callable[[], None] = lambda: None  # called on a strand's thread whenever it has the baton again

    @property
    def has_other_wakers(self) -> bool:
        """True if a coordinator or an alarm can still wake a strand or report a deadlock."""
        return self.coordinator is not None or (self.alarm is not None and self.alarm.is_set)

    def now(self) -> float:
        """Return the time in seconds by which strands rest.

        It is that of the baton's clock, or in a paced run that of this host's clock.
        """
        return self.baton.now_s if self.alarm is None else time.monotonic()

    def after(self, seconds: float) -> float:
        """Return the time, by the clock of `now`, a number of seconds from now."""
        return self.baton.after(seconds) if self.alarm is None else time.monotonic() + seconds

    def park(self, strand: int, what: RequestWork | Wait, until_s: float | None = None) -> bool:
        """Let other strands run until this strand is woken, until a time, or until the run has failed.

        Args:
            strand: The number of this strand.
            what: The request or the condition that the strand waits for.
            until_s: The time at which the strand goes on in any case; None: there is none.

        Returns:
            Whether the strand was woken before that time.
        """
        with self.lock:
            if self.failure is not None or (what.done if isinstance(what, RequestWork) else what.is_over()):
                return True
            self.waits[strand] = what
            self._waiting[what.key].append(strand)
            if until_s is not None:
                self._timed.add(strand)
        self._tell_coordinator(self.baton.rank_of(strand))
        try:
            self._hand_on(strand, what, until_s)
        except BaseException:  # also from outside, where the run is to end: a strand that leaves waits for nothing
            with self.lock:
                self._forget(strand)
            raise
        with self.lock:
            return not self._forget(strand)

    def _hand_on(self, strand: int, what: RequestWork | Wait, until_s: float | None) -> None:
        """Hand the baton on, and return when the strand has it again."""
        with self.end_on_error():
            if self.alarm is None or until_s is None:
                self.baton.hand_on_and_wait(strand, until_s)
            else:
                call = self.alarm.at(until_s, partial(self.wake, what.key))
                self.baton.hand_on_and_wait(strand)
                self.alarm.forget(call)
        self._resume()

    def _tell_coordinator(self, rank: int) -> None:
        """Report to the coordinator the request for which a rank waits, if all its strands wait without a time limit."""
        if self.coordinator is None:
            return
        with self.lock:
            strands = self.baton.strands(rank)
            if self._timed.isdisjoint(strands) and self.waits.keys() >= set(strands):
                self.coordinator.wait(rank, [self.waits[each] for each in strands])

    def _forget(self, strand: int) -> bool:
        """End the wait of a strand, and return whether it was waiting."""
        self._timed.discard(strand)
        if strand not in self.waits:
            return False
        key = self.waits.pop(strand).key
        self._waiting[key].remove(strand)
        if not self._waiting[key]:
            del self._waiting[key]
        return True

    def wake(self, key: object) -> bool:
        """Wake the strands that wait for a key, and return whether there were any."""
        with self.lock:
            strands = list(self._waiting.get(key, ()))
            for strand in strands:
                self._forget(strand)
                self.baton.wake(strand)
            return bool(strands)

    def answer(self, work: "ref[RequestWork]", due_s: float) -> bool:
        """Mark a request as answered and wake the strands that wait for it; return whether there were any.

        Args:
            work: A weak reference to the request: its rank may have dropped it already.
            due_s: The time at which the answer was due.
        """
        with self.lock:
            known = work()
            if known is None:  # nobody can wait for it
                return False
            key, known.due_s = known.key, due_s
            known.finish()
            del known
            return self.wake(key)

    def go_on(self, strand: int) -> None:
        """End the wait of a strand early."""
        with self.lock:
            if self._forget(strand):
                self.baton.wake(strand)

    def wake_all(self) -> None:
        """Wake all strands that rest."""
        for strand in sorted(self.waits):
            self._forget(strand)
            self.baton.wake(strand)

    def fail_rank(self, rank: int, error: BaseException) -> None:
        """Store the first error of the run, and wake every strand so that it ends.

        The coordinator is told, too, where there is one, so that other processes end.
        """
        with self.lock:
            new, is_known = job_error(rank, error), self.failure is error  # as `end_on_error` has stored it
            if is_known or takes_precedence(new, self.failure):
                if isinstance(new, RankExit):
                    new.others = self.story() or getattr(self.failure, "others", "")
                self.failure = new
                if self.coordinator is not None:
                    self.coordinator.fail(self.failure)
            self.wake_all()

    def explain(self, rank: int, error: BaseException) -> None:
        """Add the lines of the program at which a rank has failed to the first error of the run.

        Args:
            rank: The rank.
            error: The error after it has left the program, with its whole traceback.
        """
        failure = self.failure
        if isinstance(failure, EmuError) and error in (failure, failure.__cause__):
            failure.lines = tuple(traceback_of(error))
            if self.coordinator is not None:
                self.coordinator.explain(rank, failure.lines)

    def fail_from_outside(self, error: BaseException) -> None:
        """End every strand where it waits, because the job has failed in another process.

        Args:
            error: The error of the job.
        """
        with self.lock:
            self.failure = self.failure or error
            self.wake_all()

    @contextmanager
    def end_on_error(self) -> Iterator[None]:
        """End the run if the context raises an error, because the cluster itself has failed then.

        The error is kept as the first error of the run. All strands that wait go on and end.
        """
        try:
            yield
        except BaseException as error:
            self.give_up(error)
            raise

    def give_up(self, error: BaseException) -> None:
        """End the run at once, because the cluster itself has failed."""
        if self.failure is None:
            self.failure = error
        elif self.failure is not error:
            self.failure.add_note(f"after that, in the cluster itself: {type(error).__name__}: {error}")
        self.baton.release_all()

    def give_way(self, strand: int) -> None:
        """Let the other ready strands run first, then continue."""
        with self.end_on_error():
            self.baton.give_way(strand)
        self._resume()

    def step_out(self, strand: Strand, turn: int | None = None, *, awaits: bool = False) -> None:
        """Let other strands run while a strand continues without the baton.

        Args:
            strand: The strand; if it does not have the baton, nothing is done.
            turn: The argument of `Baton.step_out`.
            awaits: The argument of `Baton.step_out`.
        """
        strand.is_outside = True  # before another has the baton
        with self.end_on_error():
            strand.is_outside = self.baton.step_out(strand.number, turn, awaits=awaits)

    def take_baton_from(self, strand: Strand, turn: int) -> None:
        """Take the baton from a strand that is blocked in native code, so that other strands can run.

        Native code cannot hand the baton on. Once that code has returned, and before the strand's thread runs more Python, the
        strand waits until it has the baton again. Nothing is done if the strand has handed the baton on in the meantime, or if
        no other strand could end its wait.

        Args:
            strand: The strand that was seen to use no processor time.
            turn: The number of the turn of the baton in which it was seen.
        """
        if strand.is_main and not (self._back or self.baton.has_others(strand.rank)):
            return  # whatever it waits for, another rank cannot know; one that is back may have a lock of the system
        with self.baton.lock:
            is_blocked = self.baton.turns == turn  # still
            if is_blocked and at_next_instruction(strand.thread, strand.state, partial(self._come_back, strand)):
                self.step_out(strand, turn)

    def _come_back(self, strand: Strand) -> None:
        """Wait for the baton if it was taken from this thread's strand while the strand was blocked."""
        with self.baton.lock:
            is_outside = strand.is_outside
        if is_outside:
            self._back.add(strand.number)
            self.step_in(strand)
            strand.is_outside = False
            self._back.discard(strand.number)

    def step_in(self, strand: Strand, *, is_last: bool = False) -> None:
        """Wait until a strand that ran without the baton has it again.

        Args:
            strand: The strand.
            is_last: Whether the strand gets the baton only when no other strand is ready.
        """
        with self.end_on_error():
            self.baton.step_in(strand.number, is_last=is_last)
        self._resume()

    def await_idle(self, strand: Strand) -> None:
        """Let all ready strands run before a strand that waits for idle processes."""
        with self.end_on_error():
            self.baton.await_idle(strand.number)

    def _resume(self) -> None:
        """Call `resumed` on the strand that has the baton again."""
        if not self.baton.is_released:  # else nobody has the baton, and what ranks share is as it was before them
            self.resumed()

    def stopped(self) -> RunError:
        """Return the error for a strand that goes on after the run has failed."""
        return RunError(f"stopped, as the run has failed: {self.failure}")
