"""Context parallelism: each rank has a part of every sequence, and attention brings keys and values to where queries are.

A rank has two of 2 * CP chunks, as `Plan.positions` says: the r-th from the front and the r-th from the back, so that under a
causal mask all ranks have equal work.

`p2p` is PyTorch's ring attention: its own templates, forward and backward, over the attention kernel of a CPU. PyTorch reaches
them through handlers of DTensor's operators, which it has for kernels of CUDA only, and by replacing the attention function of
the whole process; here a function of autograd calls them, for the modules of one model. What they ask for is what they ask for
on a GPU, in the same order. An exchange is an all_to_all in which each rank gives one block, to the next rank. It begins before
the attention over the keys that are here, and is waited for after it. Forward there are CP - 1, of keys and values in one
buffer; backward the same again, and CP of their gradients.

`all_gather` gathers keys, then values, by PyTorch's own operator for flexible attention. One attention follows, with a mask for
the rank's queries. Backward there are two reduce_scatters.

FLOPs of attention on all ranks together, of the FLOPs over all pairs of tokens, forward and backward alike: `all_gather` has
all, as no mask halves anything. `p2p` has (CP + 1) / (2 CP): a rank's own block is whole, and of each other block the half that
the mask hides is skipped.

Sources: Liu et al., Ring Attention with Blockwise Transformers (2023); Dubey et al., The Llama 3 Herd of Models (2024), section
3.3.2, for `all_gather` and the two chunks.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental._context_parallel._attention import (
    _templated_ring_attention,
    _templated_ring_attention_backward,
    set_rotate_method,
)
from torch.distributed.tensor.experimental._context_parallel._cp_custom_ops import flex_cp_allgather
from torch.nn import functional

from emu.arrays import I64
from emu.model.parallel.recompute import CORE
from emu.model.parts.positions import Positioned
from emu.model.plan.plan import Plan
from emu.model.plan.ranks import chunks

_TOKENS = 2  # the dimension of tokens in queries, keys and values
_KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_KERNEL_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def share_sequences(module: nn.Module, mesh: DeviceMesh, plan: Plan, positions: I64) -> None:
    """Let a module take some tokens of each sequence, in place: the core of every attention, and every table of positions.

    Args:
        module: Each core is called `core`, each table of positions is a `Positioned`'s.
        mesh: Of context parallelism alone.
        plan: How keys and values travel.
        positions: Those of this rank.
    """
    group, mask = mesh.get_group(), _mask(plan, positions) if plan.cp_comm == "all_gather" else None
    for name, each in list(module.named_modules()):
        parent, _, own = name.rpartition(".")
        if own == CORE:
            setattr(module.get_submodule(parent), own, _Ring(group) if mask is None else _Gathered(group, mask))
        if isinstance(each, Positioned):
            each.place(torch.from_numpy(positions))


def _mask(plan: Plan, positions: I64) -> Tensor:
    """[queries here, all keys as they are gathered]: 0 where a query sees a key, else -inf."""
    keys = np.concatenate([chunks(place, plan.cp, plan.seq) for place in range(plan.cp)])
    return torch.from_numpy(np.where(keys <= positions[:, None], np.float32(0), -np.float32(np.inf)))


class _Ring(nn.Module):
    """Keys and values go round, one rank further each time."""

    def __init__(self, group: ProcessGroup) -> None:
        super().__init__()
        self._group = group
        set_rotate_method("alltoall")  # of the whole process, as PyTorch has it; all ranks say the same

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As `emu.model.parts.attention.Core`, of the tokens here."""
        return _RingAttention.apply(q, k, v, self._group)  # type: ignore[no-any-return,no-untyped-call]


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


class _Gathered(nn.Module):
    """Every rank gathers all keys and values."""

    mask: Tensor

    def __init__(self, group: ProcessGroup, mask: Tensor) -> None:
        super().__init__()
        self._group = group.group_name
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As `emu.model.parts.attention.Core`, of the tokens here."""
        k, v = flex_cp_allgather(k, v, _TOKENS, self._group)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, enable_gqa=True)
