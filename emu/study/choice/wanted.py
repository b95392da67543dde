"""What is asked of an algorithm at a site, and what serves it."""

from typing import NamedTuple

from emu.collective.algorithm import Served


class Wanted(NamedTuple):
    """An operation of so many elements of so many bytes, whatever their dtype."""

    operation: str
    root: int  # of a rooted operation
    elements: int  # of the operation's size
    item_bytes: int
    send_overhead_fs: int = 0
    groups: int = 1  # that ask at once


class Chosen(NamedTuple):
    """What serves best, and what was not tried."""

    served: Served
    passed: tuple[str, ...] = ()  # algorithms of more messages than are timed for a choice
