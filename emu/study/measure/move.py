"""Does a collective do its job on real data, in this process or between ranks? Every element is checked."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import psutil
import torch.distributed as dist
from torch import Tensor

from emu.backend.executor.executor import execute
from emu.backend.rank.process_group import EmuProcessGroup
from emu.backend.rank.rank_requests import KnownBlocks, RankRequest
from emu.collective.algorithm import Choice
from emu.collective.operation import ROUTED, operation
from emu.errors import InputError
from emu.study.measure.payload import Payload, dtype_of
from emu.study.measure.request import Asked, Case
from emu.units import format_size

T = TypeVar("T")


class Run(Protocol):
    """Runs `program(rank)` on every rank, with PyTorch's default group made; the results in rank order."""

    def __call__(self, n_ranks: int, choice: Choice, program: Callable[[int], T], /) -> list[T]:
        """Run it."""


@dataclass(frozen=True, eq=False, slots=True)
class Moved:
    """What one rank has got, or all of them."""

    wrong: int  # elements that are not what they must be
    wall_s: float
    output: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One collective on the payload; call it with a rank where PyTorch's default group is made."""

    operation: str
    n_ranks: int
    count: int  # elements of the whole size
    dtype: str = "float32"
    reduce: str = "sum"
    root: int = 0
    keep: bool = False  # the outputs

    def payload(self, *here: int) -> Payload:
        """The data, with outputs of those ranks, or of all."""
        wanted = operation(self.operation, self.n_ranks, self.root)
        return Payload.make(wanted, self.count, dtype_of(self.dtype), self.reduce, here or None)

    def __call__(self, rank: int) -> Moved:
        """Move what this rank has, and check what it gets."""
        group, payload = dist.group.WORLD, self.payload(rank)
        assert isinstance(group, EmuProcessGroup)
        call = self._call(payload, rank)
        group.barrier().wait()
        began = time.perf_counter()
        group.submit(call).wait()
        wall_s = time.perf_counter() - began
        return Moved(payload.wrong(), wall_s, call.output if self.keep else None)

    def _call(self, payload: Payload, rank: int) -> RankRequest:
        pair, wanted = payload.buffers()[rank], payload.operation
        sides = wanted.input_blocks(rank), wanted.output_blocks(rank)
        own = min(sides, key=len) if wanted.name in ROUTED else np.union1d(*sides)  # of tokens, those of its own batch
        blocks = own.astype(np.int64)
        known = KnownBlocks(blocks, payload.block_counts[blocks])
        name = self.operation
        return RankRequest(
            name, name, pair.input, pair.output, known, [pair.output], reduce=self.reduce, root=self.root, marked=True
        )


def move(run: Run, choice: Choice, what: Move) -> Moved:
    """Move the payload, as the choice serves it, among ranks that `run` runs; what is wrong, and the slowest rank's time.

    Raises:
        RunError: a rank failed.
    """
    each = run(what.n_ranks, choice, what)
    return Moved(sum(m.wrong for m in each), max(m.wall_s for m in each))


@dataclass(frozen=True, slots=True)
class TensorMover:
    """Moves the data of a bench: the whole in this process, or each rank's by the rank where a `run` of ranks is given."""

    run: Run | None = None

    def check(self, asked: Asked) -> None:
        """Refuse more data than this host's free memory holds.

        Raises:
            InputError: the message has both sizes.
        """
        n, largest = asked.operation.n_ranks, max(asked.request.sizes)
        # An output a rank, as much scratch where an algorithm relays or adds what its rank does not want, and the engine's own.
        needed, free = 2 * largest * n, psutil.virtual_memory().available
        if needed > free:
            raise InputError(
                f"bench: {n} ranks of {format_size(largest)} take up to {format_size(needed)} of memory, and "
                f"this host has {format_size(free)} free; take a smaller size or fewer ranks, or --timing-only"
            )

    def __call__(self, case: Case, size: int) -> Moved:
        """Move a size in bytes, and check every element.

        Raises:
            RunError: a rank failed.
        """
        op, request, count = case.asked.operation, case.asked.request, case.asked.elements(size)
        if self.run is not None:
            what = Move(op.name, op.n_ranks, count, request.dtype, request.reduce, request.root)
            return move(self.run, Choice({op.name: case.algorithm}, {op.name: case.dims}), what)
        payload = Payload.make(op, count, dtype_of(request.dtype), request.reduce)
        began = time.perf_counter()
        execute(case.plan, op, payload.buffers(), counts=payload.block_counts, reduce=request.reduce)
        wall_s = time.perf_counter() - began
        return Moved(payload.wrong(), wall_s)
