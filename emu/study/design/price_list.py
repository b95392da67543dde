"""The money and the power of the points of a design space, as amounts of things that have a price. P points, K things.

A thing is a part in a price book, an NPU of one device, or a kilowatt-hour. So the dollars of all points follow from the prices
of things by one product, and a price can be changed for all points at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64
from emu.errors import InputError
from emu.study.cost.network_cost import HOURS_PER_YEAR, OwnershipTerms, cost
from emu.study.cost.price_book import ANY, Price, PriceBook
from emu.topology.topology import Topology

ENERGY = "kWh"


class PricedThing(NamedTuple):
    """A thing that has a price: its name, and the lowest and the highest price and power that sources have for it."""

    name: str
    low: Price
    high: Price

    @property
    def middle(self) -> Price:
        """The price and the power halfway between the lowest and the highest."""
        return Price(*((low + high) / 2 for low, high in zip(self.low, self.high, strict=True)))


Amounts = Mapping[PricedThing, float]  # how much of each thing a point takes


def amounts_of(topology: Topology, npus: int, device: str, book: PriceBook, terms: OwnershipTerms) -> dict[PricedThing, float]:
    """Return how much of each thing a job on some NPUs of a topology takes; of a larger machine it takes its share.

    Args:
        topology: The topology.
        npus: The number of NPUs of the job.
        device: The name of the device.
        book: The prices of parts.
        terms: The price of an NPU, and the years and the price of its energy.

    Raises:
        InputError: a part has no price, or the book has a price for NPUs and another is given.
    """
    bought, section, share = cost(topology, book), book.of(topology), npus / topology.n_npus
    if "NPU" in bought.parts and any(terms.npu):
        raise InputError(f"design: the book {book.name} has a price for an NPU; leave out --npu, or name NPU in `free`")
    found: dict[PricedThing, float] = {}
    for part, (count, _) in bought.parts.items():
        entry = section.entry(part)
        assert entry is not None  # else `cost` has refused it
        name, lanes = entry
        price = section.parts[name]
        times = price.paid_on(topology, lanes)
        thing = PricedThing(_thing_name(name, topology, book), price.low, price.high)
        found[thing] = found.get(thing, 0.0) + count * times * share
    if any(terms.npu):
        found[PricedThing(f"NPU {device}", terms.npu, terms.npu)] = float(npus)
    if terms.years:
        kwh = sum(amount * thing.middle.watts for thing, amount in found.items()) / 1000 * HOURS_PER_YEAR * terms.years
        found[PricedThing(ENERGY, *[Price(terms.kwh_dollars, 0.0)] * 2)] = kwh
    return found


def _thing_name(part: str, topology: Topology, book: PriceBook) -> str:
    """Return the name of a part that has a price: with that of its system, where the price is not one of every system."""
    every = book.sections.get(ANY)
    if every is not None and every.parts.get(part) == book.of(topology).parts[part]:
        return part
    return f"{part} of {topology.name.partition(':')[0]}"


@dataclass(frozen=True, eq=False, slots=True)
class PriceList:
    """How much of each thing each point takes, and what the things cost."""

    things: tuple[PricedThing, ...]
    amounts: F64  # [P, K]

    @staticmethod
    def of(points: Sequence[Amounts]) -> "PriceList":
        """Return the price list of points; things are in the order in which points first have them."""
        things = {thing: number for number, thing in enumerate(dict.fromkeys(thing for point in points for thing in point))}
        amounts = np.zeros((len(points), len(things)))
        for number, point in enumerate(points):
            for thing, amount in point.items():
                amounts[number, things[thing]] = amount
        return PriceList(tuple(things), amounts)

    def prices(self, end: str) -> F64:
        """Return [K] the dollars of one of each thing: `low`, `middle` or `high`."""
        return np.array([getattr(thing, end).dollars for thing in self.things])

    def dollars(self, end: str) -> F64:
        """Return [P] the dollars of each point at one end of the prices: `low`, `middle` or `high`."""
        return self._sums(self.prices(end))

    def watts(self) -> F64:
        """Return [P] the watts of each point, halfway between the lowest and the highest of sources."""
        return self._sums(np.array([thing.middle.watts for thing in self.things]))

    def _sums(self, each: F64) -> F64:
        """Return [P] the sums over all things of amounts times a number of each thing [K], added in their order.

        A product of matrices would add in an order that depends on the machine.
        """
        found = np.zeros(len(self.amounts))
        for number, value in enumerate(each):
            found += self.amounts[:, number] * value
        return found
