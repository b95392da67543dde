"""The total cost of ownership (TCO) of a machine: network, NPUs and energy over years, and the performance for each dollar."""

from dataclasses import dataclass

from emu.errors import InputError
from emu.study.cost.book import Price
from emu.study.cost.cost import HOURS_PER_YEAR, Cost


@dataclass(frozen=True, slots=True)
class OwnershipTerms:
    """The terms of ownership: the price of an NPU, the years, and the price of energy."""

    npu: Price  # of an NPU; none is paid for unless it is given
    years: float
    kwh_dollars: float


@dataclass(frozen=True, slots=True)
class OwnershipCost:
    """The cost of a machine: its network and its NPUs."""

    capex_dollars: float
    opex_dollars: float  # energy of all parts at full power

    @property
    def tco_dollars(self) -> float:
        """Capital and operating expenses."""
        return self.capex_dollars + self.opex_dollars

    def per_second_and_dollar(self, amount_per_s: float, share: float = 1.0) -> float:
        """Return performance over TCO, such as tokens/s for each dollar of a job's share of the machine."""
        return amount_per_s / (self.tco_dollars * share)


def ownership_cost(cost: Cost, terms: OwnershipTerms) -> OwnershipCost:
    """Return the cost of owning the machine of a network.

    Raises:
        InputError: The book has a price for NPUs and another is given; or everything is free, so the ratio has no meaning.
    """
    if "NPU" in cost.parts and any(terms.npu):
        raise InputError(f"cost: the book {cost.prices} has a price for an NPU; leave out --npu, or name NPU in `free`")
    watts = terms.npu.watts * cost.npus
    energy = (
        cost.energy_dollars(terms.years, terms.kwh_dollars) + watts / 1000 * HOURS_PER_YEAR * terms.years * terms.kwh_dollars
    )
    found = OwnershipCost(cost.dollars + terms.npu.dollars * cost.npus, energy)
    if not found.tco_dollars:
        raise InputError(f"cost: nothing of {cost.topology} costs anything; give prices above 0, or --npu")
    return found
