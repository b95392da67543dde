"""What a step time means: tokens a second, and the share of the devices' peak that the model's own FLOPs take."""

from typing import NamedTuple

from emu.model.model import Model
from emu.model.plan import Plan

MFU_ASSUMED = (
    "MFU counts 6 FLOPs a parameter but the input embedding's, and 12 x layers x heads x head size x sequence, a token; "
    "attention is not halved for its causal mask, neither there nor in the operators' time; but cp by p2p skips the half of "
    "each block of other ranks' keys that the mask hides"
)


class Rate(NamedTuple):
    """What a step time means."""

    tokens_per_s: float
    mfu: float  # 0..1


def rate(model: Model, plan: Plan, step_s: float, peak_flops: float) -> Rate:
    """Of a step time; 0 of a step that takes less than a tick, so that there is no rate.

    Args:
        model: What is trained.
        plan: How.
        step_s: Of one step.
        peak_flops: FLOP/s of one device.
    """
    per_s = 1 / step_s if step_s else 0.0
    flops = model.flops_per_token(plan.seq) * plan.tokens
    return Rate(plan.tokens * per_s, flops * per_s / (plan.world * peak_flops))
