"""The execution of a collective on real data, in this process or between ranks; every output element is checked.

Each rank's input is a window of one sequence of small integers, shifted by its rank: it costs no memory, is different on
every rank, and has sums that every dtype holds exactly, in whatever order they are taken.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as fold_all
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from emu.arrays import I64, ramps
from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.reductions import FOLDS, divide, unwritten_mark
from emu.backend.rank.process_group import EmuProcessGroup
from emu.backend.rank.rank_requests import KnownBlocks, RankRequest
from emu.collective.choice import Choice
from emu.collective.operation import ROUTED, Operation, operation
from emu.dtypes import item_bytes
from emu.host_memory import check_free
from emu.study.measure.request import Case, PlacedBench
from emu.units import format_size

Fold = Callable[[Tensor, Tensor], Tensor]
_SHIFT = 7  # elements between the windows of neighbouring ranks
_WIDEST = 2**15
_EXACT_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_EXACT_BITS |= {torch.float8_e4m3fn: 4, torch.float8_e5m2: 3, torch.complex128: 53, torch.complex64: 24}
_INTEGER_OF = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}  # by bytes; 16: two of them


def dtype_of(name: str) -> torch.dtype:
    """Return the torch dtype of a name.

    Raises:
        InputError: The name is none of `emu.dtypes.DTYPES`.
    """
    item_bytes(name)
    found: torch.dtype = getattr(torch, name)
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Payload:
    """The inputs of every rank, empty outputs, and the values that the outputs must get.

    Inputs are windows of one sequence of numbers. `here` are the ranks of this process, which have an output.
    """

    operation: Operation
    block_counts: I64
    reduce: str
    sequence: Tensor
    inputs: tuple[Tensor, ...]  # [N] windows of the sequence; nothing writes them
    here: Sequence[int]  # the ranks that have an output here
    outputs: Tensor  # [ranks here, widest output]

    @staticmethod
    def make(operation: Operation, count: int, dtype: torch.dtype, reduce: str, here: Sequence[int] | None = None) -> "Payload":
        """Make the payload of `count` elements, with outputs for the ranks in `here` (None: all ranks), and return it."""
        here = range(operation.n_ranks) if here is None else here
        counts = operation.block_counts(count)
        sides = (operation.have, operation.want)
        widths = [np.bincount(s[:, 0], counts[s[:, 1]], operation.n_ranks).astype(np.int64) for s in sides]
        sequence = _sequence(operation, int(widths[0].max()), dtype, reduce)
        inputs = tuple(sequence[rank * _SHIFT : rank * _SHIFT + w] for rank, w in enumerate(widths[0].tolist()))
        outputs = torch.full((len(here), int(widths[1].max())), unwritten_mark(dtype, reduce), dtype=dtype)
        return Payload(operation, counts, reduce, sequence, inputs, here, outputs)

    def buffers(self) -> dict[int, Buffers]:
        """Return the input and the output of each rank in `here`."""
        return {rank: Buffers(self.inputs[rank], self._output(rank)) for rank in self.here}

    def _output(self, rank: int) -> Tensor:
        return self.outputs[self.here.index(rank), : int(self.block_counts[self.operation.output_blocks(rank)].sum())]

    def wrong(self) -> int:
        """Return the number of output elements that differ from their expected values."""
        whole = self._reduced() if self.operation.holders > 1 else self.sequence
        start, cut, op = self._starts(), _cutter(whole), self.operation
        wanted = ((rank, op.output_blocks(rank)) for rank in self.here)
        return sum(_different(self._output(rank), cut(start[of], self.block_counts[of])) for rank, of in wanted)

    def _starts(self) -> I64:
        """Return [B] the element at which each block begins.

        If several ranks have the same block, blocks are counted end to end, as in the result of `_reduced`. If only one has it,
        the block begins at its place in `sequence`.
        """
        if self.operation.holders > 1:
            return np.asarray(np.cumsum(self.block_counts) - self.block_counts)
        start = np.empty(self.operation.n_blocks, np.int64)
        start[self.operation.have[:, 1]] = self._block_starts()
        return start

    def _block_starts(self) -> I64:
        """Return [H] the element of `sequence` at which each pair (rank, block) of `operation.have` begins."""
        rank, block = self.operation.have[:, 0].astype(np.int64), self.operation.have[:, 1]
        sizes = self.block_counts[block]
        ends = np.cumsum(sizes)
        width = np.bincount(rank, sizes, self.operation.n_ranks).astype(np.int64)
        return np.asarray(ends - sizes - (np.cumsum(width) - width)[rank] + rank * _SHIFT)

    def _reduced(self) -> Tensor:
        """Return all blocks reduced over the ranks that hold them, computed in exact integers and rounded to the dtype."""
        parts = torch.view_as_real(self.sequence) if self.sequence.is_complex() else self.sequence
        total = self._folded(parts.to(torch.int64), FOLDS[self.reduce])
        held = (
            divide(total.to(parts.dtype, copy=True), self.operation.holders) if self.reduce == "avg" else total.to(parts.dtype)
        )
        return torch.view_as_complex(held) if self.sequence.is_complex() else held

    def _folded(self, exact: Tensor, fold: Fold) -> Tensor:
        """Return all blocks, one after another, each reduced over the ranks that have it."""
        n, holders = self.operation.n_ranks, self.operation.holders
        if len(self.operation.have) == n * self.operation.n_blocks:  # every rank has all of them
            return _over_windows(exact, n, fold)[: len(self.inputs[0])]
        by_block = self._block_starts()[np.argsort(self.operation.have[:, 1], kind="stable")].reshape(-1, holders)
        return fold_all(fold, (exact[torch.from_numpy(ramps(place, self.block_counts))] for place in by_block.T))


def _over_windows(exact: Tensor, n: int, fold: Fold) -> Tensor:
    """Return, at each position, the reduction of n elements with distance _SHIFT, by doubling."""
    some, folded, width = exact, 0, 1
    total = exact[:0]
    while width <= n:
        if n & width:
            more = some[folded * _SHIFT :]
            total = fold(total[: len(more)], more[: len(total)]) if folded else more
            folded += width
        some = fold(some[: -width * _SHIFT], some[width * _SHIFT :])
        width *= 2
    return total


def _cutter(whole: Tensor) -> Callable[[I64, I64], Tensor]:
    """Return a function that cuts blocks, given their starts and sizes, out of a tensor and joins them.

    The result is a view where the pieces lie at a constant stride; else the last result is reused for equal pieces.
    """
    last = np.empty(0, np.int64), np.empty(0, np.int64), whole[:0]

    def cut(start: I64, sizes: I64) -> Tensor:
        nonlocal last
        step = int(start[1] - start[0]) if len(start) > 1 else 0
        if len(start) and step >= 0 and (np.diff(start) == step).all() and (sizes == sizes[0]).all():
            return whole.as_strided((len(start), int(sizes[0])), (step, 1), int(start[0]))
        if not (np.array_equal(start, last[0]) and np.array_equal(sizes, last[1])):
            last = start, sizes, whole[torch.from_numpy(ramps(start, sizes))]
        return last[2]

    return cut


def _different(output: Tensor, expected: Tensor) -> int:
    """Return the number of elements that differ."""
    laid = output.view(expected.shape)
    if np.array_equal(_bits(laid), _bits(expected)):
        return 0
    return int((laid != expected).sum())


def _bits(values: Tensor) -> NDArray[np.signedinteger[Any]]:
    """Return the memory as integers, which NumPy compares in less time than torch compares floats."""
    return np.asarray(values.view(_INTEGER_OF[values.element_size()]).numpy())


def _sequence(operation: Operation, width: int, dtype: torch.dtype, reduce: str) -> Tensor:
    """Return small integers whose reduction over the ranks is exact in `dtype`, in every order."""
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
    """Return random elements with mostly one bit set, so that single ranks decide the result of a bitwise reduction."""
    bits = 1 if dtype is torch.bool else torch.iinfo(dtype).bits - dtype.is_signed
    marked = torch.rand(length, generator=generator) < bits / max(2, holders)
    marks = marked.to(torch.int64) << torch.randint(0, bits, (length,), generator=generator)
    return (marks ^ (2**bits - 1) if reduce in ("and", "min", "product") else marks).to(dtype)


# A function that runs `program(rank)` on every rank with PyTorch's default group; it returns results in rank order.
RankRunner = Callable[[int, Choice, Callable[[int], Any]], list[Any]]


@dataclass(frozen=True, eq=False, slots=True)
class MoveResult:
    """The outcome of a move for one rank, or for all: the wrong elements and the wall-clock time."""

    wrong: int  # elements that are not what they must be
    wall_s: float
    output: Tensor | None = None


@dataclass(frozen=True, slots=True)
class CollectiveMove:
    """A collective on real data that each rank of a run executes, over PyTorch's default process group."""

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
            name, name, pair.input, pair.output, known, [pair.output], reduce=self.reduce, root=self.root, fill_scratch=True
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
    """A callable that moves and checks the data of a bench, in this process or on the ranks of a cluster."""

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
        execute(case.schedule, op, payload.buffers(), counts=payload.block_counts, reduce=request.reduce)
        wall_s = time.perf_counter() - began
        return payload.wrong(), wall_s
