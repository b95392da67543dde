"""The dtypes in which a step is timed: those of its products, each with a peak of the device, and those of its messages."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, Bool
from emu.trace.device.device import Device
from emu.trace.device.dtypes import AS_RAN, FLOAT_BYTES, timed_as
from emu.trace.trace import Events, Kind, Trace
from emu.units import format_flops

AS_RAN_TOLD = (
    "each operator and message is timed in the dtype that it ran in; products of float32 take the peak of TF32 where the "
    "program let CUDA use it, which attention by one kernel never does"
)


@dataclass(frozen=True, slots=True)
class Products:
    """The FLOPs of one dtype, as timed."""

    dtype: str
    share: float  # of all FLOPs, of all ranks of the trace
    peak_flops: float  # FLOP/s of the device in it


def products_of(trace: Trace, device: Device, dtype: str) -> tuple[Products, ...]:
    """Return the FLOPs of the steps by dtype, as timed, the dtype of most first.

    Args:
        trace: The trace of the steps.
        device: The device that computes.
        dtype: The dtype that float32 is timed as, or `AS_RAN`.

    Raises:
        InputError: The device has no peak for one of them.
    """
    flops: Counter[str] = Counter()
    for events, ranks in zip(trace.events, _ranks_of(trace).tolist(), strict=True):
        counted = np.where((events.kind == Kind.COMPUTE) & (events.step > 0), events.flops, 0.0)
        for name, rows in _rows_of(events, counted > 0):
            flops[timed_as(name, dtype)] += ranks * float(counted[rows].sum())
    total, first = sum(flops.values()), sorted(flops, key=lambda name: (-flops[name], name))
    return tuple(Products(name, flops[name] / total, device.peak(name)) for name in first)


def is_in_fp8(products: Sequence[Products]) -> bool:
    """Return whether any FLOPs are in FP8."""
    return any(FLOAT_BYTES.get(each.dtype) == 1 for each in products)


def messages_of(trace: Trace, dtype: str) -> tuple[str, ...]:
    """Return the dtypes of the requests of all steps, as timed, in the order of their names."""
    found: set[str] = set()
    for events in trace.events:
        asks = (events.kind != Kind.COMPUTE) & (events.kind != Kind.MARK) & (events.step > 0) & (events.bytes > 0)
        found.update(timed_as(name, dtype) for name, _ in _rows_of(events, asks))
    return tuple(sorted(found))


def timed_told(dtype: str, products: Sequence[Products], messages: Sequence[str]) -> str:
    """Return words such as `as it ran: products in float32, at a peak of 67 TFLOP/s; messages in float32`."""
    how = {AS_RAN: "as it ran", "float32": "float32 without TF32"}.get(dtype, f"float32 as {dtype}")
    each = [f"{p.dtype}, at a peak of {format_flops(p.peak_flops)}/s{_share(p)}" for p in products]
    told = [f"products in {' and '.join(each)}"] * bool(each) + [f"messages in {', '.join(messages)}"] * bool(messages)
    return f"{how}: {'; '.join(told)}" if told else how


def _share(of: Products) -> str:
    """Return the share of the FLOPs in words; empty: all of them."""
    return "" if of.share == 1 else f" ({100 * of.share:.3g} % of the FLOPs)"


def _ranks_of(trace: Trace) -> I64:
    """Return [R] the number of ranks of each role."""
    return np.bincount(trace.role_of_rank, minlength=len(trace.events)).astype(np.int64)


def _rows_of(events: Events, rows: Bool) -> list[tuple[str, I64]]:
    """Return, by dtype, those of the given rows that have it."""
    at = np.flatnonzero(rows)
    ran = np.array([events.dtype[i] for i in at.tolist()], dtype=str)
    return [(name, at[ran == name]) for name in np.unique(ran).tolist()]
