"""The price and the power of a network, by the prices of its parts, and what a machine with it costs to own. N NPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from emu.errors import InputError, must_be
from emu.study.cost.price_book import Price, PriceBook, Section, UnpricedError, in_tiers
from emu.topology.facts.facts import bisection, exchange_rate, injection_rates
from emu.topology.topology import Topology

HOURS_PER_YEAR = 8760.0


@dataclass(frozen=True, slots=True)
class Cost:
    """The price and the power of one network, at the lowest prices; GB/s are 1e9 bytes per second in one direction."""

    topology: str
    prices: str
    npus: int
    parts: Mapping[str, tuple[int, Price]]  # how many, and what one costs
    free: tuple[str, ...]  # parts of the bill that nothing is paid for
    dollars: float
    watts: float
    injection_GBps: float  # of an NPU, in the mean
    global_GBps: float | None  # of an NPU: what half of the NPUs send to the other half, for each of them; None: not asked
    exchange_GBps: float | None = None  # of an NPU: what it sends while all send to all others; None: not asked
    sources: Mapping[str, str] = field(default_factory=dict)  # of the price of each part, where the book gives one
    high: "Cost | None" = None  # the same at the highest prices; None: there is one price for each part

    @property
    def dollars_per_npu(self) -> float:
        """Dollars of the network for each NPU; of the network alone, unless the book has a price for NPUs."""
        return self.dollars / self.npus

    @property
    def watts_per_npu(self) -> float:
        """The power of the network, in watts, divided by the number of NPUs."""
        return self.watts / self.npus

    @property
    def dollars_per_injection_GBps(self) -> float:  # noqa: N802 -- a unit's case has a meaning
        """Dollars for each GB/s that an NPU can send."""
        return self.dollars_per_npu / self.injection_GBps

    @property
    def watts_per_injection_GBps(self) -> float:  # noqa: N802
        """Watts for each GB/s that an NPU can send."""
        return self.watts_per_npu / self.injection_GBps

    @property
    def dollars_per_global_GBps(self) -> float | None:  # noqa: N802
        """Dollars for each GB/s of bisection bandwidth of an NPU; None if that bandwidth is 0 or was not computed."""
        return self.dollars_per_npu / self.global_GBps if self.global_GBps else None

    @property
    def watts_per_global_GBps(self) -> float | None:  # noqa: N802
        """Watts for each GB/s of bisection bandwidth of an NPU; None if that bandwidth is 0 or was not computed."""
        return self.watts_per_npu / self.global_GBps if self.global_GBps else None

    @property
    def dollars_per_exchange_GBps(self) -> float | None:  # noqa: N802
        """Dollars for each GB/s of all-to-all bandwidth of an NPU; None if that bandwidth was not computed."""
        return self.dollars_per_npu / self.exchange_GBps if self.exchange_GBps else None

    def aggregate_dollars_per_npu(self, availability: float, npu_dollars: float) -> float:
        """Return the dollars of the network and of NPUs that are faulty or find no group, for each NPU.

        InfiniteHBD 6.5, Figure 17d.

        Args:
            availability: The share of the NPUs that are in groups, in the mean over the time.
            npu_dollars: The price of an NPU.
        """
        return self.dollars_per_npu + npu_dollars * (1 - availability)

    def energy_dollars(self, years: float, kwh_dollars: float) -> float:
        """Return the price of the energy over some years at full power."""
        return self.watts / 1000 * HOURS_PER_YEAR * years * kwh_dollars


def cost(topology: Topology, book: PriceBook, *, across: bool = False, exchange: bool = False) -> Cost:
    """Return the cost of a topology at the prices of a book.

    Args:
        topology: The topology with its bill.
        book: The book, with a price for each part of the bill.
        across: Whether to compute global bandwidth, by `facts.bisection`; this takes seconds for 100,000 NPUs.
        exchange: Whether to compute the bandwidth of an all-to-all, by `exchange_rate`.

    Raises:
        UnpricedError: A part of the bill has no price.
        InputError: The topology has no such tier or no one bandwidth there; or as `exchange_rate`.
    """
    section = book.of(topology)
    prices = {part: section.price_on(part, topology) for part in topology.bill}
    if missing := [part for part in topology.bill if prices[part] is None and not section.is_free(part)]:
        raise _unpriced(topology, book, missing)
    paid = {part: price for part, price in prices.items() if price is not None}
    low = Cost(
        topology.name,
        book.name,
        topology.n_npus,
        free=tuple(part for part in topology.bill if section.is_free(part)),
        injection_GBps=_injection(topology, section, book.name) / 1e9,
        global_GBps=bisection(topology)[0] / max(1, topology.n_npus // 2) / 1e9 if across else None,
        exchange_GBps=exchange_rate(topology) / 1e9 if exchange else None,
        sources={part: price.source for part, price in paid.items() if price.source},
        **_cost_fields(topology, {part: price.low for part, price in paid.items()}),
    )
    if all(price.low == price.high for price in paid.values()):
        return low
    return replace(low, high=replace(low, **_cost_fields(topology, {part: price.high for part, price in paid.items()})))


def _unpriced(topology: Topology, book: PriceBook, missing: Sequence[str]) -> UnpricedError:
    """Return the error for parts of a topology that have no price in a book."""
    section = book.of(topology)
    told = [f"{part!r}{f' ({why})' if (why := section.why_unpriced(part)) else ''}" for part in missing]
    mend = "give --prices a .toml file that has a price of it, or its name in `free`"
    return UnpricedError.of(book.name, f"no price for {', '.join(told)} of {topology.name}", mend)


def _cost_fields(topology: Topology, prices: Mapping[str, Price]) -> dict[str, Any]:
    """Return the fields of a `Cost` that depend on what each part costs."""
    parts = {part: (topology.bill[part], price) for part, price in prices.items()}
    dollars, watts = (sum(count * getattr(price, name) for count, price in parts.values()) for name in Price._fields)
    return {"parts": parts, "dollars": dollars, "watts": watts}


def _injection(topology: Topology, section: Section, name: str) -> float:
    """Return the bytes per second out of an NPU, in the mean, over links of the tiers that the book counts."""
    unknown = [tier for tier in section.tiers if not any(fnmatchcase(each, tier) for each in topology.tiers)]
    if unknown:
        raise must_be(name, f"tiers of {topology.name}", f"some of {', '.join(topology.tiers)}", ", ".join(unknown))
    counted = in_tiers(topology, section.tiers) if section.tiers else None
    return float(injection_rates(topology, counted)[: topology.n_npus].mean())


@dataclass(frozen=True, slots=True)
class OwnershipTerms:
    """The terms on which the cost of owning a machine is computed: the NPU's price, the years, and the price of a kWh."""

    npu: Price  # the price and the power of an NPU; 0 dollars if nobody names a price
    years: float  # the time for which the machine runs
    kwh_dollars: float  # the price of energy, in dollars per kWh


@dataclass(frozen=True, slots=True)
class OwnershipCost:
    """The cost of owning a machine: the price and the power of its network and of its NPUs."""

    capex_dollars: float
    opex_dollars: float  # energy of all parts at full power

    @property
    def tco_dollars(self) -> float:
        """Capital and operating expenses."""
        return self.capex_dollars + self.opex_dollars

    def per_second_and_dollar(self, amount_per_s: float, share: float = 1.0) -> float:
        """Return performance for each dollar of TCO, such as tokens per second, for a job on a share of the machine."""
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
