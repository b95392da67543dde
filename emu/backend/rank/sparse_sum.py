"""The sum of a sparse tensor over all ranks, as gloo does it: every rank gathers the entries of all, and adds them.

Three requests are made: for the number of entries of each rank, for their places, and for their values. The first is waited for
at once, because the size of the others follows from it.
"""

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from emu.backend.rank.count import pause_counting
from emu.backend.rank.request_work import CoalescedWork, RequestWork
from emu.errors import must_be

_DIMS = 4  # the most dims of each kind


Gather = Callable[[list[list[Tensor]], list[Tensor]], RequestWork]


def sum_sparse(tensor: Tensor, n: int, gather: Gather) -> CoalescedWork:
    """Start the sum of a sparse tensor in place over n ranks, and return its work, which ends when the tensor holds the sum.

    Args:
        tensor: A tensor in coordinate format.
        n: The number of ranks.
        gather: A function that gathers a tensor of every rank; their sizes may differ.

    Raises:
        InputError: more dims than gloo takes, or ranks whose tensors differ in shape.
    """
    with pause_counting():
        given = tensor.data.coalesce()
        indices, values = given.indices(), given.values()
        held = _header(given)
        all_held = [torch.empty_like(held) for _ in range(n)]
    gather([all_held], [held]).wait()
    with pause_counting():
        counts = [_count(held, other, rank) for rank, other in enumerate(all_held)]
        places = [indices.new_empty(given.sparse_dim(), count) for count in counts]
        shares = [values.new_empty(count, *values.shape[1:]) for count in counts]
    works = [gather([places], [indices]), gather([shares], [values])]
    return CoalescedWork(works, lambda: _add_entries(tensor, places, shares))


def _add_entries(tensor: Tensor, places: list[Tensor], shares: list[Tensor]) -> Tensor:
    """Return the tensor, after writing into it the entries of all ranks, one rank after another."""
    with pause_counting(), torch.no_grad():
        held = [
            torch.sparse_coo_tensor(place, share, tensor.shape, check_invariants=False)
            for place, share in zip(places, shares, strict=True)
        ]
        return tensor.copy_(reduce(torch.add, held).coalesce())  # `.data` of a sparse tensor is another one


def _header(given: Tensor) -> Tensor:
    """Return [2 * dims + 1] the sizes of the sparse and of the dense dims, padded with 0, and the number of values."""
    sparse, dense = given.shape[: given.sparse_dim()], given.shape[given.sparse_dim() :]
    if max(len(sparse), len(dense)) > _DIMS:
        shape = f"{len(sparse)} and {len(dense)}"
        raise must_be("all_reduce", "a sparse tensor", f"of {_DIMS} sparse and {_DIMS} dense dims at most", shape)
    sizes = [*sparse, *[0] * (_DIMS - len(sparse)), *dense, *[0] * (_DIMS - len(dense))]
    return torch.tensor([*sizes, given._nnz()])


def _count(own: Tensor, other: Tensor, rank: int) -> int:
    """Return the number of values that another rank holds."""
    if not torch.equal(own[:-1], other[:-1]):
        sizes = [size for size in other[:-1].tolist() if size]
        raise must_be("all_reduce", "a sparse tensor", "of one shape on all ranks", f"{sizes} on rank {rank} of the group")
    return int(other[-1])
