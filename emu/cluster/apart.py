"""One rank of a job whose other ranks are processes of their own, with gloo between them.

The requests of one group run in issue order on a thread of their own, as on a stream, so that those of different groups
don't hold one another up; so do the messages to one peer under one tag. Nothing knows that all ranks wait for ever: a rank
that is silent for too long counts as gone.
"""

import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.distributed_c10d import destroy_process_group, init_process_group

from emu.backend.executor.wire import GlooWire, Lane, Links, UnreachableError, reach_store
from emu.backend.rank.call import Call
from emu.backend.rank.count import paused
from emu.backend.rank.group import BACKEND
from emu.backend.rank.lines import starts_rank
from emu.backend.rank.record import Notes, Recording
from emu.backend.rank.work import Work
from emu.cluster.cluster import check_agrees, failed, perform, place
from emu.cluster.isolate import isolated
from emu.cluster.meeting import check_message
from emu.cluster.notice import call_of, calls_of, notice
from emu.cluster.own.device import as_device
from emu.cluster.own.library import Generators
from emu.collective.algorithm import Choice
from emu.errors import EmuError

_MESSAGES = ("send", "recv")
_POLL_S = 0.001


class Apart:
    """Carries out the requests of the rank that is here; good for one run.

    Args:
        rank: Which one.
        links: To the others.
        choice: Which algorithm serves each operation.
        recording: Takes down what the rank does.
        tell: Is told what the rank is doing, in a few words.
    """

    def __init__(self, rank: int, links: Links, choice: Choice, recording: Recording, tell: Callable[[str], object]) -> None:
        self._rank = rank
        self._links = links
        self._choice = choice
        self._recording = recording
        self._tell = tell
        self._made: defaultdict[object, int] = defaultdict(int)
        self._streams: dict[object, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()
        self._latest = ""
        self.failure: BaseException | None = None  # the first, whether the program has seen it or not

    def run(self, program: Callable[[int], Any], store: Store, n_ranks: int) -> Any:
        """Run the program with PyTorch's default group made; return when all it asked for is done."""
        start = Generators()
        start.load(start.of(self._rank))
        with isolated(self), self._recording.hooks(), as_device():
            init_process_group(BACKEND, store=store, rank=self._rank, world_size=n_ranks)
            with self._recording.on(self._rank):
                result = program(self._rank)
            for stream in self._streams.values():
                stream.shutdown()
            destroy_process_group()
        if self.failure is not None:
            raise self.failure
        return result

    def submit(self, call: Call) -> Work:
        """Start a request."""
        stream, instance = self._place(call)
        done = threading.Event()
        work = Work(call.result, lambda _: _await(done), lambda: _await(done, _POLL_S))
        work.watch = self._recording.of(self._rank).request(call, instance)
        told = f"{call.describe()} on {place(call)}, call {instance + 1}"
        with self._lock:
            self._latest = told
            self._tell(f"in {told}")
        stream.submit(self._serve, [call], work, done, told)
        return work

    def _place(self, call: Call) -> tuple[ThreadPoolExecutor, int]:
        """The stream of a request, and which one it is there."""
        key: tuple[object, ...] = call.group[:2]
        if call.operation in _MESSAGES:
            key = (*key, call.operation, call.root, call.tag)
        if key not in self._streams:
            self._streams[key] = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
        self._made[key] += 1
        return self._streams[key], self._made[key] - 1

    def _serve(self, handed: list[Call], work: Work, done: threading.Event, told: str) -> None:
        error = self._carry(handed.pop(), work)
        with self._lock:
            self.failure = self.failure or error
            if self._latest == told and error is None:
                self._tell(f"after {told}")
        work.finish(error)
        done.set()

    def _carry(self, call: Call, work: Work) -> BaseException | None:
        """Carry out a request; on return nothing here holds its tensors, whose lifetime the recording knows."""
        try:
            wire = self._links.wire(call.group)
            carry = {"send": self._send, "recv": self._receive}.get(call.operation, self._collective)
            work.watch.sized(carry(call, wire))
        except BaseException as error:
            return error
        return None

    def _collective(self, call: Call, wire: GlooWire) -> int:
        """Agree with the other members, then run the schedule; the size is the largest of any member's."""
        calls = list(calls_of(_met(call, wire), call.group))
        calls[call.rank] = call  # which also knows its line
        for other in calls[1:]:
            check_agrees(other, calls[0])
        perform(self._choice, [call], wire, calls)
        return max(c.count for c in calls)

    def _send(self, call: Call, wire: GlooWire) -> int:
        under_way = [
            wire.send(call.rank, call.root, call.tag, data, Lane.MESSAGE) for data in (notice(call), call.input) if data.numel()
        ]
        for transfer in under_way:
            transfer.wait()
        return call.count

    def _receive(self, call: Call, wire: GlooWire) -> int:
        words = torch.empty_like(notice(call))
        wire.receive(call.root, call.rank, call.tag, words, Lane.MESSAGE).wait()
        check_message(call_of(words, call.group, call.root), call)
        if call.output.numel():
            wire.receive(call.root, call.rank, call.tag, call.output, Lane.MESSAGE).wait()
        with paused():
            call.deliver()
        return call.count


def _await(done: threading.Event, timeout_s: float | None = None) -> None:
    done.wait(timeout_s)


def _met(call: Call, wire: GlooWire) -> Tensor:
    """[N, notice_size] every member's notice; the group's rank 0 collects them and gives all to all."""
    mine, n = notice(call), len(call.group.ranks)
    table = mine.repeat(n, 1)
    others = range(1, n)
    if call.rank == 0:
        for arrival in [wire.receive(r, 0, 0, table[r], Lane.MEETING) for r in others]:
            arrival.wait()
        for departure in [wire.send(0, r, 0, table, Lane.MEETING) for r in others]:
            departure.wait()
    else:
        departure = wire.send(call.rank, 0, 0, mine, Lane.MEETING)
        wire.receive(0, call.rank, 0, table, Lane.MEETING).wait()
        departure.wait()
    return table


class Ended(NamedTuple):
    """How one rank's program ended."""

    how: str  # "done", "failed", "broken" by an exception not ours, or "lost" where another rank is the cause
    value: Any
    notes: Notes | None
    error: BaseException | None


@dataclass(eq=False, slots=True)
class Job:
    """What every process of a job is given: call it with the rank to be, and keep it until the whole job has ended.

    Args:
        program: Called with the rank.
        n_ranks: Of the job.
        choice: Which algorithm serves each operation.
        host: Where the store is that all ranks share.
        port: Of the store.
        timeout_s: A rank that is silent for so long counts as gone.
    """

    program: Callable[[int], Any]
    n_ranks: int
    choice: Choice
    host: str
    port: int
    timeout_s: float
    _kept: Links | None = field(default=None, repr=False)  # others may still be reading what was sent

    @starts_rank
    def __call__(self, rank: int, host: str) -> Ended:
        """Be a rank; `host` is the address of this machine that the others reach it by."""
        store, board = reach_store(self.host, self.port), reach_store(self.host, self.port)
        links = self._kept = Links(store, rank, self.n_ranks, host, self.timeout_s)
        recording = Recording(self.n_ranks)
        apart = Apart(rank, links, self.choice, recording, lambda words: board.set(at_key(rank), words))
        try:
            value = apart.run(self.program, PrefixStore("torch", store), self.n_ranks)
        except BaseException as error:
            return _failure(rank, apart.failure or error)
        board.set(at_key(rank), "after the end of its program")
        return Ended("done", value, recording.of(rank).notes(), None)


def at_key(rank: int) -> str:
    """Where the store holds what a rank is doing."""
    return f"at/{rank}"


def _failure(rank: int, error: BaseException) -> Ended:
    how = "lost" if isinstance(error, UnreachableError) else "failed"
    if not isinstance(error, EmuError | SystemExit):
        how = "broken"
        traceback.print_exception(error, file=sys.stderr)
    return Ended(how, None, None, failed(rank, error))
