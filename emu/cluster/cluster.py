"""The interface of a cluster, which runs the ranks of a job, and the execution of a call when all members have arrived."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TextIO, TypeVar

import numpy as np

from emu.arrays import I64
from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.wire import GlooWire
from emu.backend.rank.operator_counter import pause_counting
from emu.backend.rank.rank_requests import ANY, RankRequest, dtype_name
from emu.backend.rank.recorded_events import RecordedEvents, merge
from emu.cluster.pace.timeliness import NOT_LATE, Lateness
from emu.cluster.rank_failure import RankExit
from emu.cluster.rank_state.rank_state import RankState
from emu.collective.algorithm import schedule
from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.collective.operation import Operation, operation
from emu.errors import RunError
from emu.trace.trace import Trace

T = TypeVar("T")
MESSAGES = ("send", "recv")


class Ranks(ABC):
    """The ranks of one job that are in this process, as the interface for programs."""

    n_ranks: int  # the ranks of the whole job

    def run(self, program: Callable[[int], T]) -> list[T]:
        """Run `program(rank)` on every rank of this process, with PyTorch's default group; return the results in rank order.

        Raises:
            RunError: a rank failed (its own exception is the cause), a deadlock, requests that do not agree, or a second run.
            SystemExit: a rank ended with a code other than 0.
        """

        def joined(rank: int) -> T:
            self.join(rank)
            return program(rank)

        return self.run_bare(joined)

    @abstractmethod
    def run_bare(self, program: Callable[[int], T]) -> list[T]:
        """Run a program like `run`, but let the program create the default group itself by `join`."""

    @abstractmethod
    def join(self, rank: int, n_ranks: int | None = None) -> None:
        """Make PyTorch's default group on the thread of a rank.

        Args:
            rank: The rank.
            n_ranks: The number of its members, the first ranks; None: all ranks.
        """

    @abstractmethod
    def await_threads(self) -> None:
        """Wait for the threads that the calling rank has started, as Python does at the end of a program."""

    @abstractmethod
    def streams(self, rank: int) -> tuple[TextIO, TextIO] | None:
        """Return the streams to which a rank prints, or None for the streams of this process."""


RankFactory = Callable[[Sequence[RankState]], Ranks]
JobProgram = Callable[[RankFactory], list[Any]]  # runs on ranks that the factory makes, with further state of each rank


class JobResult(NamedTuple):
    """The result of a program on all ranks of a job, or on the ranks of one process."""

    values: list[Any]  # in rank order; empty if a rank exited with a code, or failed
    recorded_events: Sequence[RecordedEvents]  # of each rank, in rank order
    exit: RankExit | None = None  # of a rank that exited with a code
    status: str = "done"  # of one process: "done" or "failed"
    late: Lateness = NOT_LATE  # of one process


class Cluster(ABC):
    """The means to run the ranks of jobs, one job after another: threads, Ray actors, or fake ranks."""

    def run(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> list[T]:
        """Run `program(rank)` on every rank, with PyTorch's default group made; return the results in rank order.

        Raises:
            InputError: fewer than one rank.
            RunError: a rank died or failed, a deadlock, or calls that do not agree; all ranks have been ended.
            SystemExit: a rank exited with a code other than 0.
        """
        return self.run_traced(n_ranks, choice, program)[0]

    def run_traced(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> tuple[list[T], Trace]:
        """Run a program on every rank like `run`, and return its results and the trace of its events."""
        ended = self.run_job(n_ranks, choice, on_every_rank(program))
        if ended.exit is not None:
            raise ended.exit
        return ended.values, merge(ended.recorded_events)

    @abstractmethod
    def run_job(self, n_ranks: int, choice: Choice, program: JobProgram) -> JobResult:
        """Run a program that makes the ranks itself, and whose ranks may exit with a code.

        Args:
            n_ranks: The number of ranks.
            choice: The choice of algorithms.
            program: The program.

        Returns:
            The values and the recorded events of the ranks.
        """


def on_every_rank(program: Callable[[int], Any]) -> JobProgram:
    """Return a program that runs `program(rank)` on every rank, with PyTorch's default group made."""
    return partial(_run_on_every_rank, program)


def _run_on_every_rank(program: Callable[[int], Any], make_ranks: RankFactory) -> list[Any]:
    return make_ranks(()).run(program)


class Agreement(NamedTuple):
    """The sizes on which all members of a call agree, known when all have requested it; it can be sent between processes."""

    size: int  # elements of the largest buffer of any member
    counts: I64  # [B] elements of each block of a collective
    served: AlgorithmOnDims | None  # the algorithm of a collective; None for a message
    source: int = ANY  # the group rank that sends a message
    instance: int = 0  # the number of a message among those of its sender, receiver and tag


def settle_call(choice: Choice, requests: Sequence[RankRequest], instance: int) -> Agreement:
    """Return the agreed form of a call: the sizes of its blocks, and the algorithm that serves it.

    Args:
        choice: The choice of algorithms.
        requests: The requests of all members in group-rank order, or of sender and receiver; their data is not used.
        instance: The instance number of the first request.

    Raises:
        RunError: the members do not agree on the size of a block.
    """
    first = requests[0]
    size = max(c.count for c in requests)
    if first.operation in MESSAGES:
        return Agreement(size, np.array([size]), None, first.rank, instance)
    what = operation(first.operation, len(first.group.ranks), first.root)
    request = Request(what.name, first.group.ranks, what.root, size, dtype_name(first.dtype), axis=first.group.axis)
    return Agreement(size, _block_counts(what, requests), choice.algorithm_for(request))


def carry_out(agreed: Agreement, requests: Sequence[RankRequest], wire: GlooWire | None = None) -> None:
    """Execute a call for the members of this process.

    Args:
        agreed: The agreed form of the call.
        requests: The requests of the members of this process, in group-rank order.
        wire: The wire to members of other processes; None: there are none.
    """
    with pause_counting():
        if agreed.served is None:
            _move_message(requests, wire, agreed.source)
        else:
            _execute(agreed, agreed.served, requests, wire)
        for request in requests:
            request.deliver()


def _move_message(requests: Sequence[RankRequest], wire: GlooWire | None, source: int) -> None:
    """Execute a send and its receive: copy the data, or send or receive it over the wire."""
    if wire is None:
        sent, received = sorted(requests, key=lambda request: MESSAGES.index(request.operation))
        received.output.copy_(sent.input)
        return
    (request,) = requests
    if request.count and request.operation == "send":
        wire.send(request.rank, request.root, 0, request.input).wait()
    elif request.count:
        wire.receive(source, request.rank, 0, request.output).wait()


def _execute(agreed: Agreement, served: AlgorithmOnDims, requests: Sequence[RankRequest], wire: GlooWire | None) -> None:
    first, n = requests[0], len(requests[0].group.ranks)
    what = operation(first.operation, n, first.root)
    chosen = schedule(what.name, served.algorithm, n, what.root, served.dims)
    buffers = {c.rank: Buffers(c.input, c.output) for c in requests}
    execute(chosen, what, buffers, counts=agreed.counts, reduce=first.reduce, wire=wire, fill_scratch=first.fill_scratch)


def _block_counts(what: Operation, requests: Sequence[RankRequest]) -> I64:
    """Return [B] the elements of each block as the members state them; 0 for blocks of unknown size."""
    counts = np.full(what.n_blocks, -1, np.int64)
    for i, request in enumerate(requests):
        if i and request.known is requests[i - 1].known:
            continue
        block, count = request.known
        stated = counts[block]
        differs = np.flatnonzero((stated >= 0) & (stated != count))
        if len(differs):
            at = differs[0]
            other = next(c for c in requests[:i] if block[at] in c.known.block)
            raise RunError(
                f"mismatch on {group_name(request)}: block {block[at]} of {what.n_blocks} has {count[at]} elements in "
                f"{request.describe()} of rank {request.global_rank}, and {stated[at]} in {other.describe()} of rank "
                f"{other.global_rank}; make the sizes agree"
            )
        counts[block] = count
    return np.maximum(counts, 0)


def check_agrees(request: RankRequest, first: RankRequest) -> None:
    """Check that a request fits the request of the first member to arrive.

    Raises:
        RunError: another operation, root, reduce operation, dtype, or (where sizes must be equal) size.
    """
    same = (request.name, request.root, request.reduce, request.dtype) == (first.name, first.root, first.reduce, first.dtype)
    if same and (request.operation not in _EQUAL_SIZES or request.count == first.count):
        return
    raise RunError(
        f"mismatch on {group_name(request)}: rank {request.global_rank} calls {request.describe()}, "
        f"rank {first.global_rank} {first.describe()}; every rank must make the same calls in the same order"
    )


_EQUAL_SIZES = frozenset({"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"})


def group_name(request: RankRequest) -> str:
    """Return the group's name in messages: its axis and its ranks."""
    ranks = request.group.ranks
    listed = ", ".join(map(str, ranks)) if len(ranks) <= 8 else f"{ranks[0]}, {ranks[1]}, ... {ranks[-1]}"
    return f"group {request.group.axis or request.group.name} (ranks {listed})"
