"""Activations that are not kept for the backward pass but worked out again in it."""

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

CORE = "core"  # the name of the module between an attention's products: scores and what they weigh


def recomputed(module: nn.Module, how: str) -> None:
    """Wrap what is worked out again, in place.

    Args:
        module: With its layers in `layers`.
        how: `full`: each layer; `selective`: the core of each attention, which under context parallelism asks for keys and
            values again; `none`. What a flash kernel keeps beside its inputs is a log-sum-exp a query and head, no scores.

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
