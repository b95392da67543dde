"""The dtype with which events of a trace are timed: float32 as it ran, or as another dtype.

E events of a role.
"""

import numpy as np

from emu.arrays import I64
from emu.registry import unknown
from emu.trace.trace import Events, Trace

FLOAT_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
TF32 = "tf32"  # of a product of float32 elements that the setting of the program let round its factors to TF32
AS_RAN = "as-ran"  # in place of a dtype: each operator and message is timed in the dtype that it ran in
_SINGLE = ("float32", TF32)
_REDUCED = "bfloat16"  # what float32 is timed as where a trace does not say that it is timed as it ran
_AS_RAN_BY = ("run", "estimate")  # commands that time what they record or generate as it ran


def check_dtype(dtype: str) -> None:
    """Check that float32 can be timed as a dtype.

    Raises:
        InputError: neither `AS_RAN` nor a dtype of `FLOAT_BYTES`; the message names the nearest.
    """
    if dtype != AS_RAN and dtype not in FLOAT_BYTES:
        raise unknown("dtype", dtype, (AS_RAN, *FLOAT_BYTES))


def usual_dtype(trace: Trace) -> str:
    """Return the default dtype as which float32 of a trace is timed, by the command that made the trace.

    A trace that names no command is timed as bfloat16, as all traces were before they named one.
    """
    return AS_RAN if trace.command in _AS_RAN_BY else _REDUCED


def timed_as(ran: str, dtype: str) -> str:
    """Return the dtype with which an event of dtype `ran` is timed."""
    return dtype if dtype != AS_RAN and ran in _SINGLE else ran


def timed_bytes(events: Events, dtype: str) -> I64:
    """Return [E] the bytes of each event, had its float32 elements been of `dtype`.

    Raises:
        InputError: an unknown dtype.
    """
    check_dtype(dtype)
    return np.asarray(events.bytes - is_single(events) * events.count * (4 - item_as(4, "float32", dtype)))


def item_as(item_bytes: int, ran: str, dtype: str) -> int:
    """Return the bytes of an element of dtype `ran` as it is timed."""
    return FLOAT_BYTES[dtype] if dtype != AS_RAN and ran in _SINGLE else item_bytes


def is_single(events: Events) -> I64:
    """Return [E] 1 for events with float32 (or TF32) elements, else 0."""
    return np.array([d in _SINGLE for d in events.dtype], dtype=np.int64)
