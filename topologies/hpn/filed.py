"""How a variant is filed: its plan says both how to wire it and what closed forms give for it."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from emu.topology.catalogue import Build, Invariants, topology
from emu.topology.topology import Topology
from topologies.hpn.plan import Plan, known
from topologies.hpn.wiring import build

_SOURCE = "Qian et al., Alibaba HPN (SIGCOMM 2024), "


def variant(
    name: str, section: str, examples: tuple[str, ...], full: tuple[str, ...] = ("",)
) -> Callable[[Callable[..., Plan]], Build]:
    """File the topology of the plan that a function makes of its settings, under NAME:VARIANT.

    Args:
        name: As it is written on the command line.
        section: Of the paper.
        examples: Settings of small instances.
        full: Settings of the sizes that the paper speaks of.

    Raises:
        InputError: as `topology`.
    """

    def file(plan_of: Callable[..., Plan]) -> Build:
        @wraps(plan_of)
        def wired(**settings: Any) -> Topology:
            return build(plan_of(**settings))

        def told(**settings: Any) -> Invariants:
            return known(plan_of(**settings))

        return topology(name, source=f"{_SOURCE}{section}", examples=examples, invariants=told, full=full)(wired)

    return file
