"""What a step time means: tokens a second, and the share of the devices' peak that the model's own FLOPs take.

What a step is worth is noted in the meta of its trace, so that a trace is judged without its model.
"""

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.trace.device.device import Device
from emu.trace.device.dtypes import timed_as
from emu.trace.trace import Kind, Trace

MFU_ASSUMED = (
    "MFU counts 6 FLOPs a parameter but the input embedding's, and 12 x layers x heads x head size x sequence, a token; "
    "attention is not halved for its causal mask, though it takes the time of half of them; and cp by p2p skips the half of "
    "each block of other ranks' keys that the mask hides; HFU counts what is worked out again, too"
)
_TOKENS, _FLOPS, _AGAIN = "tokens a step", "model FLOPs a step", "FLOPs worked out again a step"  # keys of a trace's meta


class Rate(NamedTuple):
    """What a step time means; 0 of a step that takes less than a tick, so that there is no rate."""

    tokens_per_s: float
    mfu: float  # 0..1
    hfu: float  # the same with what is worked out again in the backward


def work_of(model: Model, plan: Plan) -> tuple[tuple[str, str], ...]:
    """What a step is worth, as the meta of a trace has it."""
    again = model.recomputed_flops_per_token(plan.seq, plan.recompute) * plan.tokens
    work = {_TOKENS: plan.tokens, _FLOPS: model.flops_per_token(plan.seq) * plan.tokens, _AGAIN: again}
    return tuple((name, str(amount)) for name, amount in work.items())


def with_work(trace: Trace, model: Model, plan: Plan) -> Trace:
    """The trace, with what a step of it is worth noted in its meta."""
    return replace(trace, meta=(*trace.meta, *work_of(model, plan)))


def has_work(trace: Trace) -> bool:
    """Whether it is noted what a step is worth."""
    return _TOKENS in dict(trace.meta)


def rate(trace: Trace, ranks: int, step_s: float, device: Device, dtype: str) -> Rate | None:
    """Of a step time; None where nothing is noted of what a step is worth, as of a script.

    The peak is that of the dtype of most FLOPs.

    Args:
        trace: What ran, or would.
        ranks: Of the run.
        step_s: Of one step.
        device: What computes.
        dtype: What float32 is timed as.
    """
    if not has_work(trace):
        return None
    noted = dict(trace.meta)
    per_s = 1 / step_s if step_s else 0.0
    tokens, own, again = (int(noted[name]) for name in (_TOKENS, _FLOPS, _AGAIN))
    share = per_s / (ranks * device.peak(timed_as(_computed_in(trace), dtype)))
    return Rate(tokens * per_s, own * share, (own + again) * share)


def _computed_in(trace: Trace) -> str:
    """The dtype of most FLOPs."""
    flops: Counter[str] = Counter()
    for events in trace.events:
        ran, counted = np.array(events.dtype, dtype=str), events.flops * (events.kind == Kind.COMPUTE)
        for name in set(events.dtype):
            flops[name] += int(counted[ran == name].sum())
    return max(flops, key=lambda name: (flops[name], name), default="float32")
