"""The FLOPs that backwards compute once more (recomputation), counted as the FLOPs of the model are, for HFU."""

from emu.model.layer_on_rank import LayerOnRank
from emu.model.model import Model, forward_flops
from emu.model.operator import Tokens
from emu.model.plan.plan import Plan
from emu.model.plan.stage_layers import stage_layers
from emu.model.stack.stack import Stack


def recomputed_flops_per_token(model: Model, plan: Plan, stack: Stack) -> int:
    """Return the FLOPs of a token that the backwards of all layers compute again.

    Whole layers (`full`) are repeated as far as the software repeats them, and where backwards are split anew for the gradient
    of each weight. The first stage has no gradient of an input, so that its backwards are whole.

    Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models (2022), sections 5 and 6.3.
    """
    layers = {kind: LayerOnRank(model, plan, stack, kind) for kind in set(model.kinds)}
    once = {kind: _once(layer) for kind, layer in layers.items()}
    first = stage_layers(plan, model)[0] if plan.splits else model.layers
    apart = {kind: 1 + _weights(layer) * layer.recomputed for kind, layer in layers.items()}
    return sum(once[kind] * (1 if i < first else apart[kind]) for i, kind in enumerate(model.kinds))


def _once(layer: LayerOnRank) -> int:
    """Return the FLOPs of a token in one repeated forward of a layer."""
    whole = layer.model.part(layer.name, Tokens(1, context=layer.plan.seq))
    return sum(forward_flops(whole[i]) for i in layer.repeated)


def _weights(layer: LayerOnRank) -> int:
    """Return the number of weights of a layer; a weight and its bias are one."""
    return len({operator.name.removesuffix(".bias") for operator in layer.operators if operator.parameters})
