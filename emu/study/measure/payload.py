"""Real data for a collective whose right result is known exactly.

Each rank's input is a window of one sequence of small integers, shifted by its rank: it costs no memory, is different on
every rank, and has sums that every dtype holds exactly, in whatever order they are taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from emu.arrays import I64
from emu.backend.executor.execute import Buffers
from emu.backend.executor.reduction import FOLDS
from emu.backend.rank.call import dtype_name
from emu.collective.operation import Operation
from emu.registry import unknown

_SHIFT = 7  # elements between the windows of neighbouring ranks
_WIDEST = 2**15
_EXACT_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_EXACT_BITS |= {torch.float8_e4m3fn: 4, torch.float8_e5m2: 3, torch.complex128: 53, torch.complex64: 24}
_INTEGERS = (torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
DTYPES = {dtype_name(d): d for d in (*_EXACT_BITS, *_INTEGERS)}


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
        total = self._reduced() if self.operation.holders > 1 else None
        start = self._starts()
        return sum(self._wrong_at(rank, total, start) for rank in self.here)

    def _wrong_at(self, rank: int, total: Tensor | None, start: I64) -> int:
        blocks = self.operation.output_blocks(rank)
        index = _stretches(start[blocks], self.block_counts[blocks])
        expected = (self.sequence if total is None else total)[torch.from_numpy(index)]
        return int((self._output(rank) != expected).sum())

    def _starts(self) -> I64:
        """[B] where each block begins: in the sequence where one rank has it, or in all blocks end to end if several do."""
        if self.operation.holders > 1:
            return np.asarray(np.cumsum(self.block_counts) - self.block_counts)
        start = np.empty(self.operation.n_blocks, np.int64)
        start[self.operation.have[:, 1]] = self._places()
        return start

    def _places(self) -> I64:
        """[H] where in the sequence each rank's block begins that it has."""
        rank, block = self.operation.have[:, 0].astype(np.int64), self.operation.have[:, 1]
        sizes = self.block_counts[block]
        ends = np.cumsum(sizes)
        width = np.bincount(rank, sizes, self.operation.n_ranks).astype(np.int64)
        return np.asarray(ends - sizes - (np.cumsum(width) - width)[rank] + rank * _SHIFT)

    def _reduced(self) -> Tensor:
        """All blocks reduced over the ranks that have them, in exact integers, then as the dtype holds it."""
        parts = torch.view_as_real(self.sequence) if self.sequence.is_complex() else self.sequence
        first, *others = self._shares(parts.to(torch.int64))
        total, fold = first.clone(), FOLDS[self.reduce]
        for share in others:
            fold(total, share, out=total)
        held = total.to(parts.dtype)
        held = held / self.operation.holders if self.reduce == "avg" else held
        return torch.view_as_complex(held) if self.sequence.is_complex() else held

    def _shares(self, exact: Tensor) -> Iterator[Tensor]:
        """What one after another of its holders has of each block, all blocks laid end to end."""
        holders, n = self.operation.holders, self.operation.n_ranks
        if holders == n:  # every rank has all of them
            yield from (exact[rank * _SHIFT :][: len(self.inputs[0])] for rank in range(n))
            return
        by_block = self._places()[np.argsort(self.operation.have[:, 1], kind="stable")].reshape(-1, holders)
        for place in by_block.T:
            yield exact[torch.from_numpy(_stretches(place, self.block_counts))]


def _stretches(start: I64, sizes: I64) -> I64:
    """Indices of stretches that begin at `start`, one after another."""
    ends = np.cumsum(sizes)
    return np.asarray(np.repeat(start - (ends - sizes), sizes) + np.arange(int(sizes.sum())))


def _sequence(operation: Operation, width: int, dtype: torch.dtype, reduce: str) -> Tensor:
    """Small integers whose reduction over the ranks is exact in `dtype`, in every order."""
    length = width + operation.n_ranks * _SHIFT
    generator = torch.Generator().manual_seed(0)
    terms = operation.holders if reduce in ("sum", "avg") else 1
    if dtype is torch.bool or reduce in ("and", "or", "xor"):
        return _flags(length, operation.holders, dtype, reduce, generator)
    limit = 2 ** _EXACT_BITS[dtype] if dtype in _EXACT_BITS else torch.iinfo(dtype).max
    if reduce == "product":
        signs = torch.randint(0, 2, (length,), generator=generator)
        return (signs * 2 - 1 if dtype.is_signed else signs).to(dtype)
    if limit < terms:
        period = -(-terms // limit)  # ones so far apart that no more than `limit` ranks have one at the same place
        return (torch.arange(length) // _SHIFT % period == 0).to(dtype)
    highest = min(limit // terms, _WIDEST)
    if dtype.is_complex:
        parts = torch.randint(0, highest + 1, (length, 2), generator=generator)
        return torch.view_as_complex(parts.to(dtype.to_real()))
    return torch.randint(0, highest + 1, (length,), generator=generator).to(dtype)


def _flags(length: int, holders: int, dtype: torch.dtype, reduce: str, generator: torch.Generator) -> Tensor:
    """Elements of which one bit differs from all others, or none does where many ranks hold them: so that it can decide."""
    bits = 1 if dtype is torch.bool else torch.iinfo(dtype).bits - dtype.is_signed
    marked = torch.rand(length, generator=generator) < bits / max(2, holders)
    marks = marked.to(torch.int64) << torch.randint(0, bits, (length,), generator=generator)
    return (marks ^ (2**bits - 1) if reduce in ("and", "min", "product") else marks).to(dtype)
