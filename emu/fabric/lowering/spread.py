"""The edges of classes spread over ranks.

C classes, E edges, D ranks, U distinct `away`.
"""

from numba import int64, njit
from numpy import bool_, empty, int32, zeros
from numpy import int64 as np_int64

from emu.arrays import I32, I64, Bool
from emu.fabric.engine.layout import BOOL_IN, BOOL_OUT, I32_IN, I32_OUT, I64_IN, I64_OUT, types

_ROWS = types.Array(types.int32, 2, "C", readonly=True)


@njit(types.Tuple((I64_OUT, I32_OUT, BOOL_OUT))(I64_IN, I32_IN, BOOL_IN, I64_IN, _ROWS, int64), cache=True)
def spread(start: I64, pred: I32, left: Bool, kind: I64, there: I32, size: int) -> tuple[I64, I32, Bool]:
    """Predecessor columns of the tasks of all classes at D ranks, those of a class one after another.

    Args:
        start: [C + 1].
        pred: [E] class.
        left: [E].
        kind: [E] 0..U-1.
        there: [U, D] which of the ranks is that far away of each.
        size: D.
    """
    ends, preds, lefts = (
        zeros((len(start) - 1) * size + 1, np_int64),
        empty(len(pred) * size, int32),
        empty(len(pred) * size, bool_),
    )
    at = 0
    for c in range(len(start) - 1):
        for i in range(size):
            for e in range(start[c], start[c + 1]):
                preds[at], lefts[at] = pred[e] * size + there[kind[e], i], left[e]
                at += 1
            ends[c * size + i + 1] = at
    return ends, preds, lefts
