"""The sum of sparse tensors over all ranks, as gloo has it: what each rank holds is gathered by all, and added up there.

Three requests are made: how much each rank holds, the places of it, and the values. The first is waited for at once, as the
size of the others follows from it.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from emu.backend.rank.count import paused
from emu.backend.rank.work import Together, Work
from emu.errors import must_be

_DIMS = 4  # of each kind, at most
Gather = Callable[[list[list[Tensor]], list[Tensor]], Work]


class Summed(Together):
    """The requests of a sum; once they are done, the tensor holds it."""

    def __init__(self, works: list[Work], add: Callable[[], Tensor]) -> None:
        super().__init__(works)
        self._add = add
        self._sum: list[Tensor] = []

    def wait(self, *timeout: Any) -> bool:
        """Block until all are done, and add up; raise what the first failed of, if one did."""
        super().wait(*timeout)
        self._sum = self._sum or [self._add()]
        return True

    def get_future(self) -> "torch.futures.Future[Any]":
        """A future of the sum, that is done already."""
        return super().get_future().then(lambda gathered: gathered.wait() and self.wait() and self._sum)

    def is_completed(self) -> bool:
        """Whether the tensor holds the sum."""
        return super().is_completed() and (not self.is_success() or self.wait())

    def result(self) -> list[Tensor]:
        """The tensor, once it holds the sum."""
        return self._sum


def sum_sparse(tensor: Tensor, n: int, gather: Gather) -> Summed:
    """Sum a sparse tensor in place over n ranks; what comes back is waited for as any request.

    Args:
        tensor: In coordinates.
        n: The ranks.
        gather: Gathers a tensor of every rank, whose sizes may differ.

    Raises:
        InputError: more dims than gloo takes, or ranks whose tensors differ in shape.
    """
    with paused():
        given = tensor.data.coalesce()
        indices, values = given.indices(), given.values()
        held = _described(given)
        all_held = [torch.empty_like(held) for _ in range(n)]
    gather([all_held], [held]).wait()
    with paused():
        counts = [_count(held, other, rank) for rank, other in enumerate(all_held)]
        places = [indices.new_empty(given.sparse_dim(), count) for count in counts]
        shares = [values.new_empty(count, *values.shape[1:]) for count in counts]
    works = [gather([places], [indices]), gather([shares], [values])]
    return Summed(works, lambda: _added(tensor, places, shares))


def _added(tensor: Tensor, places: list[Tensor], shares: list[Tensor]) -> Tensor:
    """The tensor, which then holds what all ranks have, one after another."""
    with paused(), torch.no_grad():
        held = [
            torch.sparse_coo_tensor(place, share, tensor.shape, check_invariants=False)
            for place, share in zip(places, shares, strict=True)
        ]
        return tensor.copy_(reduce(torch.add, held).coalesce())  # `.data` of a sparse tensor is another one


def _described(given: Tensor) -> Tensor:
    """[2 * dims + 1] the sizes of its sparse and of its dense dims, 0 where it has no more, and the number of its values."""
    sparse, dense = given.shape[: given.sparse_dim()], given.shape[given.sparse_dim() :]
    if max(len(sparse), len(dense)) > _DIMS:
        shape = f"{len(sparse)} and {len(dense)}"
        raise must_be("all_reduce", "a sparse tensor", f"of {_DIMS} sparse and {_DIMS} dense dims at most", shape)
    sizes = [*sparse, *[0] * (_DIMS - len(sparse)), *dense, *[0] * (_DIMS - len(dense))]
    return torch.tensor([*sizes, given._nnz()])


def _count(own: Tensor, other: Tensor, rank: int) -> int:
    """How many values another rank holds."""
    if not torch.equal(own[:-1], other[:-1]):
        sizes = [size for size in other[:-1].tolist() if size]
        raise must_be("all_reduce", "a sparse tensor", "of one shape on all ranks", f"{sizes} on rank {rank} of the group")
    return int(other[-1])
