"""The registration of HPN's variants: a variant's plan gives both its wiring and its invariants.

Also here: settings of HPN that are words or may be 0, and groups of settings that several variants share.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

from emu.errors import must_be
from emu.topology.catalogue import Build, Invariants, SettingKind, one_of, topology
from emu.topology.topology import Topology
from topologies.hpn.host_plan import HpnPlan, hpn_invariants
from topologies.hpn.hpn_wiring import build

_SOURCE = "Qian et al., Alibaba HPN (SIGCOMM 2024), "
Way = Annotated[str, one_of("nvlink", "agg")]
Hash = Annotated[str, one_of("polarised", "independent")]
Paths = Annotated[str, one_of("disjoint", "hashed")]


def register_variant(
    name: str, section: str, examples: tuple[str, ...], full: tuple[str, ...] = ("",)
) -> Callable[[Callable[..., HpnPlan]], Build]:
    """Return a decorator that files a function from settings to a plan as a topology, under NAME:VARIANT.

    Args:
        name: The name on the command line.
        section: The section of the paper.
        examples: Settings of small instances.
        full: Settings of the sizes in the paper.

    Raises:
        InputError: See `topology`.
    """

    def file(plan_of: Callable[..., HpnPlan]) -> Build:
        @wraps(plan_of)
        def wired(**settings: Any) -> Topology:
            return build(plan_of(**settings))

        def told(**settings: Any) -> Invariants:
            return hpn_invariants(plan_of(**settings))

        return topology(name, source=f"{_SOURCE}{section}", examples=examples, invariants=told, full=full)(wired)

    return file


def _read_spares(text: str, name: str) -> int:
    """Return the number of backup hosts from a setting's text."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise must_be("topology", name, "a whole number of 0 or more", text)
    return int(text)


Spares = Annotated[int, SettingKind(_read_spares, str)]


@dataclass(frozen=True)
class HashSettings:
    """The settings of the choice among equal paths, for networks that were not built for disjoint paths."""

    hash: Hash = "polarised"  # whether all switches hash a message's five-tuple in one way (2.2), or each tier in its own
    paths: Paths = "hashed"  # whether hosts choose disjoint paths for a pair's connections (6.1), or the hash picks paths


@dataclass(frozen=True)
class HpnHashSettings(HashSettings):
    """The settings of the choice among equal paths for HPN, whose hosts choose disjoint paths by default."""

    paths: Paths = "disjoint"


@dataclass(frozen=True)
class HostSettings(HpnHashSettings):
    """The settings of hosts where Aggs join several segments."""

    backup: Spares = 0  # backup hosts of a segment
    cross_rail: Way = "nvlink"  # route to another rail: over the GPU of the host that is on that rail, or over an Agg
