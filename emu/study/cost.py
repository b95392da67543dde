"""The price and the power of a network, by the prices of its parts, and what a machine with it costs to own. N NPUs.

The prices of parts, as sources print them, are a price book, which is a TOML file. A book is of one source, or gives each price
its own source, and a range where sources differ.

name = "mine"
source = "offers of May 2026"

[any]                          # of every system; [nvl], [ub-mesh] or ["fat-tree:pgft"] are of those alone
free = ["link*"]               # parts of a bill that nothing is paid for, or that another part's price holds
tiers = ["leaf to spine"]      # of whose links injection is counted; a section without has those of [any], else all count

[any.parts]
"NVLink switch" = { dollars = 28000, watts = 275 }
"optical module" = { dollars = [360, 1000], watts = 12, source = "two papers" }
"link x*" = { dollars = 20 }   # of a lane: a `link x4` costs four times as much

[any.unpriced]
"WSS" = "no paper prints its price"
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.errors import InputError, must_be
from emu.topology.description.values import check_keys, load_toml
from emu.topology.facts.facts import bisection, exchange_rate
from emu.topology.topology import Topology

ANY = "any"
_LANES = re.compile(r"(?<=x)\d+(?![\d.])")


class Price(NamedTuple):
    """The price in dollars and the power in watts of one network part, such as a switch."""

    dollars: float
    watts: float


@dataclass(frozen=True, slots=True)
class PartPrice:
    """The price and the power of a network part: the lowest and the highest that the sources of a book have."""

    low: Price
    high: Price
    source: str = ""  # "": that of the book

    def times(self, lanes: int) -> "PartPrice":
        """Return the price and power of a link with `lanes` lanes, if this is that of one lane."""
        low, high = (Price(each.dollars * lanes, each.watts * lanes) for each in (self.low, self.high))
        return PartPrice(low, high, self.source)


@dataclass(frozen=True, slots=True)
class Section:
    """The prices of a book for one kind of system, or for every system.

    `free`, `tiers` and `unpriced` are patterns of names of parts: parts that cost nothing, tiers of links, parts without a
    price.
    """

    parts: Mapping[str, PartPrice]
    free: tuple[str, ...]  # patterns, as of file names
    tiers: tuple[str, ...]  # patterns; (): none is named
    unpriced: Mapping[str, str]  # why parts have no price, by their patterns

    def price(self, part: str) -> PartPrice | None:
        """Return the price of a network part; None if it has none. That of `link x4` is four times that of `link x*`."""
        found = self.entry(part)
        return None if found is None else self.parts[found[0]].times(found[1])

    def entry(self, part: str) -> tuple[str, int] | None:
        """Return the name under which a network part has its price, and how often it is paid; None if it has none.

        A `link x4` is paid as four of `link x*`.
        """
        if part in self.parts:
            return part, 1
        for lanes in _LANES.finditer(part):
            of_lane = f"{part[: lanes.start()]}*{part[lanes.end() :]}"
            if of_lane in self.parts:
                return of_lane, int(lanes[0])
        return None

    def is_free(self, part: str) -> bool:
        """Return whether a network part counts as free; a price of its own or an entry in `unpriced` overrides this."""
        is_named = self.price(part) is not None or bool(self.why_unpriced(part))
        return not is_named and any(fnmatchcase(part, pattern) for pattern in self.free)

    def why_unpriced(self, part: str) -> str:
        """Return the reason why a part has no price; "" if the section gives none."""
        return next((why for pattern, why in self.unpriced.items() if fnmatchcase(part, pattern)), "")

    def over(self, other: "Section") -> "Section":
        """Return both sections merged; where both have an entry, that of this section counts."""
        kept = {part: price for part, price in other.parts.items() if not self.why_unpriced(part)}
        return Section(
            kept | dict(self.parts),
            other.free + self.free,
            self.tiers or other.tiers,
            dict(other.unpriced) | dict(self.unpriced),
        )


class UnpricedError(InputError):
    """The error of a network of which a part has no price in a book."""

    def __init__(self, book: str, line: str, mend: str) -> None:
        super().__init__(f"{book}: {line}; {mend}")
        self.field, self.value, self.mend = "--prices", book, mend


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The prices of network parts from one source, in sections for kinds of systems."""

    name: str
    source: str
    sections: Mapping[str, Section]

    def of(self, topology: Topology) -> Section:
        """Return the prices for a topology.

        They are those of its own sections and, for parts that these lack, those of the section of every system.

        Raises:
            UnpricedError: The book has none of these sections.
        """
        system, _, rest = topology.name.partition(":")
        named = ANY, system, f"{system}:{rest.partition(':')[0]}"
        found = [self.sections[name] for name in named if name in self.sections]
        if not found:
            known = ", ".join(sorted(self.sections))
            line = f"prices must be of {system}, or of any, got {known!r}"
            raise UnpricedError(self.name, line, f"give a section [{system}.parts]")
        return reduce(lambda other, own: own.over(other), found)


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
    check_keys(given, ("parts", "free", "tiers", "unpriced"), where)
    parts, unpriced = (_table(given, key, where) for key in ("parts", "unpriced"))
    prices = {part: _price(price, f"{where}, {part!r}") for part, price in parts.items()}
    for part, why in unpriced.items():
        if not isinstance(why, str):
            raise must_be(where, f"unpriced, {part!r}", "the reason, in quotes", why)
    return Section(prices, tuple(_list_of_names(given, "free", where)), tuple(_list_of_names(given, "tiers", where)), unpriced)


def _table(given: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """Return the table under a key of a table; an empty table if the key is missing."""
    found = given.get(key, {})
    if not isinstance(found, dict):
        raise must_be(where, key, "a table", found)
    return found


def _list_of_names(given: Mapping[str, Any], key: str, where: str) -> list[str]:
    """Return a list of names from a table."""
    found = given.get(key, [])
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise must_be(where, key, "names in brackets, such as ['link*']", found)
    return found


def _price(given: Any, where: str) -> PartPrice:
    """Return the price of a part from its table."""
    if not isinstance(given, dict):
        raise must_be(where, "a price", "{ dollars = 35.6, watts = 0.1 }", given)
    check_keys(given, (*Price._fields, "source"), where)
    source = given.get("source", "")
    if not isinstance(source, str):
        raise must_be(where, "source", "text in quotes", source)
    ends = [_ends(given.get(key, 0.0), key, where) for key in Price._fields]
    low, high = (Price(*each) for each in zip(*ends, strict=True))
    return PartPrice(low, high, source)


def _ends(value: Any, key: str, where: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a number, or of a pair of numbers."""
    pair = value if isinstance(value, list) else [value, value]
    if any(isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each < float("inf") for each in pair):
        raise must_be(where, key, "a number of 0 or more", value)
    if len(pair) != 2 or pair[0] > pair[1]:
        raise must_be(where, key, "a number, or the lowest and the highest, such as [360, 1000]", value)
    return float(pair[0]), float(pair[1])


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
        InputError: The topology has no such tier; or as `exchange_rate`.
    """
    section = book.of(topology)
    prices = {part: section.price(part) for part in topology.bill}
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
    return UnpricedError(book.name, f"no price for {', '.join(told)} of {topology.name}", mend)


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
    links = topology.links
    counted = links.src < topology.n_npus
    if section.tiers:
        named = [i for i, each in enumerate(topology.tiers) if any(fnmatchcase(each, tier) for tier in section.tiers)]
        counted &= np.isin(links.dimension, named)
    return float(links.bandwidth_Bps[counted].sum()) / topology.n_npus


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
