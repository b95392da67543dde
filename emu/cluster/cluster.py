"""Where the ranks of a job run, as a protocol; and how a request is carried out once its members' calls are known."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from emu.arrays import I64
from emu.backend.executor.execute import Buffers, execute
from emu.backend.executor.run import Wire
from emu.backend.rank.call import Call, dtype_name
from emu.backend.rank.count import paused
from emu.backend.rank.lines import caller, in_brackets, raised_at
from emu.collective.algorithm import Choice, Request
from emu.collective.operation import Operation, operation
from emu.errors import EmuError, RunError
from emu.trace.trace import Trace

T = TypeVar("T")


class Cluster(Protocol):
    """Runs jobs, one after another."""

    def run(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> list[T]:
        """Run `program(rank)` on every rank, with PyTorch's default group made; the results in rank order."""

    def record(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> tuple[list[T], Trace]:
        """As `run`, with the trace of what ran."""


def perform(choice: Choice, calls: Sequence[Call], wire: Wire | None = None, elsewhere: Sequence[Call] = ()) -> None:
    """Carry out one collective for the members that are here.

    Args:
        choice: Which algorithm serves it.
        calls: Of the members here, in group-rank order.
        wire: To the members elsewhere.
        elsewhere: What those have called; the data of their tensors is not looked at.

    Raises:
        RunError: the members do not agree on the size of a block.
    """
    first = calls[0]
    what = operation(first.operation, len(first.group.ranks), first.root)
    every = [*calls, *elsewhere]
    size = max(c.count for c in every)
    schedule = choice.schedule(Request(what.name, first.group.ranks, what.root, size, dtype_name(first.dtype)))
    counts = _block_counts(what, every)
    with paused():
        buffers = {c.rank: Buffers(c.input, c.output) for c in calls}
        execute(schedule, what, buffers, counts=counts, reduce=first.reduce, wire=wire)
        for call in calls:
            call.deliver()


def _block_counts(what: Operation, calls: Sequence[Call]) -> I64:
    """[B] elements of each block, as the members tell; 0 where none here knows."""
    counts = np.full(what.n_blocks, -1, np.int64)
    for i, call in enumerate(calls):
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


def failed(rank: int, error: BaseException) -> BaseException:
    """What the job fails of when `error` ends a rank's program: our own errors as they are, others told in one line."""
    if isinstance(error, SystemExit):
        return error
    if not isinstance(error, EmuError):
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        words = f"rank {rank}: {type(error).__name__}" + (f": {said}" if said else "")
        cause, error = error, RunError(words + in_brackets(raised_at(error) or caller()))
        error.__cause__ = cause
    error.rank = rank
    return error
