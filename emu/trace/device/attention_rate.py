"""The rate of attention kernels, interpolated from a table by kernel, head size, mask, pass and length.

A rate is a share of the device's peak at the clock that the peak is stated at. Between two lengths, or two head sizes, it is
linear in the logarithm of the size; outside the table it is that of the nearest row. E events of a role.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, Bool
from emu.trace.kernel_shape import ATTENTIONS, BACKWARD, MASKED
from emu.trace.trace import Events

CUDNN, FA2, FA3 = "cudnn", "fa2", "fa3"
KERNELS = (CUDNN, FA2, FA3)
_Curve = Callable[[F64, F64], F64]  # the share by head size and length


class AttentionRate(NamedTuple):
    """One row of a table of attention rates: a kernel, its sizes, and the share of the device's peak that it reaches.

    `item_bytes` is the bytes of an element, `head` the elements of a query, `length` the keys of a sequence.
    """

    kernel: str
    item_bytes: int  # of an element: kernels of bfloat16 and float16 are equally fast
    head: int  # elements of a query and of a key
    causal: bool
    backward: bool
    length: int  # keys of a sequence
    share: float  # of peak, that its FLOPs reach; of a causal mask half of the FLOPs count


def attention_shares(rows: tuple[AttentionRate, ...], kernel: str, events: Events, item_bytes: int) -> F64:
    """Return [E] the share of peak that each attention event reaches by the table; 0 for all other events.

    A backward under a causal mask that has no row of its own loses by the mask what the forward loses.
    """
    found = np.zeros(len(events))
    curves = _curves(rows, kernel, item_bytes)
    for masked in (False, True):
        for backward in (False, True):
            which = _kind(events, masked, backward)
            curve = _curve(curves, masked, backward)
            if which.any() and curve is not None:
                found[which] = curve(events.k[which].astype(float), events.n[which].astype(float))
    return found


def _kind(events: Events, masked: bool, backward: bool) -> Bool:
    kinds = [kind for kind in ATTENTIONS if (kind in MASKED) == masked and (kind in BACKWARD) == backward]
    return np.isin(events.kernel, kinds)


def _curve(curves: dict[tuple[bool, bool], _Curve], masked: bool, backward: bool) -> _Curve | None:
    own = curves.get((masked, backward))
    plain, mask, none = (curves.get(key) for key in ((False, backward), (True, False), (False, False)))
    if own is None and backward and plain and mask and none:
        return lambda head, length: plain(head, length) * mask(head, length) / none(head, length)
    return own or plain


@lru_cache(maxsize=64)
def _curves(rows: tuple[AttentionRate, ...], kernel: str, item_bytes: int) -> dict[tuple[bool, bool], _Curve]:
    """Return the interpolation curves of one kernel, by (causal mask, backward)."""
    found: dict[tuple[bool, bool], dict[int, dict[int, float]]] = {}
    for row in rows:
        if (row.kernel, row.item_bytes) == (kernel, item_bytes):
            found.setdefault((row.causal, row.backward), {}).setdefault(row.head, {})[row.length] = row.share
    return {key: _curve_through(by_head) for key, by_head in found.items()}


def _curve_through(by_head: dict[int, dict[int, float]]) -> _Curve:
    heads = np.array(sorted(by_head), float)
    lines = [(np.log2(sorted(by_head[head])), [by_head[head][n] for n in sorted(by_head[head])]) for head in sorted(by_head)]

    def curve(head: F64, length: F64) -> F64:
        at = np.array([np.interp(np.log2(np.maximum(length, 1)), x, y) for x, y in lines])  # [heads, E]
        place = np.interp(np.log2(np.maximum(head, 1)), np.log2(heads), np.arange(len(heads)))
        low = np.minimum(place.astype(int), max(len(heads) - 2, 0))
        high, each = np.minimum(low + 1, len(heads) - 1), np.arange(len(head))
        return np.asarray(at[low, each] + (place - low) * (at[high, each] - at[low, each]))

    return curve
