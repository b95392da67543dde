"""The operation that an algorithm must serve at a site, and the algorithm that was selected for it."""

import re
from typing import NamedTuple

from emu.collective.algorithm import AUTO, AlgorithmOnDims
from emu.collective.libraries import LIBRARIES


def choosers() -> tuple[str, ...]:
    """Return the words that stand in place of an algorithm and choose one for each request: `auto` and the libraries."""
    return AUTO, *(name for name, _ in LIBRARIES)


def item_bytes_of(dtype: str) -> int:
    """Return the bytes of an element of a dtype; the digits in its name are its bits, and bool has one byte."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


class Requirement(NamedTuple):
    """An operation on a number of elements of a size in bytes, of any dtype."""

    operation: str
    root: int  # the root of a rooted operation
    elements: int  # elements of the operation's size
    item_bytes: int
    send_overhead_fs: int = 0
    groups: int = 1  # groups that ask at once


class Selection(NamedTuple):
    """The algorithm that serves a requirement best, and the algorithms that were not tried."""

    served: AlgorithmOnDims
    passed: tuple[str, ...] = ()  # algorithms that have too many messages to be timed for a choice
