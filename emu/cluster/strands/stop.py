"""The end of a run that somebody interrupts: where each rank was, and an end also for those that ask for nothing."""

import ctypes
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from emu.cluster.strands.sight import look_at
from emu.cluster.strands.strand import Strand, StrandEnd

_MOST_S, _AGAIN_S = 1.5, 0.1  # for the ranks to end, and until one that goes on is told again


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


def end(running: Callable[[], Sequence[threading.Thread]], over: Callable[[float], bool]) -> bool:
    """Raise in each thread that goes on running, until the run is over; return whether it is, after 1.5 s at most.

    Args:
        running: Returns the threads that run.
        over: Waits for so long; returns whether the run is over.
    """
    until_s = time.monotonic() + _MOST_S
    while time.monotonic() < until_s:
        for thread in running():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(StrandEnd))
        if over(_AGAIN_S):
            return True
    return over(0.0)
