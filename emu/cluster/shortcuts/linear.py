"""A product with weights that are a DTensor as one step of autograd, where DTensor dispatches twelve operators, one by one.

What is computed is what DTensor computes, on the same tensors in the same order. It is taken where the weights are cut by
columns or by rows; else DTensor does as ever, and where what is saved goes through hooks: recomputation stops before the last
product that it needs nothing of, which one step of autograd would run first.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

Placements = tuple[Placement, ...]
Linear = Callable[..., Tensor]


class _Cut(NamedTuple):
    """The placements of the tensors of one product along the one axis of a mesh."""

    out: Placements
    gradient: Placements  # of what comes out
    given: Placements  # the gradient of what goes in


def products(linear: Linear) -> Linear:
    """Return what stands in place of `torch.nn.functional.linear`, which is given."""

    def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        hooked = torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
        if type(weight) is DTensor and type(x) is DTensor and bias is None and not hooked:
            cut = _cut(x.placements, weight.placements, x.ndim) if x.device_mesh is weight.device_mesh else None
            if cut is not None and x._local_tensor.is_contiguous():
                return _Product.apply(x, weight, cut, linear)  # type: ignore[no-any-return,no-untyped-call]
        return linear(x, weight, bias)

    return product


def _cut(x: Placements, weight: Placements, dims: int) -> _Cut | None:
    """Return how a product is cut: by columns each rank has all that goes in; by rows its share, and the results are added."""
    if len(x) != 1 or type(weight[0]) is not Shard:
        return None
    if type(x[0]) is Replicate and weight[0].dim == 0:
        return _Cut((Shard(dims - 1),), (Shard(dims - 1),), (Partial(),))
    if type(x[0]) is Shard and x[0].dim == dims - 1 and weight[0].dim == 1:
        return _Cut((Partial(),), (Replicate(),), x)
    return None


@lru_cache(maxsize=1024)
def _meta(shape: torch.Size, dtype: torch.dtype) -> TensorMeta:
    """Return what a DTensor says of a tensor in C order."""
    strides = [*accumulate((max(1, size) for size in reversed(shape[1:])), mul, initial=1)]
    return TensorMeta(shape, tuple(reversed(strides)), dtype)


def _laid(local: Tensor, like: DTensorSpec, placements: Placements, shape: torch.Size) -> DTensor:
    """Return a DTensor of a shape, in C order, whose local part is given."""
    made: Any = DTensor
    found: DTensor = made(local, DTensorSpec(like.mesh, placements, _meta(shape, local.dtype)), requires_grad=False)
    return found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: DTensor, weight: DTensor, cut: _Cut, linear: Linear) -> DTensor:
        ctx.save_for_backward(x, weight)
        ctx.cut = cut
        shape = torch.Size((*x.shape[:-1], weight.shape[0]))
        return _laid(linear(x._local_tensor, weight._local_tensor), x._spec, cut.out, shape)

    @staticmethod
    def backward(ctx: Any, gradient: DTensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if gradient.placements != ctx.cut.gradient:
            gradient = gradient.redistribute(placements=ctx.cut.gradient)
        rows = gradient._local_tensor.reshape(-1, gradient._local_tensor.size(-1))
        into = of_weight = None
        if _is_wanted(ctx, 1):
            here = x._local_tensor
            of_weight = _laid(rows.t().mm(here.reshape(-1, here.size(-1))), weight._spec, weight.placements, weight.shape)
        if _is_wanted(ctx, 0):
            local = rows.mm(weight._local_tensor).view(x._local_tensor.shape)
            into = _laid(local, x._spec, ctx.cut.given, x.shape)
        return into, of_weight, None, None


def _is_wanted(ctx: Any, at: int) -> bool:
    """Return whether this pass goes on to an input: a backward in two passes asks first for one, and later for the other."""
    if not ctx.needs_input_grad[at]:
        return False
    try:
        return torch._C._will_engine_execute_node(ctx.next_functions[at][0])
    except RuntimeError:  # it does not say it of a leaf whose gradient `autograd.grad` has been asked for
        return True
