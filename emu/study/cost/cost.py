"""The price and the power of a network, and what a machine with it costs to own. N NPUs.

A price book says what parts cost and draw, as one source prints it. Books are never mixed: they contradict one another.

name = "mine"
source = "offers of May 2026"

[any]                          # of every system; [nvl], [tpuv4] and so on are of those alone
free = ["link*"]               # parts of a bill that nothing is paid for, or that another part's price holds
tiers = ["leaf to spine"]      # of whose links injection is counted; a section without has those of [any], else all count

[any.parts]
"NVLink switch" = { dollars = 28000, watts = 275 }
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.errors import InputError, must_be
from emu.topology.description.values import check_keys, load_toml
from emu.topology.facts.facts import bisection, exchange_rate
from emu.topology.topology import Topology

ANY = "any"
HOURS_PER_YEAR = 8760.0


class Price(NamedTuple):
    """The price and the power of one part."""

    dollars: float
    watts: float


@dataclass(frozen=True, slots=True)
class Section:
    """The entries of a book for one system, or for all."""

    parts: Mapping[str, Price]
    free: tuple[str, ...]  # patterns, as of file names
    tiers: tuple[str, ...]  # (): none is named

    def is_free(self, part: str) -> bool:
        """Return whether nothing is paid for a part; a price in the section overrides this."""
        return part not in self.parts and any(fnmatchcase(part, pattern) for pattern in self.free)


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices of one source."""

    name: str
    source: str
    sections: Mapping[str, Section]

    def of(self, topology: Topology) -> Section:
        """Return the entries for a topology: its own section, together with the section of every system.

        Raises:
            InputError: The book has no entry for it.
        """
        system = topology.name.partition(":")[0]
        found = [self.sections[name] for name in (ANY, system) if name in self.sections]
        if not found:
            known = ", ".join(sorted(self.sections))
            raise must_be(self.name, "prices", f"of {system}, or of any", known, f"give a section [{system}.parts]")
        parts = {part: price for section in found for part, price in section.parts.items()}
        tiers = next((section.tiers for section in reversed(found) if section.tiers), ())
        return Section(parts, tuple(part for section in found for part in section.free), tiers)


def read_book(path: Path, name: str) -> PriceBook:
    """Return the price book of a TOML file.

    Args:
        path: The path of the file.
        name: The name in error messages.

    Raises:
        InputError: The file is missing or no TOML, a key is unknown, or a price is impossible.
    """
    given = load_toml(path, "prices", name)
    words = {key: given.pop(key, default) for key, default in (("name", path.stem), ("source", ""))}
    for key, value in words.items():
        if not isinstance(value, str):
            raise must_be(name, key, "text in quotes", value)
    sections = {system: _section(found, f"{name}, [{system}]") for system, found in given.items()}
    if not sections:
        raise InputError(f"{name}: no prices; give a section [{ANY}.parts]")
    return PriceBook(words["name"], words["source"], sections)


def _section(given: Any, where: str) -> Section:
    """Return a section of a book from its table."""
    if not isinstance(given, dict):
        raise must_be(where, "a section", "a table", given)
    check_keys(given, ("parts", "free", "tiers"), where)
    parts = given.get("parts", {})
    if not isinstance(parts, dict):
        raise must_be(where, "parts", "a table", parts)
    prices = {part: _price(price, f"{where}, {part!r}") for part, price in parts.items()}
    return Section(prices, tuple(_words(given, "free", where)), tuple(_words(given, "tiers", where)))


def _words(given: Mapping[str, Any], key: str, where: str) -> list[str]:
    """Return a list of names from a table."""
    found = given.get(key, [])
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise must_be(where, key, "names in brackets, such as ['link*']", found)
    return found


def _price(given: Any, where: str) -> Price:
    """Return the price of a part from its table."""
    if not isinstance(given, dict):
        raise must_be(where, "a price", "{ dollars = 35.6, watts = 0.1 }", given)
    check_keys(given, Price._fields, where)
    values = [given.get(key, 0.0) for key in Price._fields]
    for key, value in zip(Price._fields, values, strict=True):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise must_be(where, key, "a number of 0 or more", value)
    return Price(*map(float, values))


@dataclass(frozen=True, slots=True)
class Cost:
    """The price and the power of one network; GB/s are 1e9 bytes per second, one direction."""

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

    @property
    def dollars_per_npu(self) -> float:
        """Dollars of the network for each NPU; of the network alone, unless the book has a price for NPUs."""
        return self.dollars / self.npus

    @property
    def watts_per_npu(self) -> float:
        """Watts of the network for each NPU."""
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
        """Dollars for each GB/s of an NPU across the middle; None: it was not computed, or is 0."""
        return self.dollars_per_npu / self.global_GBps if self.global_GBps else None

    @property
    def watts_per_global_GBps(self) -> float | None:  # noqa: N802
        """Watts for each GB/s of an NPU across the middle; None: it was not computed, or is 0."""
        return self.watts_per_npu / self.global_GBps if self.global_GBps else None

    @property
    def dollars_per_exchange_GBps(self) -> float | None:  # noqa: N802
        """Dollars for each GB/s of an NPU in an all-to-all of all NPUs; None: it was not computed."""
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
        InputError: A part of the bill has no price, or the topology has no such tier; or as `exchange_rate`.
    """
    section = book.of(topology)
    missing = [part for part in topology.bill if part not in section.parts and not section.is_free(part)]
    if missing:
        what = f"no price for {', '.join(map(repr, missing))} of {topology.name}"
        raise InputError(f"{book.name}: {what}; give one, or name the part in `free`")
    parts = {part: (count, section.parts[part]) for part, count in topology.bill.items() if part in section.parts}
    injection = _injection(topology, section, book.name) / 1e9
    return Cost(
        topology.name,
        book.name,
        topology.n_npus,
        parts,
        tuple(part for part in topology.bill if section.is_free(part)),
        sum(count * price.dollars for count, price in parts.values()),
        sum(count * price.watts for count, price in parts.values()),
        injection,
        bisection(topology)[0] / (topology.n_npus / 2) / 1e9 if across else None,
        exchange_rate(topology) / 1e9 if exchange else None,
    )


def _injection(topology: Topology, section: Section, name: str) -> float:
    """Return the bytes per second out of an NPU, in the mean, over links of the tiers that the book counts."""
    unknown = [tier for tier in section.tiers if tier not in topology.tiers]
    if unknown:
        raise must_be(name, f"tiers of {topology.name}", f"some of {', '.join(topology.tiers)}", ", ".join(unknown))
    links = topology.links
    counted = links.src < topology.n_npus
    if section.tiers:
        counted &= np.isin(links.dimension, [topology.tiers.index(tier) for tier in section.tiers])
    return float(links.bandwidth_Bps[counted].sum()) / topology.n_npus


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
