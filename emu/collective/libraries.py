"""The registry of communication libraries that choose an algorithm by their own rules, whether or not it is the fastest.

A library knows a group only by its `GroupNetwork`, so it makes the same choice on every topology that looks the same to it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from emu.collective.choice import AlgorithmOnDims
from emu.registry import Registry


@dataclass(frozen=True, slots=True)
class GroupNetwork:
    """The network of a process group as a library such as NCCL sees it: its hosts, and the bandwidths within and between them.

    A host is a set of NPUs that stay connected where every NPU keeps only its fastest ports. The other ports are its NIC.
    """

    ranks: int
    hosts: int
    in_order: bool  # whether each host has as many ranks, and their numbers follow one another
    within_Bps: float  # bandwidth out of a rank over its fastest ports
    between_Bps: float  # bandwidth out of a rank over its NIC; 0: it has none
    adds_within: bool  # whether the switches within a host can add
    adds_between: bool  # whether the switches between hosts can add


@dataclass(frozen=True, slots=True)
class LibraryChoice:
    """The algorithm, channels and protocol that a library such as NCCL takes for one request."""

    served: AlgorithmOnDims
    told: str  # the choice in the library's own terms: algorithm, protocol, channels
    assumptions: tuple[str, ...] = ()  # on what the choice and its time rest, a sentence each


Library = Callable[
    [str, int, GroupNetwork], LibraryChoice | None
]  # (operation, size in bytes, group) -> choice; None: the default serves
LIBRARIES: Registry[Library] = Registry("library", "collectives")


def library(name: str) -> Callable[[Library], Library]:
    """Return a decorator that registers a function as the library with the given name.

    Raises:
        InputError: The name is taken.
    """

    def file(choose: Library) -> Library:
        LIBRARIES.file(name, choose)
        return choose

    return file
