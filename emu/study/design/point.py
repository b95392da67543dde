"""Points of a design space: topologies with settings, devices and numbers of NPUs, and the request that all have in common."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from emu.study.cost.network_cost import OwnershipTerms
from emu.study.cost.price_book import PriceBook
from emu.study.planning.plan_request import PlanRequest
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.trace.device.device import Device


@dataclass(frozen=True, slots=True)
class DesignPoint:
    """A point of a design space.

    `settings` tells it from others: the topology without its settings, each of these, the device, and the number of NPUs.
    """

    topology: str | Topology  # its text where it is of the catalogue, so that it is built where and when it is needed
    device: str
    npus: int
    settings: tuple[tuple[str, str], ...]

    @property
    def family(self) -> str:
        """The topology without its settings."""
        return self.settings[0][1]

    def build(self) -> Topology:
        """Return the topology of the point.

        Raises:
            InputError: its settings do not go together.
        """
        return build_topology(self.topology) if isinstance(self.topology, str) else self.topology


class PricedDevice(NamedTuple):
    """A device of a design space with the terms of its ownership."""

    device: Device
    terms: OwnershipTerms


@dataclass(frozen=True, eq=False, slots=True)
class DesignRequest:
    """The request for a design: the model and its plans, prices, the limits of money and power, and the faults."""

    plans: PlanRequest  # its number of NPUs is that of each point
    book: PriceBook
    devices: dict[str, PricedDevice]  # by the name that points have
    availability: Callable[[Topology], float] | None = None  # the share of a machine's NPUs in groups; None: not asked
    budget_dollars: float | None = None  # at the prices in the middle; None: no limit
    power_watts: float | None = None  # None: no limit

    def plans_at(self, point: DesignPoint) -> PlanRequest:
        """Return the search for the best plan at a point."""
        return replace(self.plans, npus=point.npus, top=1)
