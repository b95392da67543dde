"""The strands of a process: they are created when a rank starts a thread, and end with their rank.

If no strand can continue, the run ends with a description of each rank's wait.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import torch

from emu.backend.rank.record import Recording
from emu.backend.rank.request_work import RequestWork
from emu.backend.rank.streams import NEVER
from emu.cluster.call_matcher import CallMatcher
from emu.cluster.rank_state.rank_state import Replacement, replace_attributes
from emu.cluster.strands.children import await_end, end_pools, thread_replacements
from emu.cluster.strands.sight import Sight, processor_time_s, sight_of
from emu.cluster.strands.strand import Strand, StrandEnd, Wait, current_strand, enter
from emu.cluster.strands.waits import lock_replacements, wait_replacements
from emu.cluster.threads.isolation import sync_groups
from emu.cluster.threads.wait_table import WaitTable
from emu.cluster.watch import SAID_S, absence_in_words
from emu.errors import RunError

_sleep = time.sleep  # the system's, whatever that name is while ranks run
_LOOKS, _LOOK_S = 20, 5e-3  # for threads that no module of Python has started


class Strands:
    """The strands of the ranks of one run in this process, and all their waits.

    Args:
        n_ranks: The number of ranks of the job; the threads that ranks start get the numbers after it.
        ranks: The ranks of this process.
        wait_table: The strands that wait; this object hands the baton on.
        recording: The record of the events of ranks; None: there is none.
        calls: The requests that some members have not made.
    """

    def __init__(
        self, n_ranks: int, ranks: Sequence[int], wait_table: WaitTable, recording: Recording | None, calls: CallMatcher
    ) -> None:
        self.ended = set[int]()  # the ranks that have ended
        self._numbers, self._ranks, self._calls = count(n_ranks), ranks, calls
        self._wait_table, self._recording = wait_table, recording
        self._of: WeakKeyDictionary[threading.Thread, Strand] = WeakKeyDictionary()
        self._by_number: dict[int, Strand] = {}
        self._known = frozenset[int]()  # threads of this process that are none of the ranks' and were there before them
        self._lanes: dict[Strand, Any] = {}  # where what a strand does is taken down

    @contextmanager
    def watched(self, more: Iterable[Replacement] = ()) -> Iterator[None]:
        """Turn the threads that ranks start into strands while the context lasts.

        Args:
            more: Further replacements of functions that wait.
        """
        self._known = frozenset(sys._current_frames())
        with replace_attributes(*lock_replacements(), *wait_replacements(), *thread_replacements(self), *more):
            yield

    def main(self, rank: int) -> Strand:
        """Make the calling thread the strand of a rank's program, and return the strand."""
        thread: Any = threading.current_thread()
        thread._daemonic = False  # as the first thread of a process: what it starts is waited for
        strand = self._by_number[rank] = Strand(rank, rank, self._wait_table, thread)
        enter(strand)
        return strand

    def child(self, parent: Strand, thread: threading.Thread, *, is_outside: bool) -> Strand:
        """Return the strand of a thread that `parent` is about to start."""
        self._wait_table.resumed = sync_groups
        strand = Strand(next(self._numbers), parent.rank, self._wait_table, thread, is_outside)
        self._of[thread] = self._by_number[strand.number] = strand
        if self._recording is not None:
            self._lanes[strand] = self._recording.of(strand.rank).streams.fork()
        self._wait_table.baton.add(strand.number, strand.rank, outside=is_outside)
        return strand

    def run_child(self, child: Strand, body: Callable[[], object]) -> None:
        """Run the function of a new thread on that thread, as its strand."""
        baton = self._wait_table.baton
        enter(child)
        if not child.is_outside:
            baton.await_turn(child.number)
        try:
            if not (child.must_end or self._wait_table.failure is not None or baton.is_released):
                self._do(child, body)
        finally:
            child.is_done = True
            del self._by_number[child.number]
            self._wait_table.wake(child)
            with self._wait_table.end_on_error():
                baton.leave(child.number)

    def _do(self, child: Strand, body: Callable[[], object]) -> None:
        """Run the function of a new thread, with the record of its strand."""
        torch.set_num_threads(1)  # OpenMP keeps it a thread
        thread: Any = child.thread
        lane = self._lanes.pop(child, None)
        with self._recording.on(child.rank, lane) if self._recording is not None else nullcontext():
            sync_groups()
            try:
                body()
            except StrandEnd:
                pass
            except BaseException:
                if self._wait_table.failure is None:
                    thread._invoke_excepthook(thread)
            child.end_position = self.moment()

    def _are_awaited_from_outside(self) -> bool:
        """Return whether a strand waits for a lock that a thread without a strand (such as C code) may release."""
        if not any(isinstance(what, Wait) for what in list(self._wait_table.waits.values())):
            return False
        for _ in range(_LOOKS):  # a thread that begins or ends is known to nobody for a moment
            _sleep(_LOOK_S)
            named = {each.ident for each in threading.enumerate() if not isinstance(each, threading._DummyThread)}
            if not sys._current_frames().keys() - self._known - named:
                return False
        return True

    def running(self) -> tuple[Strand | None, int]:
        """Return the strand that has the baton (None: no strand has it), and the number of turns of the baton so far."""
        number, turns = self._wait_table.baton.running, self._wait_table.baton.turns
        return None if number is None else self._by_number.get(number), turns

    def at_work(self) -> tuple[int, list[threading.Thread]]:
        """Return the number of turns of the baton so far, and the threads that run."""
        running, turns = self.running()
        strands = [strand for strand in list(self._by_number.values()) if strand.is_outside or strand is running]
        return turns, [strand.thread for strand in strands]

    def waits(self) -> list[tuple[int, Wait]]:
        """Return the waits of ranks for something other than communication, the most likely causes of a deadlock first.

        Six criteria decide, one after another. First come (1) waits at a line of the program, not in a library; (2) waits of
        ranks whose program waits for something other than communication, not for other ranks; (3) waits at lines at which no
        thread of these other ranks waits, as idle workers do; (4) waits for something other than the end of a thread, because
        that thread's own wait explains these; (5) waits of threads that must end, not of daemon threads, which may wait for
        ever; (6) waits of threads that the program has started, not of the program itself.
        """
        waits = {number: what for number, what in self._wait_table.waits.items() if isinstance(what, Wait)}
        strands = self._by_number
        idle_lines = {wait.line for number, wait in waits.items() if strands[number].rank not in waits}

        def unlikely(number: int) -> tuple[bool, bool, bool, bool, bool, bool, int]:
            strand, wait = strands[number], waits[number]
            is_outside, is_of_thread = strand.rank in waits, isinstance(wait.of, Strand)
            is_idle = wait.line in idle_lines
            return wait.line is None, not is_outside, is_idle, is_of_thread, strand.thread.daemon, strand.is_main, number

        return [(strands[each].rank, waits[each]) for each in sorted(waits, key=unlikely)]

    def sight(self, rank: int) -> Sight | None:
        """Return a look at the program of a rank: its wait or its line; None if the rank has ended."""
        main = self._by_number.get(rank)
        if main is None:
            return None
        waits = self._wait_table.waits.get(rank)
        mine = [
            each for each in list(self._by_number.values()) if each.rank == rank and each.number not in self._wait_table.waits
        ]
        spent = sum(processor_time_s(each.thread) for each in mine)
        if isinstance(waits, Wait):
            return Sight(waits.line, f"waits for {waits.what}", not waits.comes, spent)
        found = sight_of(main.thread)
        return None if found is None else found._replace(spent_s=spent)

    def mains(self) -> list[Strand]:
        """Return the strands of the ranks' programs."""
        return [strand for strand in list(self._by_number.values()) if strand.is_main]

    def find(self, thread: threading.Thread) -> Strand | None:
        """Return the strand of a thread that a rank has started; None if there is none."""
        return self._of.get(thread)

    def main_of(self, rank: int) -> threading.Thread | None:
        """Return the thread of a rank's program; None if it has ended."""
        main = self._by_number.get(rank)
        return None if main is None else main.thread

    def moment(self) -> Any:
        """Return the position at which all work of the calling strand so far has ended."""
        strand = current_strand()
        return NEVER if strand is None or self._recording is None else self._recording.of(strand.rank).now()

    def goes_on_after(self, moment: Any) -> None:
        """Record that later work of the calling strand comes after a position in the events of another strand of its rank."""
        strand = current_strand()
        if strand is not None and self._recording is not None and moment is not None:
            self._recording.of(strand.rank).goes_on_after(moment)

    def await_others(self, main: Strand) -> None:
        """Wait for the threads of a rank whose program has ended, as Python does before it calls exit functions.

        Idle workers of thread pools are ended; daemon threads go on.
        """
        end_pools(lambda worker: self.find(worker) in self._children(main))
        while left := [each for each in self._children(main) if not (each.is_done or each.thread.daemon or each.is_outside)]:
            for child in left:
                await_end(main, child)

    def end_threads(self, main: Strand) -> None:
        """End the threads of a rank, as Python does when a process ends: daemon threads end at their present or next wait."""
        self.await_others(main)
        for child in self._children(main):
            child.must_end = True
            self._wait_table.go_on(child.number)

    def _children(self, main: Strand) -> list[Strand]:
        return [child for child in list(self._of.values()) if child.rank == main.rank]

    def n_waiting_ranks(self) -> int:
        """Return the number of ranks that wait for a rank that does not come back.

        The result is 0 if the coordinator knows the ranks that wait.
        """
        return 0 if self._wait_table.coordinator is not None else len(self._ranks) - len(self.ended) - 1

    def story(self) -> str:
        """Return a text on what all ranks wait for."""
        outside = {rank for rank in self._ranks if isinstance(self._wait_table.waits.get(rank), Wait)}
        waits = [(self._wait_table.baton.rank_of(strand), what) for strand, what in sorted(self._wait_table.waits.items())]
        waits.sort(key=lambda each: each[0] not in outside)  # those first that others of their rank may wait for
        others = [wait.in_words(rank) for rank, wait in self.waits()]
        return self._calls.story(waits, others, self.ended)

    def stall_state(self) -> tuple[str, bool]:
        """Return the state of a process in which no rank has the baton.

        Returns:
            The waits in words, or "" if a rank has the baton; and whether, as far as Emu knows, no rank can ever go on. If
            ranks sleep or wait outside of Python, the words name those that the others wait for.
        """
        if not self._wait_table.waits or self._wait_table.has_other_wakers:
            return "", False
        if not self._wait_table.baton.has_timers:
            return self.story(), True
        absent = [rank for rank in self._ranks if not isinstance(self._wait_table.waits.get(rank), RequestWork)]
        seen = [(rank, self.sight(rank)) for rank in absent]
        others = len(self._ranks) - len(self.ended) - sum(sight is not None for _, sight in seen)
        told = [sight.in_words(rank) for rank, sight in seen if sight is not None and not sight.waits]
        return (absence_in_words("; ".join(told), SAID_S, others), False) if told and others else ("", False)

    def fail_deadlock(self) -> None:
        """End the run as a deadlock, unless a thread or process that Emu does not control may wake a rank."""
        if self._wait_table.has_other_wakers:
            return
        if not self._wait_table.waits:
            raise RuntimeError("no rank can go on, and none waits for a request")
        if self._are_awaited_from_outside():
            return  # the watch tells of it if none goes on
        if self._wait_table.failure is None:
            self._wait_table.failure = RunError(f"deadlock: {self.story()}")
        self._wait_table.wake_all()
