"""Where the ranks of a job run, as a protocol; and how a request is carried out once its members' calls are known."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TextIO, TypeVar

import numpy as np

from emu.arrays import I64
from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.wire import GlooWire
from emu.backend.rank.call import ANY, Call, dtype_name
from emu.backend.rank.count import pause_counting
from emu.backend.rank.notes import Notes
from emu.cluster.ends import RankExit
from emu.cluster.own.own import Own
from emu.collective.algorithm import Choice, Request, Served, schedule
from emu.collective.operation import Operation, operation
from emu.errors import RunError
from emu.trace.trace import Trace

T = TypeVar("T")
MESSAGES = ("send", "recv")


class Ranks(Protocol):
    """The ranks of one job that are in this process, as a program finds them."""

    n_ranks: int  # of the job

    def run(self, program: Callable[[int], T]) -> list[T]:
        """Run `program(rank)` on every rank here, with PyTorch's default group made; the results in rank order."""

    def run_bare(self, program: Callable[[int], T]) -> list[T]:
        """As `run`, but the program makes the default group itself, by `join`."""

    def join(self, rank: int, n_ranks: int | None = None) -> None:
        """Make PyTorch's default group, on the thread of `rank`; of the first `n_ranks`, or of all."""

    def await_threads(self) -> None:
        """Wait for the threads that the calling rank has started, as Python does when a program has come to its end."""

    def streams(self, rank: int) -> tuple[TextIO, TextIO] | None:
        """Where what a rank prints goes, if not to the streams of this process."""


Make = Callable[[Sequence[Own]], Ranks]
Program = Callable[[Make], list[Any]]  # run on ranks that are made with what else is each rank's own


class Performed(NamedTuple):
    """What came of a program."""

    values: list[Any]  # in rank order; none where a rank has left with a code
    notes: Sequence[Notes]
    left: RankExit | None = None


class Cluster(Protocol):
    """Runs jobs, one after another."""

    def run(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> list[T]:
        """Run `program(rank)` on every rank, with PyTorch's default group made; the results in rank order."""

    def record(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> tuple[list[T], Trace]:
        """As `run`, with the trace of what ran."""

    def perform(self, n_ranks: int, choice: Choice, program: Program) -> Performed:
        """As `record`, of a program that says itself how ranks are made, and that may leave with a code."""


class Agreed(NamedTuple):
    """What is known of a request once all that take part have called: as it can travel between processes."""

    size: int  # elements of the largest buffer of any member
    counts: I64  # [B] elements of each block of a collective
    served: Served | None  # by which algorithm; None: a message
    source: int = ANY  # of a message: the group rank that sends it
    instance: int = 0  # of a message: which one of that rank's to this one, under its tag


def agree(choice: Choice, calls: Sequence[Call], instance: int) -> Agreed:
    """Settle how a request is carried out.

    Args:
        choice: Which algorithm serves it.
        calls: Of all members in group-rank order, or of sender and receiver; their data is not looked at.
        instance: The place of the first of them.

    Raises:
        RunError: the members do not agree on the size of a block.
    """
    first = calls[0]
    size = max(c.count for c in calls)
    if first.operation in MESSAGES:
        return Agreed(size, np.array([size]), None, first.rank, instance)
    what = operation(first.operation, len(first.group.ranks), first.root)
    request = Request(what.name, first.group.ranks, what.root, size, dtype_name(first.dtype), axis=first.group.axis)
    return Agreed(size, _block_counts(what, calls), choice.served(request))


def carry_out(agreed: Agreed, calls: Sequence[Call], wire: GlooWire | None = None) -> None:
    """Do a request for the members that are here.

    Args:
        agreed: How.
        calls: Of the members here, in group-rank order.
        wire: To the members elsewhere; None: all are here.
    """
    with pause_counting():
        if agreed.served is None:
            _pass_on(calls, wire, agreed.source)
        else:
            _execute(agreed, agreed.served, calls, wire)
        for call in calls:
            call.deliver()


def _pass_on(calls: Sequence[Call], wire: GlooWire | None, source: int) -> None:
    if wire is None:
        sent, received = sorted(calls, key=lambda call: MESSAGES.index(call.operation))
        received.output.copy_(sent.input)
        return
    (call,) = calls
    if call.count and call.operation == "send":
        wire.send(call.rank, call.root, 0, call.input).wait()
    elif call.count:
        wire.receive(source, call.rank, 0, call.output).wait()


def _execute(agreed: Agreed, served: Served, calls: Sequence[Call], wire: GlooWire | None) -> None:
    first, n = calls[0], len(calls[0].group.ranks)
    what = operation(first.operation, n, first.root)
    chosen = schedule(what.name, served.algorithm, n, what.root, served.dims)
    buffers = {c.rank: Buffers(c.input, c.output) for c in calls}
    execute(chosen, what, buffers, counts=agreed.counts, reduce=first.reduce, wire=wire, marked=first.marked)


def _block_counts(what: Operation, calls: Sequence[Call]) -> I64:
    """[B] elements of each block, as the members tell; 0 where none here knows."""
    counts = np.full(what.n_blocks, -1, np.int64)
    for i, call in enumerate(calls):
        if i and call.known is calls[i - 1].known:
            continue
        block, count = call.known
        told = counts[block]
        differs = np.flatnonzero((told >= 0) & (told != count))
        if len(differs):
            at = differs[0]
            other = next(c for c in calls[:i] if block[at] in c.known.block)
            raise RunError(
                f"mismatch on {place(call)}: block {block[at]} of {what.n_blocks} has {count[at]} elements in "
                f"{call.describe()} of rank {call.global_rank}, and {told[at]} in {other.describe()} of rank "
                f"{other.global_rank}; let the sizes agree"
            )
        counts[block] = count
    return np.maximum(counts, 0)


def check_agrees(call: Call, first: Call) -> None:
    """Refuse a call that is not what the first member to arrive asked for.

    Raises:
        RunError: another operation, root, reduce operation, dtype or (where all must have the same) size.
    """
    same = (call.name, call.root, call.reduce, call.dtype) == (first.name, first.root, first.reduce, first.dtype)
    if same and (call.operation not in _EQUAL_SIZES or call.count == first.count):
        return
    raise RunError(
        f"mismatch on {place(call)}: rank {call.global_rank} calls {call.describe()}, "
        f"rank {first.global_rank} {first.describe()}; every rank must make the same calls in the same order"
    )


_EQUAL_SIZES = frozenset({"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"})


def place(call: Call) -> str:
    """The group as messages name it: its axis, else its ranks."""
    ranks = call.group.ranks
    listed = ", ".join(map(str, ranks)) if len(ranks) <= 8 else f"{ranks[0]}, {ranks[1]}, ... {ranks[-1]}"
    return f"group {call.group.axis or call.group.name} (ranks {listed})"
