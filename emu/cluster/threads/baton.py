"""Threads of which one runs at a time, and where it hands on is the same in every run.

What a process has once and every rank should have for itself (random generators, environment) is swapped as the baton goes
on.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from emu.cluster.own.own import Own
from emu.cluster.threads.core import Core


class Baton:
    """The right to run; ranks get it in the order in which they became ready.

    Args:
        ranks: Whose threads share it.
        own: What is swapped.
        stuck: Called when no rank is ready; must make at least one so, or raise, or leave it to another thread to wake one.
        core: Where its holder runs, if it always runs until it hands on.
    """

    def __init__(self, ranks: Sequence[int], own: Sequence[Own], stuck: Callable[[], None], core: Core | None = None) -> None:
        self._own = own
        self._stuck = stuck
        self._core = core
        self._gates = {rank: threading.Lock() for rank in ranks}  # locked while its rank rests
        for gate in self._gates.values():
            gate.acquire()
        self._lock = threading.RLock()
        self._ready = deque(ranks)
        self._lies = False  # nobody has it, as none is ready
        self._holder = -1  # whose own the process has
        self._states: dict[int, list[Any]] = {}
        self._left = len(ranks)
        self._before: list[Any] = []
        self._finished = threading.Event()
        self.abandoned = False

    def start(self) -> None:
        """Give it to the first rank."""
        self._before = [each.save() for each in self._own]
        self._states = {rank: [each.of(rank) for each in self._own] for rank in self._gates}
        self._hand_on()

    def restore(self) -> None:
        """Give the process what it had before the start; when every rank has left."""
        if self._before:
            self._load(self._before)

    def abandon(self) -> None:
        """Let every rank go on at once: whatever went wrong, none is left waiting for a baton that does not come."""
        self.abandoned = True
        for rank in self._gates:
            self._open(rank)
        self._finished.set()

    def await_turn(self, rank: int) -> None:
        """Block until this rank has it."""
        self._gates[rank].acquire()
        if self._core is not None:
            self._core.turn()

    def rest(self, rank: int) -> None:
        """Hand it on, and return once somebody has woken this rank and its turn has come."""
        with self._lock:
            if self.abandoned:
                return
            if not self._ready:
                self._stuck()
            if self._ready and self._ready[0] == rank:  # nobody else is ready
                self._ready.popleft()
                return
            self._hand_on()
        self.await_turn(rank)

    def give_way(self, rank: int) -> None:
        """Let the others that are ready run, then go on."""
        self.wake(rank)
        self.rest(rank)

    def wake(self, rank: int) -> None:
        """Make a resting rank ready."""
        with self._lock:
            self._ready.append(rank)
            if self._lies:
                self._hand_on()

    def prepare(self, rank: int) -> None:
        """Give the process what is a resting rank's own, if nobody runs: it will be the next, and goes on sooner then."""
        with self._lock:
            if self._lies and not self.abandoned:
                self._swap(rank)

    def rehearse(self) -> None:
        """Do of the running rank what its next rest will do, so that the processor has all at hand then; nothing changes."""
        if len(self._gates) > 1:
            self._load([each.save() for each in self._own])

    def look(self) -> None:
        """Ask anew what is to be done if nobody is ready; from another thread, which wakes nobody any more."""
        with self._lock:
            if self._lies and not self.abandoned:
                self._stuck()

    def leave(self) -> None:
        """Hand it on for good."""
        with self._lock:
            if self.abandoned:
                return
            self._left -= 1
            if not self._left:
                self._finished.set()
                return
            if not self._ready:
                self._stuck()
            self._hand_on()

    def await_end(self) -> None:
        """Block until every rank has left, or the baton was abandoned."""
        self._finished.wait()

    def _hand_on(self) -> None:
        self._lies = not self._ready
        if self._lies:
            return
        rank = self._ready.popleft()
        self._swap(rank)
        self._open(rank)

    def _swap(self, rank: int) -> None:
        if rank != self._holder:
            if self._holder in self._states:
                self._states[self._holder] = [each.save() for each in self._own]
            self._load(self._states[rank])
            self._holder = rank

    def _open(self, rank: int) -> None:
        with suppress(RuntimeError):  # it is open: whoever was to pass has not come yet, as the baton was abandoned
            self._gates[rank].release()

    def _load(self, states: Sequence[Any]) -> None:
        for each, state in zip(self._own, states, strict=True):
            each.load(state)
