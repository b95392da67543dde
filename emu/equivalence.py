"""Equivalence of numbered things: connected components, orbits under permutations, and groups of equal rows.

The builder of a fabric declares such permutations of its nodes as symmetries, most often shifts along an axis.
"""

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emu.arrays import I64, column


def components(n: int, a: ArrayLike, b: ArrayLike) -> I64:
    """Return [n] the connected component of each number below n, where `a` [L] is joined to `b` [L].

    Components are numbered in the order of their least members. Source: Shiloach and Vishkin, An O(log n) parallel connectivity
    algorithm, J. Algorithms 3 (1982): components that touch become one, and every number is told the least member of its own.
    """
    one, other = column(a, np.int64), column(b, np.int64)
    least, before = np.arange(n), np.empty(0, np.int64)
    while not np.array_equal(least, before):
        before = least.copy()
        low, high = np.minimum(least[one], least[other]), np.maximum(least[one], least[other])
        np.minimum.at(least, high, low)
        while not np.array_equal(least, least[least]):
            least = least[least]
    return column((np.cumsum(least == np.arange(n)) - 1)[least], np.int64)


def orbits(n: int, permutations: list[I64]) -> I64:
    """Return [n] the orbit of each number below n under some permutations, numbered by their least members.

    Args:
        n: How many numbers there are.
        permutations: Each is [n] the image of every number. Without any, each number is an orbit.
    """
    there = np.concatenate([np.empty(0, np.int64), *permutations])
    return components(n, np.tile(np.arange(n), len(permutations)), there)


def occurrence_numbers(values: NDArray[Any]) -> I64:
    """Return [n], for each value, the number of equal values before it in the array."""
    order, found = np.argsort(values, kind="stable"), np.empty(len(values), np.int64)
    found[order] = np.arange(len(values)) - np.searchsorted(values[order], values[order])
    return found


def shift(*kinds: tuple[tuple[int, ...], int | None]) -> I64:
    """Return the permutation of nodes under which each kind of nodes shifts by one along an axis.

    Args:
        kinds: The shape of each kind of nodes, which are numbered kind after kind, and its axis; None: these nodes stay.
    """
    ends = np.cumsum([prod(shape) for shape, _ in kinds])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    moved = ((node.reshape(shape), axis) for node, (shape, axis) in zip(parts, kinds, strict=True))
    return np.concatenate([(node if axis is None else np.roll(node, -1, axis)).ravel() for node, axis in moved])


class Orbits(NamedTuple):
    """A partition of the numbers 0 to n - 1 into orbits.

    Members of an orbit are mapped onto one another by permutations, or have equal values.
    """

    number: I64  # orbit of each thing
    first: I64  # [O] least member of each orbit
    size: I64  # [O] number of members of each orbit

    @staticmethod
    def each(count: int) -> "Orbits":
        """Return `count` orbits with one member each."""
        every = np.arange(count)
        return Orbits(every, every, np.ones_like(every))

    @staticmethod
    def of(count: int, permutations: list[I64]) -> "Orbits":
        """Return the orbits of the numbers 0 to count - 1 under some permutations, numbered by their least members."""
        number = orbits(count, permutations)
        most = np.maximum.accumulate(number)  # as numbers are given in the order of their least, a new one is the largest yet
        first = np.flatnonzero(np.diff(most, prepend=-1))
        return Orbits(number, column(first, np.int64), column(np.bincount(number), np.int64))

    @staticmethod
    def by_value(*columns: NDArray[Any]) -> "Orbits":
        """Return the orbits of rows: rows with equal values in all columns form one, in ascending order of values."""
        key = columns[0]
        for values in columns[1:]:
            code = np.unique(values, return_inverse=True)[1]
            key = np.unique(key, return_inverse=True)[1] * (int(code.max(initial=0)) + 1) + code
        _, first, number, size = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        return Orbits(column(number, np.int64), column(first, np.int64), column(size, np.int64))

    def in_order(self) -> "Orbits":
        """Return the same orbits, numbered in the order of their least members."""
        by_first = np.argsort(self.first)
        return Orbits(np.argsort(by_first)[self.number], self.first[by_first], self.size[by_first])
