"""A thread beside the ranks that sees which of them does not come back while all others wait, and says so.

Waits that Emu knows hand on the baton, so a deadlock among them is named at once. What is left is what a rank does without
asking anybody: it computes, it sleeps, or it waits for something that no other rank can bring, as none has the baton.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from emu.cluster.strands.strand import Strand
from emu.cluster.watch.processes import has_processes
from emu.cluster.watch.sight import IDLE_S, look_at, spent_s
from emu.errors import RunError

PATIENCE_S = 60.0
SAID_S = 5.0  # a rank that does not come back for so long is told of
_LOOK_S, _BLOCKED_S = 0.25, 1.0
_log = logging.getLogger("emu")


@dataclass(slots=True)
class _Turn:
    """The time for which the present strand has had the baton."""

    strand: Strand | None
    number: int
    since_s: float
    spent_s: float  # of the processor, when it was last seen to use it
    said: bool = False
    idle_s: float | None = None  # since when it has not used the processor


class Watch:
    """One thread that looks at the strand that has the baton.

    Args:
        turn: Returns that strand, None if none has it, and how many turns there have been.
        blocked: Is given a strand that has waited for long without the processor, and the number of its turn.
        waiting: Returns how many other ranks have not ended.
        story: Returns who waits for what where no rank has the baton, "" if nobody waits for long, and whether none can go on
            unless a thread lets it that Emu does not know.
        fail: Is given the error of a rank that waits for ever.
        patience_s: A rank that waits for so long, and does nothing else, is given up.
    """

    def __init__(
        self,
        turn: Callable[[], tuple[Strand | None, int]],
        blocked: Callable[[Strand, int], None],
        waiting: Callable[[], int],
        story: Callable[[], tuple[str, bool]],
        fail: Callable[[int, Exception], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._turn, self._blocked, self._waiting, self._story = turn, blocked, waiting, story
        self._fail, self._patience_s = fail, patience_s
        self._over = threading.Event()

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Look while the context lasts."""
        thread = threading.Thread(target=self._look, name="watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _look(self) -> None:
        seen = _Turn(None, -1, 0.0, 0.0)
        while not self._over.wait(_LOOK_S):
            strand, number = self._turn()
            now_s = time.monotonic()
            if number != seen.number:
                seen = _Turn(strand, number, now_s, spent_s(strand.thread) if strand else 0.0)
            elif strand is None:
                self._see_none(seen, now_s)
            else:
                self._see(seen, strand, now_s)

    def _see_none(self, seen: _Turn, now_s: float) -> None:
        (story, is_for_ever), for_s = self._story(), now_s - seen.since_s
        if story and for_s > SAID_S and not seen.said:
            seen.said = True
            _log.info("%s", f"no rank has gone on for {SAID_S:g} s; {story}" if is_for_ever else story)
        if is_for_ever and for_s > self._patience_s and not has_processes():
            self._fail(0, RunError(f"deadlock: no rank has gone on for {self._patience_s:g} s; {story}"))

    def _see(self, seen: _Turn, strand: Strand, now_s: float) -> None:
        spent = spent_s(strand.thread)
        if spent - seen.spent_s > IDLE_S:
            seen.spent_s, seen.idle_s = spent, None
        elif seen.idle_s is None:
            seen.idle_s = now_s
        idle_s = 0.0 if seen.idle_s is None else now_s - seen.idle_s
        if idle_s > _BLOCKED_S:
            self._blocked(strand, seen.number)
        others = self._waiting()
        if others and now_s - seen.since_s > SAID_S:  # not sooner: who looks at a thread's frames holds its tensors
            self._tell(seen, strand, others, idle_s)

    def _tell(self, seen: _Turn, strand: Strand, others: int, idle_s: float) -> None:
        sight = look_at(strand.thread)
        if sight is None:
            return
        if not seen.said:
            seen.said = True
            _log.info("%s", not_back(sight.told(strand.rank), SAID_S, others))
        if sight.waits and idle_s > self._patience_s and not has_processes():
            self._fail(strand.rank, RunError(not_back(sight.told(strand.rank), self._patience_s, others)))


def not_back(what: str, for_s: float, others: int) -> str:
    """Return the words for a rank that does not come back while all others wait."""
    wait = f"{others} other ranks wait" if others > 1 else "the other rank waits"
    return f"{what} and has not come back for {for_s:g} s; {wait}"
