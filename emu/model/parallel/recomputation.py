"""Activation recomputation: activations that are not saved for the backward pass but computed again in it."""

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

CORE = "core"  # the name of the module between an attention's products, see `AttentionCore`


def wrap_recomputation(module: nn.Module, how: str) -> None:
    """Wrap the modules that are computed again, in place.

    Args:
        module: A module with its layers in `layers`.
        how: `full`: each layer; `selective`: the core of each attention, which under context parallelism requests keys and
            values again; `none`. Beside its inputs a flash kernel saves one log-sum-exp for each query and head, no scores.

    Source: Korthikanti et al. (2022), section 5.
    """
    for layer in module.get_submodule("layers").children() if how != "none" else ():
        for name, inner in list(layer.named_modules()):
            if name.rpartition(".")[2] == (CORE if how == "selective" else ""):
                _replace(module, layer, name, inner)


def _replace(module: nn.Module, layer: nn.Module, name: str, inner: nn.Module) -> None:
    wrapped = checkpoint_wrapper(inner)
    if not name:
        layers = module.get_submodule("layers")
        setattr(layers, next(at for at, each in layers.named_children() if each is layer), wrapped)
        return
    parent, _, own = name.rpartition(".")
    setattr(layer.get_submodule(parent), own, wrapped)
