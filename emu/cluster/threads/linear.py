"""A linear layer with DTensor weights as one autograd step, in place of the twelve operators that DTensor runs.

The step computes the same as DTensor, on the same tensors in the same order. It is taken if the weights are cut by columns or
by rows. Otherwise DTensor's own operators run. They also run if hooks receive saved tensors: recomputation stops before the
last product whose result it does not need, and as one step of autograd that product would run first.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

Placements = tuple[Placement, ...]
Linear = Callable[..., Tensor]
# The placements of the result of a product, of its gradient, and of the input's gradient, along the one dim of a mesh.
Cut = tuple[Placements, Placements, Placements]


def one_step_linear(linear: Linear) -> Linear:
    """Return the replacement of `torch.nn.functional.linear`, which calls `linear` if the product cannot be one step."""

    def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        hooked = torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
        if type(weight) is DTensor and type(x) is DTensor and bias is None and not hooked:
            cut = _cut_placements(x.placements, weight.placements, x.ndim) if x.device_mesh is weight.device_mesh else None
            if cut is not None and x._local_tensor.is_contiguous():
                return _Product.apply(x, weight, cut, linear)  # type: ignore[no-any-return,no-untyped-call]
        return linear(x, weight, bias)

    return product


def _cut_placements(x: Placements, weight: Placements, dims: int) -> Cut | None:
    """Return the DTensor placements of the output, of its gradient and of the input's gradient of a product with cut weights.

    With weights cut by columns each rank has the whole input. With weights cut by rows it has a share of the input, and the
    results are added. None is returned if the weights are not cut, or are cut otherwise.
    """
    if len(x) != 1 or type(weight[0]) is not Shard:
        return None
    if type(x[0]) is Replicate and weight[0].dim == 0:
        return (Shard(dims - 1),), (Shard(dims - 1),), (Partial(),)
    if type(x[0]) is Shard and x[0].dim == dims - 1 and weight[0].dim == 1:
        return (Partial(),), (Replicate(),), x
    return None


@lru_cache(maxsize=1024)
def _meta(shape: torch.Size, dtype: torch.dtype) -> TensorMeta:
    """Return DTensor's description of a contiguous tensor of this shape and dtype."""
    strides = [*accumulate((max(1, size) for size in reversed(shape[1:])), mul, initial=1)]
    return TensorMeta(shape, tuple(reversed(strides)), dtype)


def _laid(local: Tensor, like: DTensorSpec, placements: Placements, shape: torch.Size) -> DTensor:
    """Return a contiguous DTensor, made from this rank's local part of it.

    Args:
        local: The local part.
        like: A DTensor description with the same mesh.
        placements: The placements of the result.
        shape: The shape of the whole tensor.
    """
    made: Any = DTensor
    found: DTensor = made(local, DTensorSpec(like.mesh, placements, _meta(shape, local.dtype)), requires_grad=False)
    return found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: DTensor, weight: DTensor, cut: Cut, linear: Linear) -> DTensor:
        ctx.save_for_backward(x, weight)
        of_result, *ctx.of_gradients = cut
        shape = torch.Size((*x.shape[:-1], weight.shape[0]))
        return _laid(linear(x._local_tensor, weight._local_tensor), x._spec, of_result, shape)

    @staticmethod
    def backward(ctx: Any, gradient: DTensor) -> tuple[Tensor | None, ...]:
        (x, weight), (wanted, of_input) = ctx.saved_tensors, ctx.of_gradients
        if gradient.placements != wanted:
            gradient = gradient.redistribute(placements=wanted)
        rows = gradient._local_tensor.reshape(-1, gradient._local_tensor.size(-1))
        into = of_weight = None
        if _is_wanted(ctx, 1):
            here = x._local_tensor
            of_weight = _laid(rows.t().mm(here.reshape(-1, here.size(-1))), weight._spec, weight.placements, weight.shape)
        if _is_wanted(ctx, 0):
            local = rows.mm(weight._local_tensor).view(x._local_tensor.shape)
            into = _laid(local, x._spec, of_input, x.shape)
        return into, of_weight, None, None


def _is_wanted(ctx: Any, at: int) -> bool:
    """Return whether this backward pass needs the gradient of an input."""
    if not ctx.needs_input_grad[at]:
        return False
    try:
        return torch._C._will_engine_execute_node(ctx.next_functions[at][0])
    except RuntimeError:  # it does not say it of a leaf whose gradient `autograd.grad` has been asked for
        return True
