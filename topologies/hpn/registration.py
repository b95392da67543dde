"""The registration of HPN's variants: a variant's plan gives both its wiring and its invariants."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from emu.topology.catalogue import Build, Invariants, topology
from emu.topology.topology import Topology
from topologies.hpn.host_plan import HpnPlan, hpn_invariants
from topologies.hpn.hpn_wiring import build

_SOURCE = "Qian et al., Alibaba HPN (SIGCOMM 2024), "


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
