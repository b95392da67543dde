"""Threads of which one runs at a time, and where it hands on is the same in every run.

What a process has once and every rank should have for itself (random generators, environment) is swapped as the baton goes
on.
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from emu.backend.rank.count import paused


class Own(Protocol):
    """Something a process has once and every rank should have for itself."""

    def of(self, rank: int) -> Any:
        """What a rank starts with."""

    def save(self) -> Any:
        """What the process has now."""

    def load(self, state: Any) -> None:
        """Give the process what was saved."""


class Generators:
    """The default random generators of torch, numpy and Python.

    Torch's starts as in a fresh process. The other two, which a fresh process seeds by chance, start from the rank.
    """

    def of(self, rank: int) -> Any:
        """What a rank starts with."""
        return torch.Generator().get_state(), np.random.RandomState(rank).get_state(), random.Random(rank).getstate()

    def save(self) -> Any:
        """What the process has now."""
        with paused():
            return torch.default_generator.get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002

    def load(self, state: Any) -> None:
        """Give the process what was saved."""
        torch_state, numpy_state, python_state = state
        with paused():
            torch.default_generator.set_state(torch_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


class Baton:
    """The right to run; ranks get it in the order in which they became ready.

    Args:
        n_ranks: How many threads share it.
        own: What is swapped.
        stuck: Called when no rank is ready; must make at least one so, or raise.
    """

    def __init__(self, n_ranks: int, own: Sequence[Own], stuck: Callable[[], None]) -> None:
        self._own = own
        self._stuck = stuck
        self._gates = [threading.Semaphore(0) for _ in range(n_ranks)]
        self._ready = deque(range(n_ranks))
        self._states = [[each.of(rank) for each in own] for rank in range(n_ranks)]
        self._left = n_ranks
        self._before = [each.save() for each in own]
        self._finished = threading.Event()

    def start(self) -> None:
        """Give it to the first rank."""
        self._hand_on()

    def await_turn(self, rank: int) -> None:
        """Block until this rank has it."""
        self._gates[rank].acquire()

    def rest(self, rank: int) -> None:
        """Hand it on, and return once somebody has woken this rank and its turn has come."""
        if not self._ready:
            self._stuck()
        if self._ready[0] == rank:  # nobody else is ready
            self._ready.popleft()
            return
        self._states[rank] = [each.save() for each in self._own]
        self._hand_on()
        self.await_turn(rank)

    def give_way(self, rank: int) -> None:
        """Let the others that are ready run, then go on."""
        self.wake(rank)
        self.rest(rank)

    def wake(self, rank: int) -> None:
        """Make a resting rank ready."""
        self._ready.append(rank)

    def leave(self) -> None:
        """Hand it on for good."""
        self._left -= 1
        if not self._left:
            for each, state in zip(self._own, self._before, strict=True):
                each.load(state)
            self._finished.set()
            return
        if not self._ready:
            self._stuck()
        self._hand_on()

    def await_end(self) -> None:
        """Block until every rank has left."""
        self._finished.wait()

    def _hand_on(self) -> None:
        rank = self._ready.popleft()
        for each, state in zip(self._own, self._states[rank], strict=True):
            each.load(state)
        self._gates[rank].release()
