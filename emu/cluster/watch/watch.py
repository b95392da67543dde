"""A thread beside the ranks that sees which of them does not come back while all others wait, and says so.

Waits that Emu knows hand on the baton, so a deadlock among them is named at once. What is left is what a rank does without
asking anybody: it computes, it sleeps, or it waits for something that no other rank can bring, as none has the baton.

The end of a run that somebody interrupts: where each rank was, and an end also for those that ask for nothing.
"""

import ctypes
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from emu.cluster.call_matcher import rank_list
from emu.cluster.strands.strand import Strand, StrandEnd
from emu.cluster.watch.processes import has_processes
from emu.cluster.watch.sight import IDLE_S, processor_time_s, sight_of
from emu.errors import RunError

_AGAIN_S, _PATIENT_S, _MOST_S = 0.05, 0.3, 1.2  # between looks; until a rank that goes on is told, and is left where it is


def places_in_words(strands: Sequence[Strand]) -> str:
    """Return a text of the lines of all ranks, such as `ranks 0, 1 at train.py:12; rank 2 at train.py:14`."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for strand in strands:
        sight = sight_of(strand.thread)
        if sight is not None:
            found[f"at {sight.line}" if sight.line else "before its first line"].append(strand.rank)
    return "; ".join(f"{_named(ranks)} {at}" for at, ranks in found.items())


def _named(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_list(ranks)}"


def end_ranks(work: Callable[[], tuple[int, Sequence[threading.Thread]]], over: Callable[[float], bool]) -> bool:
    """Wait until the run is over; return False if it does not end.

    A thread that goes on for long though the run is to end gets an exception where it is. Nobody is waited for any more when
    for 1 s no other thread has got the baton.

    Args:
        work: A function that returns the number of turns so far, and the threads that run.
        over: A function that waits for some seconds at most, and returns True if the run is over.
    """
    since_s, told = time.monotonic(), frozenset[threading.Thread]()
    before, _ = work()
    while not over(_AGAIN_S):
        turns, threads = work()
        late_s = time.monotonic() - since_s
        if turns != before:
            before, since_s = turns, time.monotonic()
        elif late_s > _MOST_S:
            return False
        elif late_s > _PATIENT_S:
            for thread in set(threads) - told:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(StrandEnd))
            told |= set(threads)
    return True


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
    """A thread that looks at the strand that has the baton.

    Args:
        turn: A function that returns that strand (None: nobody has the baton), and the number of turns so far.
        blocked: A function that gets a strand that has waited for long without the processor, and the number of its turn.
        waiting: A function that returns the number of other ranks that have not ended.
        story: A function that returns a text of the waits if no rank has the baton ("" if nobody waits for long), and True if
            none can go on unless a thread lets it that Emu does not know.
        fail: A function that gets a rank that waits for ever, and the error.
        patience_s: Seconds after which a rank that waits, and does nothing else, is given up.
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
                seen = _Turn(strand, number, now_s, processor_time_s(strand.thread) if strand else 0.0)
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
        spent = processor_time_s(strand.thread)
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
        sight = sight_of(strand.thread)
        if sight is None:
            return
        if not seen.said:
            seen.said = True
            _log.info("%s", absence_in_words(sight.told(strand.rank), SAID_S, others))
        if sight.waits and idle_s > self._patience_s and not has_processes():
            self._fail(strand.rank, RunError(absence_in_words(sight.told(strand.rank), self._patience_s, others)))


def absence_in_words(what: str, for_s: float, others: int) -> str:
    """Return a text about a rank that has not come back for some seconds while all others wait."""
    wait = f"{others} other ranks wait" if others > 1 else "the other rank waits"
    return f"{what} and has not come back for {for_s:g} s; {wait}"
