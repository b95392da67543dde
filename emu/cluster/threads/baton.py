"""The baton of strands: its holder runs, and it is handed on at the same points in every run.

State that a process has once and every rank should have for itself (random generators, environment) is swapped as the baton
goes to a strand of another rank. A strand goes by its number; that of a rank's own program is the rank.
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
from emu.cluster.threads.core import Core

_TURN_S = 50e-6  # of the baton's own time that a turn takes, about as much as the shortest take on a host
_LISTEN_S = 0.5  # between two moments at which a signal is heard
_ROUNDED_S = 5e-4  # by which a time in whole milliseconds may be too early by the host's clock
_MOMENT_S = 1e-3  # between two questions of a strand that asks again and again


class Baton:
    """The right to run; strands get it in the order in which they became ready.

    Args:
        ranks: The ranks whose programs share it.
        own: The states that are swapped.
        stuck: A function that is called when no strand is ready; it must make one ready, raise, or leave it to another thread.
        core: The processor of the holder, if the holder always runs until it hands on.
    """

    def __init__(
        self, ranks: Sequence[int], own: Sequence[RankState], stuck: Callable[[], None], core: Core | None = None
    ) -> None:
        self._own = own
        self._stuck = stuck
        self._core = core
        self._gates: dict[int, LockType] = {}  # by strand; locked while it rests
        self._ranks: dict[int, int] = {}  # of each strand
        self.lock = threading.RLock()  # over all of it: while a thread has it, no strand gets the baton
        self._ready: deque[int] = deque()
        self._timed: dict[int, tuple[float, float]] = {}  # until when strands rest: of its own time, and of this host's
        self.now_s = 0.0  # its own time: goes on with each turn, and to where a strand has rested if nobody else is ready
        self._due: set[int] = set()  # strands that are ready as their time has come, and not as somebody has woken them
        self._outside: set[int] = set()  # strands that run without it
        self._last: dict[int, bool] = {}  # strands that go on once no other is ready, in their order; whether they are
        for rank in ranks:
            self.add(rank, rank)
        self._lies = False  # nobody has it, as none is ready
        self._holder = -1  # whose own the process has
        self._states: dict[int, list[Any]] = {}
        self._before: list[Any] = []
        self._finished = threading.Event()
        self.abandoned = False
        self.running: int | None = None  # the strand that has it
        self.turns = 0  # how often it was handed on

    def start(self) -> None:
        """Give the baton to the first rank."""
        self._before = [each.save() for each in self._own]
        self._states = {rank: [each.of(rank) for each in self._own] for rank in self._ranks.values()}
        self._hand_on()

    def add(self, strand: int, rank: int, *, outside: bool = False) -> None:
        """Let another strand of a rank take part: after all that are ready now, or outside, which runs without the baton."""
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
        """Return whether a rank has more than one strand that waits for the baton."""
        return len(self._ranks) > len(self._states) and sum(each not in self._outside for each in self.strands(rank)) > 1

    @property
    def has_timers(self) -> bool:
        """True if a strand goes on at a time, or runs without the baton."""
        return bool(self._timed or self._outside or self._last)

    def restore(self) -> None:
        """Give the process the state that it had before the start; when every rank has left."""
        if self._before:
            self._load(self._before)

    def abandon(self) -> None:
        """Let every strand go on at once without the baton, so that none waits for it for ever."""
        self.abandoned = True
        for strand in list(self._gates):
            self._open(strand)
        self._finished.set()

    def await_turn(self, strand: int, until_s: float | None = None) -> None:
        """Block until this strand has the baton; a strand that rests until a time asks for it then."""
        gate = self._gates[strand]
        while not gate.acquire(timeout=-1 if until_s is None else max(0.0, until_s - time.monotonic())):
            until_s = self._ask_again(strand)
        if self._core is not None:
            self._core.turn()

    def _ask_again(self, strand: int) -> float | None:
        """Hand the baton on if it lies and the time of a strand has come; return when to ask again, None if that is known."""
        with self.lock:
            due_s = self._timed[strand][1] if strand in self._timed else 0.0
            if due_s > time.monotonic():
                return due_s
            if self._lies:
                self._hand_on()
            return None

    def _wake_next(self) -> bool:
        """Make the strands ready that go on now without being woken: the first of the last, and the one whose time comes first.

        One of the last is made ready if no strand is ready; one whose time comes, if that is now or still no strand is ready.
        Which strand it is, and after which turn, is the same in every run: it does not depend on the speed of this host.

        Returns:
            Whether a strand may run: none does until the time of that strand has come by this host's clock, too.
        """
        if not self._ready and self._last:
            last = next(iter(self._last))
            if not self._last[last]:
                return False
            del self._last[last]
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

    def rest(self, strand: int, until_s: float | None = None) -> None:
        """Hand the baton on; return once this strand is woken, or its own time has come, and it is its turn."""
        due_s = None if until_s is None else time.monotonic() + until_s - self.now_s + _ROUNDED_S
        with self.lock:
            if self.abandoned:
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
        """Return the baton's own time after some seconds, in whole milliseconds: smaller differences change no order."""
        return round(self.now_s + math.ceil(seconds * 1e3) / 1e3, 3)

    def give_way(self, strand: int) -> None:
        """Let the other ready strands run, then go on, a moment later of the baton's own time, because it may ask for ever."""
        with self.lock:
            if strand not in self._ready:
                self._timed[strand] = self.after(_MOMENT_S), 0.0
        self.rest(strand)

    def wake(self, strand: int) -> None:
        """Make a resting strand ready, unless its time has come and it has not had the baton since, or it has left."""
        with self.lock:
            if strand not in self._ranks:
                return
            self._timed.pop(strand, None)
            if strand not in self._due:
                self._ready.append(strand)
            if self._lies:
                self._hand_on()

    def step_out(self, strand: int, turn: int | None = None, *, awaits: bool = False) -> bool:
        """Hand the baton on while the strand runs on beside the others.

        Args:
            strand: The strand.
            turn: The turn in which it must have the baton; None: any.
            awaits: Whether it waits for working processes: then no time comes before their data.

        Returns:
            Whether it had the baton.
        """
        with self.lock:
            if self.abandoned or self.running != strand or turn not in (None, self.turns):
                return False
            self._outside.add(strand)
            if awaits:
                self._last[strand] = False
            self._hand_on()
            return True

    def await_idle(self, strand: int) -> None:
        """Let others go on before a strand though the processes that it waits for have brought nothing."""
        with self.lock:
            self._last.pop(strand, None)
            if self._lies:
                self._hand_on()

    def step_in(self, strand: int, *, is_last: bool = False) -> None:
        """Block until a strand that runs beside the others has the baton: in its turn, or once no other is ready."""
        with self.lock:
            self._outside.discard(strand)
            if self.abandoned or self.running == strand:
                return
            if is_last:
                self._last[strand] = True
                if self._lies:
                    self._hand_on()
            else:
                self.wake(strand)
        self.await_turn(strand)

    def prepare(self, rank: int) -> None:
        """Load the state of a resting rank, if no strand runs: the rank will be the next, and goes on sooner then."""
        with self.lock:
            if self._lies and not self.abandoned:
                self._swap(rank)

    def rehearse(self) -> None:
        """Save and load the states of the running rank, so that they are in the processor's cache at its next rest."""
        if len(self._states) > 1:
            self._load([each.save() for each in self._own])

    def look(self) -> None:
        """Ask again what to do if no strand is ready; for another thread, which wakes no strand any more."""
        with self.lock:
            if self._lies and not self._ready and not self.abandoned and not self.has_timers:
                self._stuck()

    def leave(self, strand: int) -> None:
        """Hand the baton on for good."""
        with self.lock:
            if self.abandoned or strand not in self._ranks:
                return
            del self._ranks[strand]
            self._forget(strand)
            if all(each in self._outside and each != rank for each, rank in self._ranks.items()):
                self.abandon()  # those that are left were started by ranks and run without the baton: they hinder nobody
            elif self.running == strand:
                if not self._ready and not self.has_timers:
                    self._stuck()
                self._hand_on()
            else:
                self.look()

    def _forget(self, strand: int) -> None:
        """Never give the baton to a strand again; one that was ended from outside may be ready, or rest until a time."""
        self._ready = deque(each for each in self._ready if each != strand)
        self._outside.discard(strand)
        self._due.discard(strand)
        self._timed.pop(strand, None)
        self._last.pop(strand, None)

    def await_end(self, most_s: float | None = None) -> bool:
        """Block until every strand has left, the baton was abandoned, or a time has passed; return false in the last case."""
        while most_s is None and not self._finished.wait(_LISTEN_S):
            pass  # Python hears a signal that another thread has been given once this one runs
        return self._finished.wait(most_s)

    def _hand_on(self) -> None:
        """Give the baton to the next ready strand; it lies if there is none."""
        self._lies, self.running = True, None
        self.turns += 1
        if not self._wake_next() or not self._ready:
            return
        self._lies, self.running = False, self._ready.popleft()
        self._due.discard(self.running)
        self.now_s += _TURN_S
        self._swap(self._ranks[self.running])
        self._open(self.running)

    def _swap(self, rank: int) -> None:
        """Load the states of a rank, and save those of the rank before."""
        if rank != self._holder:
            if self._holder in self._states:
                self._states[self._holder] = [each.save() for each in self._own]
            self._load(self._states[rank])
            self._holder = rank

    def _open(self, strand: int) -> None:
        """Let a strand go on that waits for the baton."""
        with suppress(RuntimeError):  # it is open: whoever was to pass has not come yet, as the baton was abandoned
            self._gates[strand].release()

    def _load(self, states: Sequence[Any]) -> None:
        """Load states into the process."""
        for each, state in zip(self._own, states, strict=True):
            each.load(state)
