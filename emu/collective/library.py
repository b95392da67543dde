"""The registry of libraries that choose collectives as their own code does, whatever would be the fastest.

A library knows a group by what is around it and nothing else, so that it chooses alike on every topology that looks alike.
"""

from collections.abc import Callable
from dataclasses import dataclass

from emu.collective.algorithm import Served
from emu.registry import Registry


@dataclass(frozen=True, slots=True)
class Around:
    """What a library sees of a group of ranks: its hosts, and how their ranks are joined.

    A host is what stays joined where every NPU keeps the fastest of its ports alone; the others are its NIC.
    """

    ranks: int
    hosts: int
    in_order: bool  # whether each host's ranks follow one another, as many in each
    within_Bps: float  # out of a rank, over its fastest ports
    between_Bps: float  # out of a rank over its NIC; 0: it has none
    adds_within: bool  # whether the switches of a host add what they pass on
    adds_between: bool  # ... and those between hosts


@dataclass(frozen=True, slots=True)
class Pick:
    """What a library chooses for a request."""

    served: Served
    told: str  # in the library's own words: algorithm, protocol, channels


Library = Callable[[str, int, Around], Pick | None]  # (operation, bytes of its size, around); None: the default serves
LIBRARIES: Registry[Library] = Registry("library", "collectives")


def library(name: str) -> Callable[[Library], Library]:
    """File what chooses as the library of that name does.

    Raises:
        InputError: the name is taken.
    """

    def file(choose: Library) -> Library:
        LIBRARIES.file(name, choose)
        return choose

    return file
