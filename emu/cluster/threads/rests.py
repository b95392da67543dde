"""Which ranks of a process rest, and for what; and the first error of the run, with which all of them go on and end."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol
from weakref import ref

from emu.backend.rank.lines import traceback_of
from emu.backend.rank.work import Work
from emu.cluster.ends import RankExit, StoppedError, failed, is_told_before
from emu.cluster.processes.beyond import Beyond
from emu.cluster.threads.baton import Baton
from emu.errors import EmuError


class Rings(Protocol):
    """Calls at moments of this host's clock."""

    def at(self, time_s: float, call: Callable[[], object]) -> Any:
        """Call at a time."""

    def forget(self, asked: Any) -> None:
        """Do not call."""


class Rests:
    """Good for one run.

    Args:
        baton: Of the ranks here.
        beyond: The way to the others; None: all are here.
    """

    def __init__(self, baton: Baton, beyond: Beyond | None) -> None:
        self.baton, self._beyond = baton, beyond
        self.rings: Rings | None = None  # wakes ranks at times; None: none rests for a time
        self.lock = threading.RLock()  # over what a thread beside the ranks changes: works, and who waits for them
        self.waits: dict[int, object] = {}  # by rank
        self.failure: BaseException | None = None
        self.story: Callable[[], str] = str  # who waits for what

    def rest(self, rank: int, what: object, until_s: float | None = None) -> None:
        """Let others run until this rank is woken for that, at the latest at a time, or the run has failed."""
        with self.lock:
            if (isinstance(what, Work) and what.done) or self.failure is not None:
                return
            self.waits[rank] = what
        if self._beyond is not None and isinstance(what, Work) and until_s is None:
            self._beyond.wait(rank, what)
        rings = self.rings if until_s is not None else None
        ring = rings and rings.at(until_s or 0.0, partial(self.wake, rank, _key(what)))
        with self.held_by_none():
            self.baton.rest(rank)
        if rings:
            rings.forget(ring)

    def wake(self, rank: int, what: object) -> bool:
        """Let a rank go on that rests for that, a work by its key; whether it did."""
        with self.lock:
            waits = _key(self.waits.get(rank)) is what
            if waits:
                del self.waits[rank]
                self.baton.wake(rank)
            return waits

    def finish(self, rank: int, work: Work) -> bool:
        """The answer to a request is there; whether the rank has waited for it."""
        with self.lock:
            work.finish()
            return self.wake(rank, work.key)

    def answer(self, rank: int, work: "ref[Work]", due_s: float) -> bool:
        """The same of what was due at a time, and nothing holds the work that the rank may be done with."""
        with self.lock:
            known = work()
            if known is None:  # nobody can wait for it
                return False
            key, known.due_s = known.key, due_s
            known.finish()
            del known
            return self.wake(rank, key)

    def wake_all(self) -> None:
        """Let all ranks go on that rest."""
        for rank in sorted(self.waits):
            self.baton.wake(rank)
        self.waits.clear()

    def fail(self, rank: int, error: BaseException) -> None:
        """Keep the first error and wake every rank, so that it ends where it waits."""
        with self.lock:
            new = failed(rank, error)
            if is_told_before(new, self.failure):
                if isinstance(new, RankExit):
                    new.others = self.story() or getattr(self.failure, "others", "")
                self.failure = new
                if self._beyond is not None:
                    self._beyond.fail(self.failure)
            self.wake_all()

    def explain(self, rank: int, error: BaseException) -> None:
        """Keep where in its program a rank has failed: known once the error has come out of it."""
        failure = self.failure
        if isinstance(failure, EmuError) and error in (failure, failure.__cause__):
            failure.lines = tuple(traceback_of(error))
            if self._beyond is not None:
                self._beyond.explain(rank, failure.lines)

    def stop(self, error: BaseException) -> None:
        """End every rank where it waits, as the job has failed elsewhere."""
        with self.lock:
            self.failure = self.failure or error
            self.wake_all()

    @contextmanager
    def held_by_none(self) -> Iterator[None]:
        """An error of the cluster itself in here ends the run: it is named, and no rank is left where it waits."""
        try:
            yield
        except BaseException as error:
            self.abandon(error)
            raise

    def abandon(self, error: BaseException) -> None:
        """End the run at once, as the cluster itself has failed."""
        if self.failure is None:
            self.failure = error
        elif self.failure is not error:
            self.failure.add_note(f"after that, in the cluster itself: {type(error).__name__}: {error}")
        self.baton.abandon()

    def stopped(self) -> StoppedError:
        """What a rank is told that goes on after the run has failed."""
        return StoppedError(f"stopped, as the run has failed: {self.failure}")


def _key(what: object) -> object:
    return what.key if isinstance(what, Work) else what
