"""The array types of columns, and functions that make columns, digests and index arrays."""

import hashlib
from collections.abc import Iterable
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bool = NDArray[np.bool_]
I16 = NDArray[np.int16]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

# A range of so many numbers for each value, and of so many more, is looked through faster than values are sorted.
_PER_VALUE, _FEW = 8, 2**16

D = TypeVar("D", bound=np.generic)


def column(values: ArrayLike, dtype: type[D]) -> NDArray[D]:
    """Return the values as a one-dimensional, contiguous, read-only array, without a copy where possible."""
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.ndim == 1 and not array.flags.writeable:
        return array
    array = array.reshape(-1) if array.ndim != 1 else array.view()
    array.flags.writeable = False
    return array


def digest(parts: Iterable[object]) -> str:
    """Return a stable hash of numbers, words and arrays: equal parts have equal digests on every machine."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"{part.dtype.str}{part.shape}".encode())
            state.update(np.ascontiguousarray(part).data)
        else:
            state.update(repr(part).encode())
        state.update(b"|")
    return state.hexdigest()


def ascending(values: NDArray[D]) -> NDArray[D]:
    """Return the different values of an array in ascending order.

    `np.unique` alone hashes the values, which takes 10 to 80 times as long where most of them are different (numpy 2.4).
    """
    ordered = np.sort(values, axis=None, kind="stable")
    is_new = np.ones(len(ordered), np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def distinct(values: I64, below: int) -> tuple[I64, I64]:
    """Return the different values in ascending order and the index of each value among them, like `np.unique`.

    There is no sort where the range of the values is small.

    Args:
        values: Numbers of 0 or more.
        below: A number above all of them.
    """
    if below > _PER_VALUE * len(values) + _FEW:
        found, place = np.unique(values, return_inverse=True)
        return found, place
    there = np.zeros(below, np.bool_)
    there[values] = True
    found = np.flatnonzero(there)
    of = np.empty(below, np.int64)
    of[found] = np.arange(len(found))
    return found, of[values]


def ramps(start: I64, width: I64) -> I64:
    """Return `width` consecutive numbers from each start, one after another."""
    return np.repeat(start - (np.cumsum(width) - width), width) + np.arange(width.sum())


def even_sample(n: int, most: int) -> I64:
    """Return at most `most` of the numbers below n, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def slices(ends: I64) -> list[slice]:
    """Return consecutive slices, the first from 0, each of which stops at one of `ends`."""
    return [slice(low, high) for low, high in pairwise([0, *ends.tolist()])]
