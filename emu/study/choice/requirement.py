"""An operation that an algorithm must serve at a site, and what was selected for it."""

import re
from typing import NamedTuple

from emu.collective.algorithm import AUTO
from emu.collective.algorithm import AlgorithmOnDims as Served
from emu.collective.libraries import LIBRARIES


def choosers() -> tuple[str, ...]:
    """Return the words in place of an algorithm that choose one for each request: `auto`, and the libraries."""
    return AUTO, *(name for name, _ in LIBRARIES)


def item_bytes_of(dtype: str) -> int:
    """Return the bytes of an element; torch's names tell the bits of all but bool."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


class Requirement(NamedTuple):
    """An operation of so many elements of so many bytes, whatever their dtype."""

    operation: str
    root: int  # of a rooted operation
    elements: int  # of the operation's size
    item_bytes: int
    send_overhead_fs: int = 0
    groups: int = 1  # that ask at once


class Selection(NamedTuple):
    """The algorithm that serves best, and those that were not tried."""

    served: Served
    passed: tuple[str, ...] = ()  # algorithms of more messages than are timed for a choice
