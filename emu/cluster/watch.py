"""The watch over ranks: a thread that finds a rank that does not come back while all others wait, and reports it.

Waits that Emu knows hand on the baton, so a deadlock among them is named at once. What is left is what a rank does without
asking anybody: it computes, it sleeps, or it waits for something that no other rank can bring, as none has the baton. The rank
may be one of another process, whose place is asked for. When somebody interrupts a run, such a rank is ended where it is.
"""

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

from emu.cluster.child_processes import has_processes
from emu.cluster.strands.sight import IDLE_S, Sight, processor_time_s, sight_of
from emu.cluster.strands.strand import Strand, StrandEnd
from emu.errors import RunError

if TYPE_CHECKING:  # it imports this module
    from emu.cluster.strands.strands import Strands


_END_POLL_S = 0.05  # between two looks at a run that is to end
_END_GRACE_S = 0.3  # without a turn of the baton, after which the exception is raised in threads that go on
_END_MOST_S = 1.2  # without a turn of the baton, after which such threads are left where they are


def end_ranks(work: Callable[[], tuple[int, Sequence[threading.Thread]]], over: Callable[[float], bool]) -> bool:
    """Wait until the run is over; return False if it does not end.

    A thread that goes on for long, although the run must end, gets an exception at its present line. The wait is given up when
    the baton has not been handed on for more than 1 s.

    Args:
        work: A function that returns the number of turns of the baton so far, and the threads that still run.
        over: A function that waits for at most the given seconds, and returns True if the run is over.
    """
    since_s, told = time.monotonic(), frozenset[threading.Thread]()
    before, _ = work()
    while not over(_END_POLL_S):
        turns, threads = work()
        late_s = time.monotonic() - since_s
        if turns != before:
            before, since_s = turns, time.monotonic()
        elif late_s > _END_MOST_S:
            return False
        elif late_s > _END_GRACE_S:
            for thread in set(threads) - told:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(StrandEnd))
            told |= set(threads)
    return True


PATIENCE_S = 60.0
SAID_S = 5.0  # a rank that does not come back for so long is told of
_LOOK_S, _BLOCKED_S, _ASK_S = 0.25, 1.0, 1.0
_log = logging.getLogger("emu")


class Watch:
    """A thread that watches the strand that has the baton.

    Args:
        strands: The strands of this process.
        fail: A function that is called with a rank that waits for ever and its error.
        patience_s: The seconds after which a rank that only waits is said to wait for ever.
    """

    def __init__(self, strands: "Strands", fail: Callable[[int, Exception], None], patience_s: float) -> None:
        self._strands, self._fail, self._patience_s = strands, fail, patience_s
        self._over = threading.Event()
        self._turn, self._since_s = -1, 0.0  # the present turn of the baton, and when it began
        self._spent_s = 0.0  # of the processor by its strand, when it was last seen to use it
        self._said = False
        self._idle_s: float | None = None  # since when it has not used the processor

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Run the watching thread while the context lasts."""
        thread = threading.Thread(target=self._watch_turns, name="watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch_turns(self) -> None:
        while not self._over.wait(_LOOK_S):
            strand, turn = self._strands.running()
            now_s = time.monotonic()
            if turn != self._turn:
                self._turn, self._since_s, self._said, self._idle_s = turn, now_s, False, None
                self._spent_s = processor_time_s(strand.thread) if strand else 0.0
            elif strand is None:
                self._see_none(now_s - self._since_s)
            else:
                self._check_turn(strand, now_s)

    def _see_none(self, for_s: float) -> None:
        story, is_for_ever = self._strands.stall_state()
        if story and for_s > SAID_S:
            self._say(f"no rank has gone on for {SAID_S:g} s; {story}" if is_for_ever else story)
        if is_for_ever and for_s > self._patience_s and not has_processes():
            self._fail(0, RunError(f"deadlock: no rank has gone on for {self._patience_s:g} s; {story}"))

    def _say(self, what: str) -> None:
        """Log a text, at most once while one strand has the baton."""
        if not self._said:
            self._said = True
            _log.info("%s", what)

    def _check_turn(self, strand: Strand, now_s: float) -> None:
        spent = processor_time_s(strand.thread)
        if spent - self._spent_s > IDLE_S:
            self._spent_s, self._idle_s = spent, None
        elif self._idle_s is None:
            self._idle_s = now_s
        idle_s = 0.0 if self._idle_s is None else now_s - self._idle_s
        if idle_s > _BLOCKED_S:
            strand.wait_table.take_baton_from(strand, self._turn)
        others = self._strands.n_waiting_ranks()
        if others and now_s - self._since_s > SAID_S:  # not sooner: who looks at a thread's frames holds its tensors
            self._tell(strand, others, idle_s)

    def _tell(self, strand: Strand, others: int, idle_s: float) -> None:
        sight = sight_of(strand.thread)
        if sight is None:
            return
        self._say(absence_in_words(sight.in_words(strand.rank), SAID_S, others))
        if sight.waits and idle_s > self._patience_s and not has_processes():
            self._fail(strand.rank, RunError(absence_in_words(sight.in_words(strand.rank), self._patience_s, others)))


def absence_in_words(what: str, for_s: float, others: int) -> str:
    """Return a sentence on a rank for which all other ranks wait.

    Args:
        what: A phrase on the rank and what it does.
        for_s: The seconds for which it has not come back.
        others: The number of ranks that wait.
    """
    wait = f"{others} other ranks wait" if others > 1 else "the other rank waits"
    return f"{what} and has not come back for {for_s:g} s; {wait}"


class AbsentRank:
    """The rank for which all other ranks wait, if there is one.

    Args:
        n_ranks: The number of ranks of the job.
        ask: A function that asks the process of a rank where the rank is; `see` gets the answer.
        fail: A function that is called with the error of a rank that waits for ever.
        patience_s: Seconds after which the job fails because of a rank that waits and does nothing else.
    """

    def __init__(self, n_ranks: int, ask: Callable[[int], None], fail: Callable[[Exception], None], patience_s: float) -> None:
        self._n_ranks, self._ask, self._fail, self._patience_s = n_ranks, ask, fail, patience_s
        self._here: Set[int] = frozenset()  # the ranks that wait or have ended
        self._since_s = self._asked_s = 0.0
        self._rank, self._said = -1, False
        self._idle: tuple[float, float] | None = None  # since when it has not used the processor, and how long it had by then

    def restart(self, now_s: float) -> None:
        """Start the wait for an absent rank anew, because a rank has made a request."""
        self._since_s, self._idle, self._said = now_s, None, False

    def look(self, here: Set[int], now_s: float) -> None:
        """Ask the process of the lowest absent rank where that rank is, if the other ranks have waited for it for long.

        Args:
            here: The ranks that wait or have ended.
            now_s: The time of this host's monotonic clock.
        """
        if here != self._here:
            self._here = frozenset(here)
            self.restart(now_s)
        absent = set(range(self._n_ranks)) - here
        if here and absent and now_s - self._since_s > SAID_S and now_s - self._asked_s > _ASK_S:
            self._rank, self._asked_s = min(absent), now_s
            self._ask(self._rank)

    def see(self, rank: int, sight: Sight, has_processes: bool, now_s: float) -> None:
        """Take a look at an absent rank: log once where it is, and end the job if it has waited for too long.

        Args:
            rank: The rank.
            sight: The look at its thread.
            has_processes: Whether the rank has started processes, which may be what it waits for.
            now_s: The time of this host's monotonic clock.
        """
        if rank != self._rank or rank in self._here:
            return
        if not self._said:
            self._said = True
            _log.info("%s", absence_in_words(sight.in_words(rank), SAID_S, len(self._here)))
        if self._idle is None or has_processes or not sight.waits or sight.spent_s - self._idle[1] >= IDLE_S:
            self._idle = now_s, sight.spent_s
        elif now_s - self._idle[0] > self._patience_s - SAID_S:
            self._fail(RunError(absence_in_words(sight.in_words(rank), self._patience_s, len(self._here))))
