"""The requests of a rank: an operation on a group, with its tensors as flat buffers; one function for each kind.

N ranks of the group; an input or output is [elements], contiguous, of one dtype. Tensors are taken by `.data`, so that writes
do not count as changes for autograd, as with PyTorch's own backends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import ReduceOp

from emu.arrays import I64
from emu.backend.rank.source_lines import SourceLine, in_brackets
from emu.dtypes import REALS
from emu.errors import InputError, must_be

REDUCE_OF = {
    ReduceOp.SUM: "sum",
    ReduceOp.PREMUL_SUM: "sum",  # each rank multiplies by its own factor before
    ReduceOp.AVG: "avg",
    ReduceOp.PRODUCT: "product",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "and",
    ReduceOp.BOR: "or",
    ReduceOp.BXOR: "xor",
}


class Members(NamedTuple):
    """A group as named in requests: its name, its ranks in group order, and its axis ("world" or "" if none)."""

    name: str
    ranks: tuple[int, ...]
    axis: str = ""


class KnownBlocks(NamedTuple):
    """The sizes, in elements, of the blocks that this rank knows."""

    block: I64
    elements: I64


NOWHERE = Members("", ())
Copies = tuple[tuple[Tensor, Tensor], ...]  # (caller's tensor, part of the output), copied at the end
ANY = -1  # the peer of a receive that takes the first message to come


@dataclass(frozen=True, eq=False, slots=True)
class RankRequest:
    """A request of one rank; the n-th requests of all members of a group make one call."""

    name: str  # the name in messages: that of the operation, or "barrier"
    operation: str  # an operation of `emu.collective.operation`, or "send" or "recv"
    input: Tensor  # empty where the operation has none on this rank
    output: Tensor
    known: KnownBlocks
    result: list[Tensor]  # the caller's own tensors that hold the answer
    copies: Copies = ()
    reduce: str = "sum"
    root: int = 0  # a group rank: the root of a rooted operation, or the peer of a send or receive
    tag: int = 0
    group: Members = NOWHERE
    rank: int = 0  # the caller's rank in the group
    line: SourceLine | None = None  # the line of the user's program that made the request
    asked_s: float = 0.0  # the time at which the request was made, by this host's monotonic clock
    fill_scratch: bool = False  # True if scratch memory is filled first, so that reading it shows; see `execute`

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of input and output."""
        return self.output.dtype

    @property
    def count(self) -> int:
        """The number of elements of the input or the output, whichever is larger."""
        return max(self.input.numel(), self.output.numel())

    @property
    def global_rank(self) -> int:
        """The caller's rank in the world."""
        return self.group.ranks[self.rank]

    def on(self, group: Members, rank: int, line: SourceLine | None = None, asked_s: float = 0.0) -> "RankRequest":
        """Return a copy of the request, made by `rank` of `group`."""
        return replace(self, group=group, rank=rank, line=line, asked_s=asked_s)

    def deliver(self) -> None:
        """Copy packed results into the caller's tensors."""
        for target, source in self.copies:
            target.copy_(source)

    def describe(self) -> str:
        """Return a text such as `all_reduce (sum) of 8 float32 (train.py:12)`."""
        if self.name == "barrier":
            return self.name + in_brackets(self.line)
        how = f" ({self.reduce})" if self.operation in ("all_reduce", "reduce_scatter", "reduce") else ""
        root = f" from rank {self.root}" if self.operation in ("broadcast", "scatter") else ""
        root = f" to rank {self.root}" if self.operation in ("reduce", "gather") else root
        return f"{self.name}{how}{root} of {self.count} {dtype_name(self.dtype)}{in_brackets(self.line)}"


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a dtype without the module, e.g. `float32`."""
    return str(dtype).removeprefix("torch.")


def all_reduce(tensors: Sequence[Tensor], op: ReduceOp) -> RankRequest:
    """Return a request that reduces tensors in place over all ranks."""
    flat, copies = _in_place("all_reduce", tensors)
    return _request("all_reduce", _scale(flat, op), flat, _all_blocks([flat.numel()]), tensors, copies, reduce=_reduce_name(op))


def barrier() -> RankRequest:
    """Return a barrier request: an all_reduce of one number, as in NCCL."""
    flat = torch.zeros(1, dtype=torch.float32, device="cpu")
    return RankRequest("barrier", "all_reduce", flat, flat, _all_blocks([1]), [flat])


def broadcast(tensors: Sequence[Tensor], root: int, rank: int) -> RankRequest:
    """Return a request that copies the root's tensors to the other ranks."""
    flat, copies = _in_place("broadcast", tensors)
    given = flat if rank == root else flat[:0]
    return _request("broadcast", given, flat, _all_blocks([flat.numel()]), tensors, copies, root=root)


def reduce(tensors: Sequence[Tensor], op: ReduceOp, root: int, rank: int) -> RankRequest:
    """Return a request that reduces tensors to the root; the other ranks' tensors keep their values."""
    flat, copies = _in_place("reduce", tensors)
    made, back = (flat, copies) if rank == root else (flat[:0], ())
    counts, how = _all_blocks([flat.numel()]), _reduce_name(op)
    return _request("reduce", _scale(flat, op), made, counts, tensors, back, reduce=how, root=root)


def all_gather(outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]) -> RankRequest:
    """Return a request that gathers every rank's `inputs` into `outputs[rank]`."""
    counts = [sum(t.numel() for t in of_rank) for of_rank in outputs]
    flat = inputs[0].new_empty(sum(counts))
    result = [t for of_rank in outputs for t in of_rank]
    return _request("all_gather", _pack("all_gather", inputs), flat, _all_blocks(counts), result, _copies_back(result, flat))


def all_gather_single(outputs: Sequence[Tensor], inputs: Sequence[Tensor], n: int) -> RankRequest:
    """Return a request that gathers each input of every rank into the output of the same number, in the order of ranks.

    Args:
        outputs: The outputs, each `n` times as large as the input of its number.
        inputs: The inputs of this rank.
        n: The number of ranks of the group.
    """
    given = _pack("all_gather", inputs)
    counts = _all_blocks([given.numel()] * n)
    flat, copies = _shares("all_gather", outputs, n)
    return _request("all_gather", given, flat, counts, outputs, copies)


def reduce_scatter(outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], op: ReduceOp) -> RankRequest:
    """Return a request that reduces `inputs[0][r]` of all ranks into the output of rank r."""
    given = _scale(_pack("reduce_scatter", inputs[0]), op)
    flat, copies = _in_place("reduce_scatter", outputs)
    counts = _all_blocks([t.numel() for t in inputs[0]])
    return _request("reduce_scatter", given, flat, counts, outputs, copies, reduce=_reduce_name(op))


def reduce_scatter_single(outputs: Sequence[Tensor], inputs: Sequence[Tensor], op: ReduceOp, n: int) -> RankRequest:
    """Return a request that reduces each of `inputs` and leaves the r-th share of it to rank r."""
    for tensor in inputs:
        _check_divides("reduce_scatter", tensor, n)
    given = _pack("reduce_scatter", inputs) if len(inputs) == 1 else torch.cat([t.data.reshape(n, -1) for t in inputs], 1)
    flat, copies = _in_place("reduce_scatter", outputs)
    given, counts = _scale(given.reshape(-1), op), _all_blocks([flat.numel()] * n)
    return _request("reduce_scatter", given, flat, counts, outputs, copies, reduce=_reduce_name(op))


def all_to_all(outputs: Sequence[Tensor], inputs: Sequence[Tensor], rank: int) -> RankRequest:
    """Return a request that sends `inputs[d]` to rank d and receives `outputs[s]` from rank s."""
    flat = inputs[0].new_empty(sum(t.numel() for t in outputs))
    known = _row_and_column([t.numel() for t in inputs], [t.numel() for t in outputs], rank)
    return _request("all_to_all", _pack("all_to_all", inputs), flat, known, outputs, _copies_back(outputs, flat))


def all_to_all_single(
    output: Tensor, given: Tensor, output_splits: Sequence[int], input_splits: Sequence[int], rank: int, n: int
) -> RankRequest:
    """Return a request that cuts `given` along its first dim into a block for each rank and exchanges the blocks.

    Args:
        output: The tensor that receives the blocks.
        given: The tensor to cut.
        output_splits: The number of rows from each rank; empty: equal blocks.
        input_splits: The number of rows to each rank; empty: equal blocks.
        rank: The caller's rank in the group.
        n: The ranks of the group.
    """
    known = _row_and_column(_elements(given, input_splits, n), _elements(output, output_splits, n), rank)
    flat, copies = _in_place("all_to_all", [output])
    return _request("all_to_all", _pack("all_to_all", [given]), flat, known, [output], copies)


def gather(outputs: Sequence[Tensor], tensor: Tensor, root: int, rank: int) -> RankRequest:
    """Return a request that gathers every rank's tensor into the root's outputs (empty elsewhere)."""
    given = _pack("gather", [tensor])
    flat = tensor.new_empty(sum(t.numel() for t in outputs))
    known = _all_blocks([t.numel() for t in outputs]) if rank == root else _one_block(rank, given.numel())
    return _request("gather", given, flat, known, outputs, _copies_back(outputs, flat), root=root)


def scatter(output: Tensor, inputs: Sequence[Tensor], root: int, rank: int) -> RankRequest:
    """Return a request that sends the root's `inputs[r]` (empty elsewhere) to rank r."""
    flat, copies = _in_place("scatter", [output])
    given = _pack("scatter", inputs) if inputs else flat[:0]
    known = _all_blocks([t.numel() for t in inputs]) if rank == root else _one_block(rank, flat.numel())
    return _request("scatter", given, flat, known, [output], copies, root=root)


def send(tensor: Tensor, peer: int, tag: int) -> RankRequest:
    """Return a request that sends a tensor to group rank `peer`."""
    flat = _pack("send", [tensor])
    return _request("send", flat, flat[:0], _all_blocks([flat.numel()]), (), root=peer, tag=tag)


def receive(tensor: Tensor, peer: int, tag: int) -> RankRequest:
    """Return a request that receives a tensor from group rank `peer`, or from `ANY`."""
    flat, copies = _in_place("recv", [tensor])
    return _request("recv", flat[:0], flat, _all_blocks([flat.numel()]), [tensor], copies, root=peer, tag=tag)


def _request(
    operation: str,
    given: Tensor,
    made: Tensor,
    known: KnownBlocks,
    result: Sequence[Tensor],
    copies: Copies = (),
    **how: Any,
) -> RankRequest:
    """Return a request that is named after its operation.

    Args:
        operation: The operation, or "send" or "recv".
        given: The input; it is copied if it overlaps the output in part.
        made: The output.
        known: The elements of those blocks whose sizes this rank knows.
        result: The caller's own tensors that hold the answer.
        copies: The caller's tensors, each with the part of the output that is copied into it at the end.
        **how: Other fields of a `RankRequest`, such as `reduce` and `root`.
    """
    return RankRequest(operation, operation, _without_overlap(given, made), made, known, list(result), copies, **how)


def check_written(made: RankRequest) -> None:
    """Check that no two elements of the result tensors share memory.

    Raises:
        InputError: a tensor that repeats its elements, or two tensors that overlap.
    """
    if len(made.result) == 1 and made.result[0].is_contiguous():  # the usual case
        return
    spans = []
    for tensor in made.result:
        if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
            shape = list(tensor.shape)
            raise must_be(made.name, "tensors", "of elements of their own", f"{shape} that repeats some", "clone it first")
        if tensor.numel() and tensor.is_contiguous() and not isinstance(tensor, FakeTensor):
            spans.append((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes))
    spans.sort()
    if any(end > start for (_, end), (start, _) in pairwise(spans)):
        raise InputError(f"{made.name}: two of the tensors that are written share memory; give each its own")


def _reduce_name(op: Any) -> str:
    kind = getattr(op, "op", op)
    if kind not in REDUCE_OF:
        known = ", ".join(REDUCE_OF.values())
        raise NotImplementedError(f"emu: reduce operation {kind.name} is not emulated; take one of {known}")
    return REDUCE_OF[kind]


def _scale(given: Tensor, op: Any) -> Tensor:
    """Return the input times the rank's own factor, if the reduce operation has one.

    Raises:
        InputError: it has one, and the dtype is none of those that PyTorch takes then.
    """
    if getattr(op, "op", op) != ReduceOp.PREMUL_SUM:
        return given
    if dtype_name(given.dtype) not in REALS:
        raise must_be(
            "_make_nccl_premul_sum", "dtype", f"one of {', '.join(REALS)}", dtype_name(given.dtype), "cast the tensor"
        )
    factor = op.__getstate__()[1]
    return given * (factor.to(given.dtype) if isinstance(factor, Tensor) else factor)


def _check(where: str, tensors: Sequence[Tensor]) -> None:
    dtypes = {t.dtype for t in tensors}
    if len(dtypes) != 1:
        raise must_be(where, "tensors", "one or more of one dtype", sorted(map(dtype_name, dtypes)), "call it once a dtype")
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.device.type != "cpu":
            kind = f"{tensor.layout} on {tensor.device}"
            raise must_be(where, "tensors", "dense and on the CPU", kind, "emulated NPUs compute on the CPU")


def _pack(where: str, tensors: Sequence[Tensor]) -> Tensor:
    """Return all elements of the tensors in one flat tensor; a view if there is one contiguous tensor."""
    _check(where, tensors)
    flat = [t.data.contiguous().view(-1) for t in tensors]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _in_place(where: str, tensors: Sequence[Tensor]) -> tuple[Tensor, Copies]:
    """Return the packed tensors, and the copies that bring written values back into the tensors."""
    flat = _pack(where, tensors)
    if len(tensors) == 1 and tensors[0].is_contiguous():
        return flat, ()
    return flat, _copies_back(tensors, flat)


def _copies_back(tensors: Sequence[Tensor], flat: Tensor) -> Copies:
    pieces = torch.split(flat, [t.numel() for t in tensors]) if tensors else ()
    return tuple((t.data, piece.view(t.shape)) for t, piece in zip(tensors, pieces, strict=True))


def _shares(where: str, outputs: Sequence[Tensor], n: int) -> tuple[Tensor, Copies]:
    """Return one output buffer with N shares for each tensor, and the copies back into the tensors."""
    if len(outputs) == 1:
        return _in_place(where, outputs)
    _check(where, outputs)
    for tensor in outputs:
        _check_divides(where, tensor, n)
    widths = [t.numel() // n for t in outputs]
    flat = outputs[0].new_empty(n, sum(widths))
    pieces = torch.split(flat, widths, dim=1)
    return flat.view(-1), tuple((t.data.view(n, -1), p) for t, p in zip(outputs, pieces, strict=True))


def _without_overlap(given: Tensor, output: Tensor) -> Tensor:
    """Return the input, copied if it overlaps the output without being equal to it."""
    if given.untyped_storage()._cdata != output.untyped_storage()._cdata or given.numel() == 0:
        return given
    low, high = given.storage_offset(), given.storage_offset() + given.numel()
    first, last = output.storage_offset(), output.storage_offset() + output.numel()
    same = (low, high) == (first, last)
    return given if same or high <= first or last <= low else given.clone()


def _all_blocks(counts: Sequence[int]) -> KnownBlocks:
    return _known_blocks(tuple(counts))


@lru_cache(maxsize=1024)
def _known_blocks(counts: tuple[int, ...]) -> KnownBlocks:
    """Return a `KnownBlocks` of the given counts; equal counts share one cached object."""
    known = KnownBlocks(np.arange(len(counts)), np.asarray(counts, np.int64))
    for column in known:
        column.setflags(write=False)
    return known


def _one_block(rank: int, count: int) -> KnownBlocks:
    return KnownBlocks(np.array([rank]), np.array([count]))


def _row_and_column(row: Sequence[int], column: Sequence[int], rank: int) -> KnownBlocks:
    """Return the blocks of an all_to_all, out of N x N, that this rank sends or receives."""
    others = np.arange(len(row))
    return KnownBlocks(
        np.concatenate((rank * len(row) + others, others * len(row) + rank)), np.array([*row, *column], np.int64)
    )


def _elements(tensor: Tensor, splits: Sequence[int], n: int) -> list[int]:
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % n:
            raise InputError(f"all_to_all: {rows} rows do not divide by {n} ranks; give the split sizes")
        return [tensor.numel() // n] * n
    if len(splits) != n or sum(splits) != rows:
        raise must_be("all_to_all", "split sizes", f"{n} numbers that add up to {rows} rows", list(splits))
    width = tensor.numel() // rows if rows else 0
    return [s * width for s in splits]


def _check_divides(where: str, tensor: Tensor, n: int) -> None:
    if tensor.numel() % n:
        raise InputError(f"{where}: {tensor.numel()} elements do not divide by {n} ranks")
