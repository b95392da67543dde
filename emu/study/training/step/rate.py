"""The rate of a step: tokens per second, and the model FLOPs utilisation (MFU) in the dtypes of its products.

The meta of a trace notes the work of a step, so that a trace is judged without its model.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from emu.arrays import I64, Bool
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.recomputed_flops import recomputed_flops_per_token
from emu.model.stack.stack import Stack
from emu.trace.device.device import Device
from emu.trace.device.step_error import RunKind
from emu.trace.steps import computes, is_whole_script
from emu.trace.timed_dtype import AS_RAN, FLOAT_BYTES, TF32, timed_as
from emu.trace.trace import Events, Kind, Trace
from emu.units import format_flops

AS_RAN_TOLD = (
    "each operator and message is timed in the dtype that it ran in; products of float32 take the peak of TF32 where the "
    "program let CUDA use it, which attention by one kernel never does"
)
MFU_ASSUMED = (
    "MFU counts 6 FLOPs a parameter but the input embedding's, and 12 x layers x heads x head size x sequence, a token; "
    "attention is not halved for its causal mask, though it takes the time of half of them; and cp by p2p skips the half of "
    "each block of other ranks' keys that the mask hides; HFU counts what is worked out again, too"
)
# Keys of a trace's meta.
_TOKENS, _FLOPS, _AGAIN = "tokens a step", "model FLOPs a step", "FLOPs worked out again a step"
_EXPERTS = "experts of a layer"


@dataclass(frozen=True, slots=True)
class Products:
    """The FLOPs of a step in one dtype, as they are timed: their share, and the peak of the device."""

    dtype: str
    share: float  # share of the FLOPs of all ranks of the trace
    peak_flops: float  # FLOP/s of the device in this dtype


def products_of(trace: Trace, device: Device, dtype: str) -> tuple[Products, ...]:
    """Return the FLOPs of the steps by dtype, as timed, the dtype of most first.

    There are none where all lasts as it was measured, and none of a device whose peaks nobody told.

    Args:
        trace: The trace of the steps.
        device: The device that computes.
        dtype: The dtype that float32 is timed as, or `AS_RAN`.

    Raises:
        InputError: The device has no peak for one of them.
    """
    if device.as_measured:
        return ()
    flops, of_role = Counter[str](), np.bincount(trace.role_of_rank, minlength=len(trace.events)).tolist()
    for events, ranks in zip(trace.events, of_role, strict=True):
        counted = np.where((events.kind == Kind.COMPUTE) & (events.step > 0), events.flops, 0.0)
        for name, rows in _rows_of(events, counted > 0):
            flops[timed_as(name, dtype)] += ranks * float(counted[rows].sum())
    total, first = sum(flops.values()), sorted(flops, key=lambda name: (-flops[name], name))
    return tuple(Products(name, flops[name] / total, device.peak(name)) for name in first)


def messages_of(trace: Trace, dtype: str) -> tuple[str, ...]:
    """Return the dtypes of the requests of all steps, as they are timed, sorted by name."""
    found: set[str] = set()
    for events in trace.events:
        asks = ~computes(events) & (events.step > 0) & (events.bytes > 0)
        found.update(timed_as(name, dtype) for name, _ in _rows_of(events, asks))
    return tuple(sorted(found))


def timed_dtypes_text(dtype: str, products: Sequence[Products], messages: Sequence[str]) -> str:
    """Return a text such as `as it ran: products in float32, at a peak of 67 TFLOP/s; messages in float32`.

    Args:
        dtype: The dtype that float32 is timed as, or `AS_RAN`.
        products: The FLOPs by dtype, as `products_of` returns them.
        messages: The dtypes of requests, as `messages_of` returns them.
    """
    how = {AS_RAN: "as it ran", "float32": "float32 without TF32"}.get(dtype, f"float32 as {dtype}")
    each = [f"{p.dtype}, at a peak of {format_flops(p.peak_flops)}/s{_share_text(p)}" for p in products]
    told = [f"products in {' and '.join(each)}"] * bool(each) + [f"messages in {', '.join(messages)}"] * bool(messages)
    return f"{how}: {'; '.join(told)}" if told else how


def dtype_notes(trace: Trace, dtype: str) -> tuple[str, ...]:
    """Return the assumptions about the dtypes of a trace, and about the work of its step."""
    timed = AS_RAN_TOLD if dtype == AS_RAN else f"what ran in float32 is timed as {dtype}" * (dtype != "float32")
    return tuple(filter(None, (timed, MFU_ASSUMED * has_work(trace))))


def _share_text(of: Products) -> str:
    """Return, as text, the share of the FLOPs of a step that this dtype has; an empty text if it has all of them."""
    return "" if of.share == 1 else f" ({100 * of.share:.3g} % of the FLOPs)"


def _rows_of(events: Events, rows: Bool) -> list[tuple[str, I64]]:
    """Return, for each dtype, the numbers of the rows of this dtype among those for which `rows` is true."""
    at = np.flatnonzero(rows)
    ran = np.array([events.dtype[i] for i in at.tolist()], dtype=str)
    return [(name, at[ran == name]) for name in np.unique(ran).tolist()]


def work_of(model: Model, plan: Plan, stack: Stack) -> tuple[tuple[str, str], ...]:
    """Return the work of a step, as entries for the meta of its trace."""
    again = recomputed_flops_per_token(model, plan, stack) * plan.tokens
    work = {_TOKENS: plan.tokens, _FLOPS: model.flops_per_token(plan.seq) * plan.tokens, _AGAIN: again}
    if model.experts:
        work[_EXPERTS] = model.experts
    return tuple((name, str(amount)) for name, amount in work.items())


def with_work(trace: Trace, model: Model, plan: Plan, stack: Stack) -> Trace:
    """Return the trace with a note of the tokens and FLOPs of a step, from which its rate is computed."""
    return replace(trace, meta=(*trace.meta, *work_of(model, plan, stack)))


def with_more_work(trace: Trace, factor: int) -> Trace:
    """Return the trace with the noted work of its step multiplied by a factor."""
    grows = (_TOKENS, _FLOPS, _AGAIN)
    return replace(trace, meta=tuple((key, str(int(of) * factor) if key in grows else of) for key, of in trace.meta))


def has_work(trace: Trace) -> bool:
    """Return whether a trace notes the tokens and FLOPs of a step."""
    return _TOKENS in dict(trace.meta)


def judged(trace: Trace, device: Device, ranks: int, step_s: float, products: Sequence[Products]) -> dict[str, Any]:
    """Return fields of a step: its rate, the possible error, and whether it is the whole script."""
    whole = is_whole_script(trace)
    off = None if whole else device.step_error(kind_of(trace, products))
    per_token = int(dict(trace.meta)[_FLOPS]) / int(dict(trace.meta)[_TOKENS]) if has_work(trace) else None
    error = off.told(per_token) if off else {}
    return {**rate(trace, ranks, step_s, products), "whole_script": whole, **error}


def kind_of(trace: Trace, products: Sequence[Products]) -> RunKind:
    """Return the kind of a step, for the error of estimates: whether it has experts, and whether products are in FP8."""
    experts = _EXPERTS in dict(trace.meta) or any(group.axis == "ep" for group in trace.groups)
    return RunKind(experts, any(FLOAT_BYTES.get(each.dtype) == 1 for each in products))


def rate(trace: Trace, ranks: int, step_s: float, products: Sequence[Products]) -> dict[str, float]:
    """Return tokens a second, MFU and HFU (0..1) by the names of a step's figures; all are 0 for a step of no ticks.

    Nothing is returned if the trace notes no work of a step, such as the trace of a script, and no MFU and HFU without
    products. The peak is that of the dtype of most FLOPs.

    Args:
        trace: The trace of the step.
        ranks: The number of ranks of the run.
        step_s: The seconds of one step.
        products: The dtypes that the FLOPs are timed in, the one with most first.
    """
    if not has_work(trace):
        return {}
    noted = dict(trace.meta)
    per_s = 1 / step_s if step_s else 0.0
    tokens, own, again = (int(noted[name]) for name in (_TOKENS, _FLOPS, _AGAIN))
    if not products:
        return {"tokens_per_s": tokens * per_s}
    share = per_s / (ranks * products[0].peak_flops)
    return {"tokens_per_s": tokens * per_s, "mfu": own * share, "hfu": (own + again) * share}


def peak_notes(trace: Trace, device: Device, products: Sequence[Products]) -> tuple[str, ...]:
    """Return the assumptions about the device's peaks, and the peak that MFU is computed with."""
    told = []
    if device.assumed and any(p.dtype in ("float32", TF32) for p in products):
        told.append(f"no source prints a peak of {device.name} for float32: {device.assumed}")
    if has_work(trace) and len(products) > 1:
        first = products[0]
        told.append(f"MFU and HFU divide by the peak of {first.dtype}, in which {100 * first.share:.3g} % of the FLOPs are")
    return tuple(told)
