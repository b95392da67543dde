"""Context parallelism: each rank has a part of every sequence, and attention brings keys and values to the queries.

A rank has two of 2 * CP chunks, see `Plan.positions`: the r-th from the front and the r-th from the back, so that all ranks
have equal work under a causal mask.

`p2p` is PyTorch's ring attention: its own templates, forward and backward, over the attention kernel of a CPU. PyTorch reaches
them through handlers of DTensor's operators, which it has for CUDA kernels only, and by replacing the attention function of the
whole process; here an autograd function calls them for the modules of one model. They make the same requests as on a GPU, in
the same order. An exchange is an all_to_all in which each rank gives one block, to the next rank. It begins before the
attention over the keys on this rank, and is waited for after it. Forward there are CP - 1 exchanges, of keys and values in one
buffer; backward there are as many again, and CP of their gradients.

`all_gather` gathers keys, then values, by PyTorch's own operator for flexible attention. One attention follows, with a mask for
the rank's queries. Backward there are two reduce_scatters.

FLOPs of attention on all ranks together, as a share of the FLOPs over all pairs of tokens, forward and backward alike:
`all_gather` has all, because a mask halves nothing. `p2p` has (CP + 1) / (2 CP): a rank's own block is whole, and of each other
block the half that the mask hides is skipped.

Sources: Liu et al., Ring Attention with Blockwise Transformers (2023); Dubey et al., The Llama 3 Herd of Models (2024), section
3.3.2, for `all_gather` and the two chunks.

Activation recomputation: activations that are not saved for the backward pass but computed again in it.
"""

from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental._context_parallel._attention import (
    _templated_ring_attention,
    _templated_ring_attention_backward,
    set_rotate_method,
)
from torch.distributed.tensor.experimental._context_parallel._cp_custom_ops import flex_cp_allgather
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from emu.arrays import I64
from emu.model.operator import OPS
from emu.model.parts.rotary import PositionedModule
from emu.model.plan.plan import Plan, cp_positions

CORE = "core"  # the name of the module between an attention's products, see `AttentionCore`


def wrap_recomputation(module: nn.Module, how: str) -> None:
    """Wrap the modules of a model whose activations are recomputed, in place.

    Args:
        module: A module with its layers in `layers`.
        how: `full`: each layer; `selective`: the core of each attention, which under context parallelism requests keys and
            values again; `ops`: each layer but the outputs of attention and of every second product; `none`. Beside its inputs
            a flash kernel saves one log-sum-exp for each query and head, no scores.

    Source: Korthikanti et al. (2022), section 5.
    """
    for layer in module.get_submodule("layers").children() if how != "none" else ():
        for name, inner in list(layer.named_modules()):
            if name.rpartition(".")[2] == (CORE if how == "selective" else ""):
                _replace(module, layer, name, inner, how)


def _replace(module: nn.Module, layer: nn.Module, name: str, inner: nn.Module, how: str) -> None:
    wrapped = checkpoint_wrapper(inner, context_fn=_contexts) if how == OPS else checkpoint_wrapper(inner)
    if not name:
        layers = module.get_submodule("layers")
        setattr(layers, next(at for at, each in layers.named_children() if each is layer), wrapped)
        return
    parent, _, own = name.rpartition(".")
    setattr(layer.get_submodule(parent), own, wrapped)


_ATTENTION = (
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
)


def _contexts() -> Any:
    """Return the contexts in which PyTorch runs the forward and the recomputation of a layer that keeps some outputs."""
    forward, again = count(), count()

    def policy(context: Any, operator: Any, *args: object, **named: object) -> CheckpointPolicy:
        kept = operator in _ATTENTION
        if operator == torch.ops.aten.mm.default:
            kept = next(again if context.is_recompute else forward) % 2 == 0
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]


_TOKENS = 2  # the dimension of tokens in queries, keys and values
_KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_KERNEL_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def shard_sequences(module: nn.Module, mesh: DeviceMesh, plan: Plan, positions: I64) -> None:
    """Change a module in place so that it processes only this rank's tokens of each sequence (context parallelism).

    Args:
        module: A module in which each attention core is called `core`, and each position table is a `PositionedModule`'s.
        mesh: The mesh of context parallelism alone.
        plan: The plan, which says how keys and values travel.
        positions: The positions of this rank's tokens.
    """
    group, mask = mesh.get_group(), _mask(plan, positions) if plan.cp_comm == "all_gather" else None
    for name, each in list(module.named_modules()):
        parent, _, own = name.rpartition(".")
        if own == CORE:
            setattr(module.get_submodule(parent), own, _SharedAttention(group, mask))
        if isinstance(each, PositionedModule):
            each.place(torch.from_numpy(positions))


def _mask(plan: Plan, positions: I64) -> Tensor:
    """Return the mask [queries of this rank, all keys in gathered order]: 0 where a query sees a key, else -inf."""
    keys = np.concatenate([cp_positions(place, plan.cp, plan.seq) for place in range(plan.cp)])
    return torch.from_numpy(np.where(keys <= positions[:, None], np.float32(0), -np.float32(np.inf)))


class _SharedAttention(nn.Module):
    """An attention core for context parallelism: keys and values pass round a ring, or are gathered from all ranks."""

    mask: Tensor | None

    def __init__(self, group: ProcessGroup, mask: Tensor | None) -> None:
        super().__init__()
        self._group = group
        self.register_buffer("mask", mask, persistent=False)
        if mask is None:
            set_rotate_method("alltoall")  # PyTorch has one setting for the process; all ranks set the same

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the attention of this rank's queries, in the shape of `emu.model.parts.attention_block.AttentionCore`."""
        if self.mask is None:
            return _RingAttention.apply(q, k, v, self._group)  # type: ignore[no-any-return,no-untyped-call]
        k, v = flex_cp_allgather(k, v, _TOKENS, self._group.group_name)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, enable_gqa=True)


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: ProcessGroup) -> Tensor:
        out, sums = _templated_ring_attention(group, _TOKENS, _KERNEL, q, k, v, is_causal=True)
        ctx.group = group
        ctx.save_for_backward(q, k, v, out, sums)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, sums = ctx.saved_tensors
        gradients = _templated_ring_attention_backward(
            ctx.group, _TOKENS, _KERNEL_BACKWARD, gradient, "grad_out", q, k, v, out, sums, is_causal=True, dropout_p=0.0
        )
        return *gradients, None
