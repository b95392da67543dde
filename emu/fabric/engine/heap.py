"""A binary heap in two arrays: the keys, and the node that each belongs to. Whoever calls keeps the count."""

from numba import float64, int32, int64, void

from emu.arrays import F64, I32, I64
from emu.fabric.engine.layout import F64_OUT, I32_OUT, I64_OUT, compiled


@compiled([void(F64_OUT, I32_OUT, int64, float64, int32), void(I64_OUT, I32_OUT, int64, int64, int32)])
def push(keys: F64 | I64, nodes: I32, n: int, key: float, node: int) -> None:
    """Add a node to a heap of n."""
    while n > 0 and keys[(n - 1) >> 1] > key:
        up = (n - 1) >> 1
        keys[n], nodes[n] = keys[up], nodes[up]
        n = up
    keys[n], nodes[n] = key, node


@compiled([void(F64_OUT, I32_OUT, int64, float64, int32), void(I64_OUT, I32_OUT, int64, int64, int32)])
def replace_first(keys: F64 | I64, nodes: I32, n: int, key: float, node: int) -> None:
    """Put a node in the place of the first of a heap of n."""
    at = 0
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[at], nodes[at] = keys[child], nodes[child]
        at = child
    keys[at], nodes[at] = key, node
