"""The memory addresses of buffers: whether they lie at a constant stride, and whether they overlap."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from emu.arrays import I64, Bool
from emu.backend.executor.schedule_cells import INPUT, MEMORY, OUTPUT, REGIONS
from emu.collective.operation import Operation
from emu.errors import InputError


def buffer_addresses(
    n_participants: int, inputs: Mapping[int, Tensor], outputs: Mapping[int, Tensor]
) -> tuple[I64, list[Tensor]]:
    """Return the address of each participant's regions, and the memories to which addresses refer.

    Buffers that lie at a constant stride share one memory.

    Args:
        n_participants: The number of participants, P.
        inputs: The input of each rank of this process.
        outputs: The output of each of these ranks.

    Returns:
        [regions, P] the addresses, as `MEMORY` in `schedule_cells` defines them; and the memories.
    """
    memories = [torch.empty(0)] * REGIONS
    steps = []
    for region, tensors in ((INPUT, inputs), (OUTPUT, outputs)):
        every = list(tensors.values())
        steps.append(stride(every, read_only=region == INPUT))
        if steps[-1] is None:
            memories.extend(every)
        else:
            memories[region] = every[0]
    in_place = tuple(r for r, given in inputs.items() if given.numel() and given.data_ptr() == outputs[r].data_ptr())
    return _address_table(n_participants, tuple(inputs), tuple(steps), in_place), memories


@lru_cache(maxsize=1024)
def _address_table(
    n_participants: int, ranks: tuple[int, ...], steps: tuple[int | None, ...], in_place: tuple[int, ...]
) -> I64:
    """Return [regions, P] the address of each region of each participant, as `MEMORY` in `schedule_cells` defines addresses.

    Args:
        n_participants: The number of participants, P.
        ranks: The ranks whose buffers these are.
        steps: The elements from one rank's buffer to the next, of inputs and of outputs; None: each is a memory of its own.
        in_place: The ranks whose output is their input.
    """
    where = np.tile(np.arange(REGIONS)[:, None] * MEMORY, n_participants)
    n_memories = REGIONS
    for region, step in zip((INPUT, OUTPUT), steps, strict=True):
        if step is not None:
            where[region, ranks] += np.arange(len(ranks)) * step
            continue
        where[region, ranks] = (np.arange(len(ranks)) + n_memories) * MEMORY
        n_memories += len(ranks)
    where[INPUT, in_place] = where[OUTPUT, in_place]
    where.setflags(write=False)  # the cache gives it to all callers
    return where


def stride(tensors: Sequence[Tensor], *, read_only: bool = False) -> int | None:
    """Return the stride in elements if the tensors lie in one storage at a constant stride; None otherwise.

    Tensors that are only read may overlap.
    """
    storage = tensors[0].untyped_storage().data_ptr()
    if len(tensors) < 2 or any(t.untyped_storage().data_ptr() != storage or not t.numel() for t in tensors):
        return None
    steps = {int(b.storage_offset()) - int(a.storage_offset()) for a, b in pairwise(tensors)}
    step = steps.pop()
    return None if steps or step < (1 if read_only else tensors[0].numel()) else step


def ranks_to_copy(operation: Operation, inputs: Mapping[int, Tensor], outputs: Mapping[int, Tensor], sizes: I64) -> list[int]:
    """Return the ranks whose output overlaps their input, but not each block with itself: these need a copy of the input.

    Args:
        operation: The operation of the buffers.
        inputs: The inputs of the ranks of this process.
        outputs: The outputs of the same ranks.
        sizes: [B] elements of each block.

    Raises:
        InputError: a rank's output overlaps a buffer of another rank.
    """
    if _all_apart(operation, inputs, outputs):
        return []
    ranks = list(outputs)
    low, high = _span(outputs)
    order = np.flatnonzero(low < high)
    order = order[np.argsort(low[order])]
    low, high = low[order], high[order]
    _refuse(operation, ranks, order[:-1], order[1:], high[:-1] > low[1:])
    first, last = _span(inputs)
    at, end = np.searchsorted(high, first, side="right"), np.searchsorted(low, last)
    met = np.flatnonzero((at < end) & (first < last))
    _refuse(operation, ranks, order[at[met]], met, order[at[met]] != met)
    _refuse(operation, ranks, order[end[met] - 1], met, order[end[met] - 1] != met)
    own = [ranks[i] for i in met.tolist()]
    return [r for r in own if not _each_over_itself(operation, r, inputs[r], outputs[r], sizes)]


def _all_apart(operation: Operation, inputs: Mapping[int, Tensor], outputs: Mapping[int, Tensor]) -> bool:
    """Return whether no two buffers share memory, except an input that is also the output of its rank."""
    spans = []
    for rank, made in outputs.items():
        given = inputs[rank]
        at, end = made.data_ptr(), made.data_ptr() + made.nbytes
        spans.append((at, end))
        if not _is_one(operation, rank, given, made):
            spans.append((given.data_ptr(), given.data_ptr() + given.nbytes))
    spans.sort()
    return all(end <= start for (_, end), (start, _) in pairwise(spans))


def _is_one(operation: Operation, rank: int, given: Tensor, made: Tensor) -> bool:
    """Return whether input and output are the same memory with the same blocks."""
    if given.data_ptr() != made.data_ptr():
        return False
    return np.array_equal(operation.input_blocks(rank), operation.output_blocks(rank))


def _span(tensors: Mapping[int, Tensor]) -> tuple[I64, I64]:
    """Return the address of the first byte of each tensor, and the address after its last byte."""
    low = np.array([t.data_ptr() for t in tensors.values()], np.int64)
    return low, low + np.array([t.nbytes for t in tensors.values()], np.int64)


def _refuse(operation: Operation, ranks: list[int], one: I64, other: I64, wrong: Bool) -> None:
    if wrong.any():
        pair = sorted(ranks[side[wrong][0]] for side in (one, other))
        raise InputError(
            f"{operation.name}: buffers of ranks {pair[0]} and {pair[1]} share memory that is written; give each rank its own"
        )


def _each_over_itself(operation: Operation, rank: int, given: Tensor, made: Tensor, sizes: I64) -> bool:
    """Return whether each block in memory shared by input and output has the same position in both."""
    if _is_one(operation, rank, given, made):
        return True
    has, wants = operation.input_blocks(rank), operation.output_blocks(rank)
    starts = [t.data_ptr() + (np.cumsum(sizes[b]) - sizes[b]) * t.element_size() for t, b in ((given, has), (made, wants))]
    both, at, place = np.intersect1d(has, wants, assume_unique=True, return_indices=True)
    shared = min(given.data_ptr() + given.nbytes, made.data_ptr() + made.nbytes) - max(given.data_ptr(), made.data_ptr())
    return int(sizes[both[starts[0][at] == starts[1][place]]].sum()) * given.element_size() == shared
