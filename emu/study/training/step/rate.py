"""The rate of a step: tokens a second, and the share of the devices' peak that the model's own FLOPs take.

The meta of a trace notes the work of a step, so that a trace is judged without its model.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.study.training.step.precision import Products, is_in_fp8
from emu.trace.device.device import Device
from emu.trace.device.dtypes import TF32
from emu.trace.device.step_error import RunKind
from emu.trace.trace import Trace

MFU_ASSUMED = (
    "MFU counts 6 FLOPs a parameter but the input embedding's, and 12 x layers x heads x head size x sequence, a token; "
    "attention is not halved for its causal mask, though it takes the time of half of them; and cp by p2p skips the half of "
    "each block of other ranks' keys that the mask hides; HFU counts what is worked out again, too"
)
# Keys of a trace's meta.
_TOKENS, _FLOPS, _AGAIN = "tokens a step", "model FLOPs a step", "FLOPs worked out again a step"
_EXPERTS = "experts of a layer"


class Rate(NamedTuple):
    """Tokens a second, MFU and HFU; all are 0 for a step of no ticks."""

    tokens_per_s: float
    mfu: float  # 0..1
    hfu: float  # the same with what is worked out again in the backward


def work_of(model: Model, plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return the work of a step, as entries for the meta of its trace."""
    again = model.recomputed_flops_per_token(plan.seq, plan.recompute) * plan.tokens
    work = {_TOKENS: plan.tokens, _FLOPS: model.flops_per_token(plan.seq) * plan.tokens, _AGAIN: again}
    if model.experts:
        work[_EXPERTS] = model.experts
    return tuple((name, str(amount)) for name, amount in work.items())


def with_work(trace: Trace, model: Model, plan: Plan) -> Trace:
    """Return the trace with a note of the work of a step."""
    return replace(trace, meta=(*trace.meta, *work_of(model, plan)))


def has_work(trace: Trace) -> bool:
    """Return whether a trace notes the work of a step."""
    return _TOKENS in dict(trace.meta)


def kind_of(trace: Trace, products: Sequence[Products]) -> RunKind:
    """Return the kind of a step; a script has experts where it has a group with the axis `ep`."""
    experts = _EXPERTS in dict(trace.meta) or any(group.axis == "ep" for group in trace.groups)
    return RunKind(experts, is_in_fp8(products))


def rate(trace: Trace, ranks: int, step_s: float, products: Sequence[Products]) -> Rate | None:
    """Return the rate of a step time; None: the trace notes no work of a step, such as the trace of a script.

    The peak is that of the dtype of most FLOPs.

    Args:
        trace: The trace of the step.
        ranks: The number of ranks of the run.
        step_s: The seconds of one step.
        products: The dtypes that the FLOPs are timed in, the one with most first.
    """
    if not has_work(trace):
        return None
    noted = dict(trace.meta)
    per_s = 1 / step_s if step_s else 0.0
    tokens, own, again = (int(noted[name]) for name in (_TOKENS, _FLOPS, _AGAIN))
    share = per_s / (ranks * products[0].peak_flops) if products else 0.0
    return Rate(tokens * per_s, own * share, (own + again) * share)


def peaks_told(trace: Trace, device: Device, products: Sequence[Products]) -> tuple[str, ...]:
    """Return what is assumed of the device's peaks, and by which peak MFU divides if products have several dtypes."""
    told = []
    if device.assumed and any(p.dtype in ("float32", TF32) for p in products):
        told.append(f"no source prints a peak of {device.name} for float32: {device.assumed}")
    if has_work(trace) and len(products) > 1:
        first = products[0]
        told.append(f"MFU and HFU divide by the peak of {first.dtype}, in which {100 * first.share:.3g} % of the FLOPs are")
    return tuple(told)
