"""Activation recomputation: activations that are not saved for the backward pass but computed again in it."""

from itertools import count
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from emu.model.recompute import OPS

CORE = "core"  # the name of the module between an attention's products, see `AttentionCore`


def wrap_recomputation(module: nn.Module, how: str) -> None:
    """Wrap the modules that are computed again, in place.

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
    """Return PyTorch's two contexts of a layer's forward and of its recomputation, which keep what `outputs_kept` names."""
    forward, again = count(), count()

    def policy(context: Any, operator: Any, *args: object, **named: object) -> CheckpointPolicy:
        kept = operator in _ATTENTION
        if operator == torch.ops.aten.mm.default:
            kept = next(again if context.is_recompute else forward) % 2 == 0
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]
