"""Real data for a collective whose right result is known exactly.

Each rank's input is a window of one sequence of small integers, shifted by its rank: it costs no memory, is different on
every rank, and has sums that every dtype holds exactly, in whatever order they are taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from emu.arrays import I64
from emu.backend.execute import Buffers
from emu.collective.operation import Operation
from emu.registry import unknown

_SHIFT = 7  # elements between the windows of neighbouring ranks
_WIDEST = 2**15
_EXACT_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
DTYPES = {str(d).removeprefix("torch."): d for d in _EXACT_BITS} | {
    str(d).removeprefix("torch."): d for d in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
}
REDUCTIONS = ("sum", "avg", "min", "max", "product")


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype of that name.

    Raises:
        InputError: none of `DTYPES`.
    """
    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    return DTYPES[name]


@dataclass(frozen=True, eq=False, slots=True)
class Payload:
    """Inputs and empty outputs of every rank, and what the outputs must become."""

    operation: Operation
    block_counts: I64
    reduce: str
    sequence: Tensor
    inputs: tuple[Tensor, ...]  # [N] windows of the sequence; nothing writes them
    here: Sequence[int]  # the ranks that have an output here
    outputs: Tensor  # [ranks here, widest output]

    @staticmethod
    def make(operation: Operation, count: int, dtype: torch.dtype, reduce: str, here: Sequence[int] | None = None) -> "Payload":
        """Inputs of `count` elements (the operation's size) of `dtype`; outputs of the ranks that are `here`, or of all."""
        here = range(operation.n_ranks) if here is None else here
        counts = operation.block_counts(count)
        sides = (operation.have, operation.want)
        widths = [np.bincount(s[:, 0], counts[s[:, 1]], operation.n_ranks).astype(np.int64) for s in sides]
        sequence = _sequence(operation, int(widths[0].max()), dtype, reduce)
        inputs = tuple(sequence[rank * _SHIFT : rank * _SHIFT + w] for rank, w in enumerate(widths[0].tolist()))
        outputs = torch.full((len(here), int(widths[1].max())), -1 if dtype.is_signed else 255, dtype=dtype)
        return Payload(operation, counts, reduce, sequence, inputs, here, outputs)

    def buffers(self) -> dict[int, Buffers]:
        """Each rank's input and output, of those that are here."""
        return {rank: Buffers(self.inputs[rank], self._output(rank)) for rank in self.here}

    def _output(self, rank: int) -> Tensor:
        return self.outputs[self.here.index(rank), : int(self.block_counts[self.operation.output_blocks(rank)].sum())]

    def wrong(self) -> int:
        """Elements of all ranks here that differ from what they must be."""
        total = self._reduced() if len(self.operation.have) > self.operation.n_blocks else None
        start = self._starts()
        return sum(self._wrong_at(rank, total, start) for rank in self.here)

    def _wrong_at(self, rank: int, total: Tensor | None, start: I64) -> int:
        blocks = self.operation.output_blocks(rank)
        sizes = self.block_counts[blocks]
        ends = np.cumsum(sizes)
        index = np.repeat(start[blocks] - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
        expected = (self.sequence if total is None else total)[torch.from_numpy(index)]
        return int((self._output(rank) != expected).sum())

    def _starts(self) -> I64:
        """[B] where each block begins: in the sequence where one rank has it, in the whole input where all do."""
        rank, block = self.operation.have[:, 0].astype(np.int64), self.operation.have[:, 1]
        sizes = self.block_counts[block]
        ends = np.cumsum(sizes)
        width = np.bincount(rank, sizes, self.operation.n_ranks).astype(np.int64)
        within = ends - sizes - (np.cumsum(width) - width)[rank]
        alone = len(block) == self.operation.n_blocks
        start = np.empty(self.operation.n_blocks, np.int64)
        start[block] = within + (rank * _SHIFT if alone else 0)
        return start

    def _reduced(self) -> Tensor:
        """The whole input reduced over the ranks, in exact integers, then as the dtype holds it."""
        n, width = self.operation.n_ranks, len(self.inputs[0])
        exact = self.sequence.to(torch.int64)
        total = exact[:width].clone()
        for rank in range(1, n):
            window = exact[rank * _SHIFT : rank * _SHIFT + width]
            if self.reduce == "product":
                total.mul_(window)
            elif self.reduce in ("min", "max"):
                torch.__dict__[f"{self.reduce}imum"](total, window, out=total)
            else:
                total.add_(window)
        held = total.to(self.sequence.dtype)
        return held / n if self.reduce == "avg" else held


def _sequence(operation: Operation, width: int, dtype: torch.dtype, reduce: str) -> Tensor:
    """Small integers whose reduction over the ranks is exact in `dtype`, in every order."""
    length = width + operation.n_ranks * _SHIFT
    generator = torch.Generator().manual_seed(0)
    limit = 2 ** _EXACT_BITS[dtype] if dtype in _EXACT_BITS else torch.iinfo(dtype).max
    adds = len(operation.have) > operation.n_blocks and reduce in ("sum", "avg")
    terms = operation.n_ranks if adds else 1
    if reduce == "product":
        signs = torch.randint(0, 2, (length,), generator=generator)
        return (signs * 2 - 1 if dtype.is_signed else signs).to(dtype)
    if limit >= terms:
        return torch.randint(0, min(limit // terms, _WIDEST) + 1, (length,), generator=generator).to(dtype)
    period = -(-terms // limit)  # ones so far apart that no more than `limit` ranks have one at the same place
    return (torch.arange(length) // _SHIFT % period == 0).to(dtype)
