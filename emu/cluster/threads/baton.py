"""The baton of strands: only the strand that has it runs, and it is handed on at the same points in every run.

Some state exists once in a process, although every rank needs its own, such as random generators and the environment. It is
swapped when the baton goes to a strand of another rank. A strand is named by its number; the number of the strand of a rank's
program is that of the rank.
"""

import math
import threading
import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from emu.cluster.rank_state.rank_state import RankState
from emu.cluster.threads.processor import Processor

_TURN_S = 50e-6  # of the baton's own time that a turn takes, about as much as the shortest take on a host
_LISTEN_S = 0.5  # between two moments at which a signal is heard
_ROUNDED_S = 5e-4  # by which a time in whole milliseconds may be too early by the host's clock
_MOMENT_S = 1e-3  # between two questions of a strand that asks again and again


class Baton:
    """The right to run: one strand of the process has it, and hands it to the strand that became ready first.

    A strand is *ready* if it waits for nothing but the baton. The baton is *unheld* if no strand has it. It has a clock of its
    own, which advances a little at each turn. While no strand is ready, the clock jumps to the earliest time until which a
    strand rests.

    Args:
        ranks: The ranks whose programs share it.
        own: The states of which each rank has its own, such as random generators; they are saved and loaded when the rank
            changes.
        stuck: A function that is called when no strand is ready; it must make one ready, raise, or leave it to another thread.
        processor: The processor of the strand with the baton, if that strand always runs until it hands the baton on.
    """

    def __init__(
        self, ranks: Sequence[int], own: Sequence[RankState], stuck: Callable[[], None], processor: Processor | None = None
    ) -> None:
        self._own = own
        self._stuck = stuck
        self._processor = processor
        self._gates: dict[int, LockType] = {}  # by strand; locked while it rests
        self._ranks: dict[int, int] = {}  # of each strand
        self.lock = threading.RLock()  # over all of it: while a thread has it, no strand gets the baton
        self._ready: deque[int] = deque()
        self._timed: dict[int, tuple[float, float]] = {}  # until when strands rest: of its own time, and of this host's
        self.now_s = 0.0  # its own time: goes on with each turn, and to where a strand has rested if nobody else is ready
        self._due: set[int] = set()  # strands that are ready as their time has come, and not as somebody has woken them
        self._outside: set[int] = set()  # strands that run without it
        self._when_idle: dict[int, bool] = {}  # strands that go on once no other is ready, in order; True: it is ready itself
        for rank in ranks:
            self.add(rank, rank)
        self._is_unheld = False  # nobody has it, as none is ready
        self._loaded_rank = -1  # whose states are loaded in the process
        self._states: dict[int, list[Any]] = {}
        self._before: list[Any] = []
        self._finished = threading.Event()
        self.is_released = False
        self.running: int | None = None  # the strand that has it
        self.turns = 0  # how often it was handed on

    def start(self) -> None:
        """Save the state of the process, and give the baton to the first rank."""
        self._before = [each.save() for each in self._own]
        self._states = {rank: [each.of(rank) for each in self._own] for rank in self._ranks.values()}
        self._hand_on()

    def add(self, strand: int, rank: int, *, outside: bool = False) -> None:
        """Add a strand of a rank.

        Args:
            strand: The number of the strand.
            rank: The rank.
            outside: Whether it runs without the baton; else it gets the baton after all strands that are ready now.
        """
        with self.lock:
            self._gates[strand] = gate = allocate_lock()  # the system's, whatever `threading.Lock` is now
            gate.acquire()
            self._ranks[strand] = rank
            if outside:
                self._outside.add(strand)
            else:
                self._ready.append(strand)

    def strands(self, rank: int) -> list[int]:
        """Return the numbers of the strands of a rank that have not left."""
        return [strand for strand, of in self._ranks.items() if of == rank]

    def rank_of(self, strand: int) -> int:
        """Return the rank of a strand that has not left."""
        return self._ranks[strand]

    def has_others(self, rank: int) -> bool:
        """Return whether a rank has at least two strands that take the baton."""
        return len(self._ranks) > len(self._states) and sum(each not in self._outside for each in self.strands(rank)) > 1

    @property
    def has_timers(self) -> bool:
        """True if a strand may become ready without being woken.

        Such a strand rests until a time, runs without the baton, or waits until no other strand is ready.
        """
        return bool(self._timed or self._outside or self._when_idle)

    def restore(self) -> None:
        """Restore the state that the process had before the start, after every rank has left."""
        if self._before:
            self._load(self._before)

    def release_all(self) -> None:
        """Let every strand run without the baton from now on, at the end of a run or after an error of the cluster itself."""
        self.is_released = True
        for strand in list(self._gates):
            self._open(strand)
        self._finished.set()

    def await_turn(self, strand: int, until_s: float | None = None) -> None:
        """Block until the strand has the baton.

        Args:
            strand: The strand.
            until_s: The time of this host's monotonic clock at which it checks whether its wait is over; None: never.
        """
        gate = self._gates[strand]
        while not gate.acquire(timeout=-1 if until_s is None else max(0.0, until_s - time.monotonic())):
            until_s = self._ask_again(strand)
        if self._processor is not None:
            self._processor.bind_thread()

    def _ask_again(self, strand: int) -> float | None:
        """Hand the baton on if nobody has it and a strand's wait time is over.

        Returns:
            The time at which the strand must check again; None: the strand will be let go without another check.
        """
        with self.lock:
            due_s = self._timed[strand][1] if strand in self._timed else 0.0
            if due_s > time.monotonic():
                return due_s
            if self._is_unheld:
                self._hand_on()
            return None

    def _wake_next(self) -> bool:
        """Make strands ready whose wait ends without being woken, in an order that is the same in every run.

        If no strand is ready, this is the first of those that wait to be last. If its time has come, or if still no strand is
        ready, it is also the strand whose time comes first.

        Returns:
            Whether a strand may run now. None may if the baton's own time is ahead of this host's clock.
        """
        if not self._ready and self._when_idle:
            last = next(iter(self._when_idle))
            if not self._when_idle[last]:
                return False
            del self._when_idle[last]
            self._ready.append(last)
        first = min(self._timed, key=lambda each: self._timed[each][0], default=None)
        if first is None or (self._ready and self._timed[first][0] > self.now_s):
            return True
        if self._timed[first][1] > time.monotonic():
            return False
        self.now_s = max(self.now_s, self._timed.pop(first)[0])
        self._ready.append(first)
        self._due.add(first)
        return True

    def hand_on_and_wait(self, strand: int, until_s: float | None = None) -> None:
        """Hand the baton on, and return when the strand has it again.

        Args:
            strand: The strand.
            until_s: The time, by the baton's own time, at which it becomes ready in any case; None: only when it is woken.
        """
        due_s = None if until_s is None else time.monotonic() + until_s - self.now_s + _ROUNDED_S
        with self.lock:
            if self.is_released:
                return
            if until_s is not None and due_s is not None and strand not in self._ready:
                self._timed[strand] = until_s, due_s
            self._outside.discard(strand)
            if not self._ready and not self.has_timers:
                self._stuck()
            if self.running == strand:
                if self._ready and self._ready[0] == strand:  # nobody else is ready
                    self._due.discard(self._ready.popleft())
                    return
                self._hand_on()
        self.await_turn(strand, due_s)

    def after(self, seconds: float) -> float:
        """Return the time of the baton's clock some seconds from now, in whole milliseconds.

        Smaller differences must not change the order of strands.
        """
        return round(self.now_s + math.ceil(seconds * 1e3) / 1e3, 3)

    def give_way(self, strand: int) -> None:
        """Let the other ready strands run first, then return.

        The baton's own time advances by a moment, because the strand may give way again and again until a time has come.
        """
        with self.lock:
            if strand not in self._ready:
                self._timed[strand] = self.after(_MOMENT_S), 0.0
        self.hand_on_and_wait(strand)

    def wake(self, strand: int) -> None:
        """Make a waiting strand ready; do nothing if it is ready already or has left."""
        with self.lock:
            if strand not in self._ranks:
                return
            self._timed.pop(strand, None)
            if strand not in self._due:
                self._ready.append(strand)
            if self._is_unheld:
                self._hand_on()

    def step_out(self, strand: int, turn: int | None = None, *, awaits: bool = False) -> bool:
        """Hand the baton on while the strand itself runs on without it.

        Args:
            strand: The strand.
            turn: The number of the turn of the baton in which the strand must have it; None: any turn.
            awaits: Whether the strand waits for processes that compute. Then no other strand's time comes before their data.

        Returns:
            Whether the strand had the baton.
        """
        with self.lock:
            if self.is_released or self.running != strand or turn not in (None, self.turns):
                return False
            self._outside.add(strand)
            if awaits:
                self._when_idle[strand] = False
            self._hand_on()
            return True

    def await_idle(self, strand: int) -> None:
        """Let timed waits of other strands end before data from idle processes arrive."""
        with self.lock:
            self._when_idle.pop(strand, None)
            if self._is_unheld:
                self._hand_on()

    def step_in(self, strand: int, *, is_last: bool = False) -> None:
        """Block until a strand that ran without the baton has it.

        Args:
            strand: The strand.
            is_last: Whether the strand gets it only when no other strand is ready; else it gets it in its order.
        """
        with self.lock:
            self._outside.discard(strand)
            if self.is_released or self.running == strand:
                return
            if is_last:
                self._when_idle[strand] = True
                if self._is_unheld:
                    self._hand_on()
            else:
                self.wake(strand)
        self.await_turn(strand)

    def prepare(self, rank: int) -> None:
        """Load the state of a rank in advance if no strand runs, so that the rank can continue sooner."""
        with self.lock:
            if self._is_unheld and not self.is_released:
                self._swap(rank)

    def rehearse(self) -> None:
        """Save the state of the running rank and load it again, so that the processor's cache has it when an answer is due."""
        if len(self._states) > 1:
            self._load([each.save() for each in self._own])

    def look(self) -> None:
        """Call `stuck` if nobody has the baton, no strand is ready, and no timer can make one ready."""
        with self.lock:
            if self._is_unheld and not self._ready and not self.is_released and not self.has_timers:
                self._stuck()

    def leave(self, strand: int) -> None:
        """Hand the baton on, because a strand has ended."""
        with self.lock:
            if self.is_released or strand not in self._ranks:
                return
            del self._ranks[strand]
            self._forget(strand)
            if all(each in self._outside and each != rank for each, rank in self._ranks.items()):
                self.release_all()  # all programs have ended; strands that are left run without the baton and hinder nobody
            elif self.running == strand:
                if not self._ready and not self.has_timers:
                    self._stuck()
                self._hand_on()
            else:
                self.look()

    def _forget(self, strand: int) -> None:
        """Remove an ended strand from all lists: it may be ready or rest if it was ended from outside."""
        self._ready = deque(each for each in self._ready if each != strand)
        self._outside.discard(strand)
        self._due.discard(strand)
        self._timed.pop(strand, None)
        self._when_idle.pop(strand, None)

    def await_end(self, most_s: float | None = None) -> bool:
        """Block until every strand has left or all strands were released.

        Return False if a number of seconds has passed before.
        """
        while most_s is None and not self._finished.wait(_LISTEN_S):
            pass  # Python hears a signal that another thread has been given once this one runs
        return self._finished.wait(most_s)

    def _hand_on(self) -> None:
        """Give the baton to the next ready strand, if there is one."""
        self._is_unheld, self.running = True, None
        self.turns += 1
        if not self._wake_next() or not self._ready:
            return
        self._is_unheld, self.running = False, self._ready.popleft()
        self._due.discard(self.running)
        self.now_s += _TURN_S
        self._swap(self._ranks[self.running])
        self._open(self.running)

    def _swap(self, rank: int) -> None:
        """Save the states of the rank that ran last, and load those of `rank`, if it is another rank."""
        if rank != self._loaded_rank:
            if self._loaded_rank in self._states:
                self._states[self._loaded_rank] = [each.save() for each in self._own]
            self._load(self._states[rank])
            self._loaded_rank = rank

    def _open(self, strand: int) -> None:
        """Let a strand continue that blocks until it has the baton."""
        with suppress(RuntimeError):  # it is open: whoever was to pass has not come yet, as all were released
            self._gates[strand].release()

    def _load(self, states: Sequence[Any]) -> None:
        """Load states into the process."""
        for each, state in zip(self._own, states, strict=True):
            each.load(state)
