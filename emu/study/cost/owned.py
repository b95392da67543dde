"""What a machine costs over its years, with its NPUs, and what performance that buys: TCO, total cost of ownership."""

from dataclasses import dataclass

from emu.errors import InputError
from emu.study.cost.book import Price
from emu.study.cost.cost import HOURS_PER_YEAR, Cost


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a machine is owned."""

    npu: Price  # of an NPU; none is paid for unless it is given
    years: float
    kwh_dollars: float


@dataclass(frozen=True, slots=True)
class Owned:
    """A machine: its network and its NPUs."""

    capex_dollars: float
    opex_dollars: float  # energy of all parts at full power

    @property
    def tco_dollars(self) -> float:
        """Capital and operating expenses."""
        return self.capex_dollars + self.opex_dollars

    def per_second_and_dollar(self, amount_per_s: float, share: float = 1.0) -> float:
        """Performance over TCO, such as tokens/s for each dollar of a job's share of the machine."""
        return amount_per_s / (self.tco_dollars * share)


def owned(cost: Cost, terms: Terms) -> Owned:
    """The machine of a network.

    Raises:
        InputError: the book has a price for NPUs, and another is given; or all is free, so that nothing can be bought by it.
    """
    if "NPU" in cost.parts and any(terms.npu):
        raise InputError(f"cost: the book {cost.prices} has a price for an NPU; leave out --npu, or name NPU in `free`")
    watts = terms.npu.watts * cost.npus
    energy = (
        cost.energy_dollars(terms.years, terms.kwh_dollars) + watts / 1000 * HOURS_PER_YEAR * terms.years * terms.kwh_dollars
    )
    found = Owned(cost.dollars + terms.npu.dollars * cost.npus, energy)
    if not found.tco_dollars:
        raise InputError(f"cost: nothing of {cost.topology} costs anything; give prices above 0, or --npu")
    return found
