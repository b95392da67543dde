"""A look at a thread from outside: the line of the user's program that it executes, and whether it waits."""

import linecache
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from emu.backend.rank.source_lines import SourceLine, in_brackets, is_users
from emu.cluster.strands.strand import Strand
from emu.errors import rank_list

_WAITING = re.compile(r"\.(acquire|join|wait|result)\(|^\s*(async )?with\b")  # as a line of Python says it
_PRIMITIVES = ("threading.py", "queue.py", "_base.py")  # of Python, that wait for locks alone
IDLE_S = 1e-3  # seconds of the processor; less is no work


class Sight(NamedTuple):
    """A look at a thread at one moment: the line that it executes, and a phrase on what it does there."""

    line: SourceLine | None  # of the user's program
    does: str  # in words
    waits: bool  # for a lock, a thread or a store, as far as its line tells
    spent_s: float  # of the processor, since it was started

    def in_words(self, rank: int) -> str:
        """Return a text such as `rank 1 waits for a lock or a thread (train.py:12)`."""
        return f"rank {rank} {self.does}{in_brackets(self.line)}"


def sight_of(thread: threading.Thread) -> Sight | None:
    """Return the line that a thread executes now; None if the thread has ended."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None or thread.ident is None:
        return None
    file, number = frame.f_code.co_filename, frame.f_lineno or 0  # none, as it is about to begin
    waits = file.endswith(_PRIMITIVES) or bool(_WAITING.search(linecache.getline(file, number)))
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    line = SourceLine(frame.f_code.co_filename, frame.f_lineno or 0) if frame is not None else None
    does = "waits for a lock or a thread" if waits else "computes, or waits outside of Python"
    return Sight(line, does, waits, processor_time_s(thread))


def processor_time_s(thread: threading.Thread) -> float:
    """Return the seconds for which a thread has used the processor; where the system does not tell, those of the process."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))
    except (AttributeError, OSError):  # the system does not tell, or the thread has ended
        return time.process_time()


def places_in_words(strands: Sequence[Strand]) -> str:
    """Return a text on the line of the program at which each rank is: `ranks 0, 1 at train.py:12; rank 2 at train.py:14`."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for strand in strands:
        sight = sight_of(strand.thread)
        if sight is not None:
            found[f"at {sight.line}" if sight.line else "before its first line"].append(strand.rank)
    return "; ".join(f"{_named(ranks)} {at}" for at, ranks in found.items())


def _named(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_list(ranks)}"
