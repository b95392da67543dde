"""The movement of real data by a collective, in this process or between ranks; every element is checked."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor

from emu.backend.executor.executor import execute
from emu.backend.rank.process_group import EmuProcessGroup
from emu.backend.rank.rank_requests import KnownBlocks, RankRequest
from emu.collective.algorithm import Choice
from emu.collective.operation import ROUTED, operation
from emu.host_memory import check_free
from emu.study.measure.payload import Payload, dtype_of
from emu.study.measure.request import Case, PlacedBench
from emu.units import format_size

# A function that runs `program(rank)` on every rank with PyTorch's default group; it returns results in rank order.
RankRunner = Callable[[int, Choice, Callable[[int], Any]], list[Any]]


@dataclass(frozen=True, eq=False, slots=True)
class MoveResult:
    """The result of one rank, or of all of them."""

    wrong: int  # elements that are not what they must be
    wall_s: float
    output: Tensor | None = None


@dataclass(frozen=True, slots=True)
class CollectiveMove:
    """One collective on the payload; call it with a rank where PyTorch's default group exists."""

    operation: str
    n_ranks: int
    count: int  # elements of the whole size
    dtype: str = "float32"
    reduce: str = "sum"
    root: int = 0
    keep: bool = False  # the outputs

    def payload(self, *here: int) -> Payload:
        """Return the payload, with outputs of the given ranks, or of all."""
        wanted = operation(self.operation, self.n_ranks, self.root)
        return Payload.make(wanted, self.count, dtype_of(self.dtype), self.reduce, here or None)

    def __call__(self, rank: int) -> MoveResult:
        """Move the data of this rank, and check its output."""
        group, payload = dist.group.WORLD, self.payload(rank)
        assert isinstance(group, EmuProcessGroup)
        call = self._call(payload, rank)
        group.barrier().wait()
        began = time.perf_counter()
        group.submit(call).wait()
        wall_s = time.perf_counter() - began
        return MoveResult(payload.wrong(), wall_s, call.output if self.keep else None)

    def _call(self, payload: Payload, rank: int) -> RankRequest:
        """Return the request of a rank."""
        pair, wanted = payload.buffers()[rank], payload.operation
        sides = wanted.input_blocks(rank), wanted.output_blocks(rank)
        own = min(sides, key=len) if wanted.name in ROUTED else np.union1d(*sides)  # of tokens, those of its own batch
        blocks = own.astype(np.int64)
        known = KnownBlocks(blocks, payload.block_counts[blocks])
        name = self.operation
        return RankRequest(
            name, name, pair.input, pair.output, known, [pair.output], reduce=self.reduce, root=self.root, marked=True
        )


def move(run: RankRunner, choice: Choice, what: CollectiveMove) -> MoveResult:
    """Move the payload among the ranks of `run`; return the wrong elements of all ranks, and the time of the slowest.

    Raises:
        RunError: A rank failed.
    """
    each = run(what.n_ranks, choice, what)
    return MoveResult(sum(m.wrong for m in each), max(m.wall_s for m in each))


@dataclass(frozen=True, slots=True)
class TensorMover:
    """A mover for a bench: it moves all data in this process, or each rank's data by its rank if `run` is given."""

    run: RankRunner | None = None

    def check(self, asked: PlacedBench) -> None:
        """Refuse more data than this host's free memory holds.

        Raises:
            InputError: The message has both sizes.
        """
        n, largest = asked.operation.n_ranks, max(asked.request.sizes)
        # An output a rank, as much scratch where an algorithm relays or adds what its rank does not want, and the engine's own.
        what = f"{n} ranks of {format_size(largest)} take up to"
        check_free("bench", what, 2 * largest * n, "take a smaller size or fewer ranks, or --timing-only")

    def __call__(self, case: Case, size: int) -> tuple[int, float]:
        """Move the data of a size in bytes; return the number of wrong elements, and the seconds that moving took.

        Raises:
            RunError: A rank failed.
        """
        op, request, count = case.asked.operation, case.asked.request, case.asked.elements(size)
        if self.run is not None:
            what = CollectiveMove(op.name, op.n_ranks, count, request.dtype, request.reduce, request.root)
            moved = move(self.run, Choice({op.name: case.algorithm}, {op.name: case.dims}), what)
            return moved.wrong, moved.wall_s
        payload = Payload.make(op, count, dtype_of(request.dtype), request.reduce)
        began = time.perf_counter()
        execute(case.plan, op, payload.buffers(), counts=payload.block_counts, reduce=request.reduce)
        wall_s = time.perf_counter() - began
        return payload.wrong(), wall_s
