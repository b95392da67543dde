"""The strands of the ranks of a process: created when a rank starts a thread, and ended with their rank."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import torch

from emu.backend.rank.record import Recording
from emu.backend.rank.streams import NEVER
from emu.cluster.rank_state.replacement import Replacement, replace_attributes
from emu.cluster.strands.children import await_end, children, end_pools
from emu.cluster.strands.locks import locks
from emu.cluster.strands.strand import Strand, StrandEnd, Wait, current_strand, enter
from emu.cluster.strands.waits import waits
from emu.cluster.threads.rests import Rests
from emu.cluster.watch.sight import Sight, look_at, spent_s

_sleep = time.sleep  # the system's, whatever that name is while ranks run
_LOOKS, _LOOK_S = 20, 5e-3  # for threads that no module of Python has started


class Strands:
    """The threads that ranks start in one run.

    Args:
        n_ranks: The number of ranks of the job; threads that ranks start get the numbers after it.
        rests: The object that hands on the baton.
        recording: The record of what they do; None: there is none.
        resumed: A function that is called on a strand's thread whenever it gets the baton.
    """

    def __init__(self, n_ranks: int, rests: Rests, recording: Recording | None, resumed: Callable[[], None]) -> None:
        self._numbers = count(n_ranks)
        self._rests, self._recording, self._resumed = rests, recording, resumed
        self._of: WeakKeyDictionary[threading.Thread, Strand] = WeakKeyDictionary()
        self._by_number: dict[int, Strand] = {}
        self._known = frozenset[int]()  # threads of this process that are none of the ranks' and were there before them
        self._lanes: dict[Strand, Any] = {}  # where what a strand does is taken down

    @contextmanager
    def watched(self, more: Iterable[Replacement] = ()) -> Iterator[None]:
        """Make strands of the threads that ranks start meanwhile.

        Args:
            more: Further replacements of functions that wait.
        """
        self._known = frozenset(sys._current_frames())
        with replace_attributes(*locks(), *waits(), *children(self), *more):
            yield

    def main(self, rank: int) -> Strand:
        """Make the calling thread that of a rank's program."""
        thread: Any = threading.current_thread()
        thread._daemonic = False  # as the first thread of a process: what it starts is waited for
        strand = self._by_number[rank] = Strand(rank, rank, self._rests, thread)
        enter(strand)
        return strand

    def child(self, parent: Strand, thread: threading.Thread, *, is_free: bool) -> Strand:
        """Return the strand of a thread that `parent` is about to start."""
        self._rests.resumed = self._resumed
        strand = Strand(next(self._numbers), parent.rank, self._rests, thread, is_free)
        self._of[thread] = self._by_number[strand.number] = strand
        if self._recording is not None:
            self._lanes[strand] = self._recording.of(strand.rank).fork()
        self._rests.baton.add(strand.number, strand.rank, outside=is_free)
        return strand

    def live(self, child: Strand, body: Callable[[], object]) -> None:
        """Run the body of a thread, as its strand, on that thread."""
        baton = self._rests.baton
        enter(child)
        if not child.is_free:
            baton.await_turn(child.number)
        try:
            if not (child.ends or self._rests.failure is not None or baton.abandoned):
                self._do(child, body)
        finally:
            child.is_done = True
            del self._by_number[child.number]
            self._rests.wake(child)
            with self._rests.end_on_error():
                baton.leave(child.number)

    def _do(self, child: Strand, body: Callable[[], object]) -> None:
        """Run the body of a thread, with the record of its strand."""
        torch.set_num_threads(1)  # OpenMP keeps it a thread
        thread: Any = child.thread
        lane = self._lanes.pop(child, None)
        with self._recording.on(child.rank, lane) if self._recording is not None else nullcontext():
            self._resumed()
            try:
                body()
            except StrandEnd:
                pass
            except BaseException:
                if self._rests.failure is None:
                    thread._invoke_excepthook(thread)
            child.end = self.moment()

    def are_awaited_from_outside(self) -> bool:
        """Return whether a strand waits for a lock that a thread without a strand may release, such as one of C code."""
        if not any(isinstance(what, Wait) for what in list(self._rests.waits.values())):
            return False
        for _ in range(_LOOKS):  # a thread that begins or ends is known to nobody for a moment
            _sleep(_LOOK_S)
            named = {each.ident for each in threading.enumerate() if not isinstance(each, threading._DummyThread)}
            if not sys._current_frames().keys() - self._known - named:
                return False
        return True

    def running(self) -> tuple[Strand | None, int]:
        """Return the strand that has the baton, or None, and the number of turns so far."""
        number, turns = self._rests.baton.running, self._rests.baton.turns
        return None if number is None else self._by_number.get(number), turns

    def at_work(self) -> tuple[int, list[threading.Thread]]:
        """Return the number of turns so far, and the running threads: of the strand with the baton, and of free strands."""
        running, turns = self.running()
        strands = [strand for strand in list(self._by_number.values()) if strand.is_free or strand is running]
        return turns, [strand.thread for strand in strands]

    def waits(self) -> list[tuple[int, Wait]]:
        """Return which ranks wait outside of communication, and for what: the most likely causes of a deadlock first.

        The order is: waits at a line of the program, before those of a library; ranks whose program waits outside of
        communication, before those whose program waits for other ranks; waits at lines where no thread of these others
        waits, as it does for work; waits for something else than the end of a thread, which that thread's own wait
        explains; threads that the program has started and that must end; the program's own; daemons, which may wait for ever.
        """
        waits = {number: what for number, what in self._rests.waits.items() if isinstance(what, Wait)}
        strands = self._by_number
        idle_lines = {wait.line for number, wait in waits.items() if strands[number].rank not in waits}

        def unlikely(number: int) -> tuple[bool, bool, bool, bool, bool, bool, int]:
            strand, wait = strands[number], waits[number]
            is_outside, is_of_thread = strand.rank in waits, isinstance(wait.of, Strand)
            is_idle = wait.line in idle_lines
            return wait.line is None, not is_outside, is_idle, is_of_thread, strand.thread.daemon, strand.is_main, number

        return [(strands[each].rank, waits[each]) for each in sorted(waits, key=unlikely)]

    def sight(self, rank: int) -> Sight | None:
        """Return where a rank is: the wait of its program, or its line; None: it has ended."""
        main = self._by_number.get(rank)
        if main is None:
            return None
        waits = self._rests.waits.get(rank)
        mine = [each for each in list(self._by_number.values()) if each.rank == rank and each.number not in self._rests.waits]
        spent = sum(spent_s(each.thread) for each in mine)
        if isinstance(waits, Wait):
            return Sight(waits.line, f"waits for {waits.what}", not waits.comes, spent)
        found = look_at(main.thread)
        return None if found is None else found._replace(spent_s=spent)

    def mains(self) -> list[Strand]:
        """Return the strands of the ranks' programs."""
        return [strand for strand in list(self._by_number.values()) if strand.is_main]

    def find(self, thread: threading.Thread) -> Strand | None:
        """Return the strand of a thread that a rank has started; None if there is none."""
        return self._of.get(thread)

    def main_of(self, rank: int) -> threading.Thread | None:
        """Return the thread of a rank's program; None where it has ended."""
        main = self._by_number.get(rank)
        return None if main is None else main.thread

    def moment(self) -> Any:
        """Return the end of all that the calling strand has done so far."""
        strand = current_strand()
        return NEVER if strand is None or self._recording is None else self._recording.of(strand.rank).now()

    def goes_on_after(self, moment: Any) -> None:
        """Record that the calling strand goes on after a moment of another strand of its rank."""
        strand = current_strand()
        if strand is not None and self._recording is not None and moment is not None:
            self._recording.of(strand.rank).goes_on_after(moment)

    def await_others(self, main: Strand) -> None:
        """Wait for the threads of a rank whose program has come to its end, as Python does before what `atexit` calls.

        Idle workers of thread pools end; daemon threads go on.
        """
        end_pools(lambda worker: self.find(worker) in self._children(main))
        while left := [each for each in self._children(main) if not (each.is_done or each.thread.daemon or each.is_free)]:
            for child in left:
                await_end(main, child)

    def end(self, main: Strand) -> None:
        """End the threads of a rank, as Python does when a process ends: daemon threads end at their present or next wait."""
        self.await_others(main)
        for child in self._children(main):
            child.ends = True
            self._rests.go_on(child.number)

    def _children(self, main: Strand) -> list[Strand]:
        return [child for child in list(self._of.values()) if child.rank == main.rank]
