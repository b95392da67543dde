"""Settings of HPN that are words or may be 0, and those that several variants take alike."""

from dataclasses import dataclass
from typing import Annotated

from emu.errors import must_be
from emu.topology.catalogue import Kind, one_of


def _read_spares(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise must_be("topology", name, "a whole number of 0 or more", text)
    return int(text)


Spares = Annotated[int, Kind(_read_spares, str)]
Way = Annotated[str, one_of("nvlink", "agg")]
Hash = Annotated[str, one_of("polarised", "independent")]
Paths = Annotated[str, one_of("disjoint", "hashed")]


@dataclass(frozen=True)
class Hashed:
    """How the equal ways of a network that was not built for disjoint paths are taken."""

    hash: Hash = "polarised"  # whether all switches hash a message's five-tuple alike (2.2), or each tier in its own way
    paths: Paths = "hashed"  # whether the connections of a pair are chosen on disjoint paths (6.1), or left to the hash


@dataclass(frozen=True)
class Chosen(Hashed):
    """The same of HPN, whose hosts choose."""

    paths: Paths = "disjoint"


@dataclass(frozen=True)
class Joined(Chosen):
    """What the hosts of segments that Aggs join have to choose from."""

    backup: Spares = 0  # hosts of a segment that stand by
    cross_rail: Way = "nvlink"  # how a message gets to another rail: over the GPU of its host that is on it, or over an Agg
