"""The end of a run that somebody interrupts: where each rank was, and an end also for those that ask for nothing."""

import ctypes
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from emu.cluster.strands.strand import Strand, StrandEnd
from emu.cluster.watch.sight import look_at

_AGAIN_S, _PATIENT_S, _MOST_S = 0.05, 0.3, 1.2  # between looks; until a rank that goes on is told, and is left where it is


def where(strands: Sequence[Strand]) -> str:
    """Return in words where the ranks are, such as `ranks 0, 1 at train.py:12; rank 2 at train.py:14`."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for strand in strands:
        sight = look_at(strand.thread)
        if sight is not None:
            found[f"at {sight.line}" if sight.line else "before its first line"].append(strand.rank)
    return "; ".join(f"{_named(ranks)} {at}" for at, ranks in found.items())


def _named(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def end(work: Callable[[], tuple[int, Sequence[threading.Thread]]], over: Callable[[float], bool]) -> bool:
    """Wait until the run is over; return whether it is.

    A thread that goes on for long though the run is to end gets an exception where it is. Nobody is waited for any more when
    for 1 s no other thread has got the baton.

    Args:
        work: Returns how many turns there have been, and the threads that run.
        over: Waits for so long; returns whether the run is over.
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
