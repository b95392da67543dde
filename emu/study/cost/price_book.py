"""Price books: the prices of the parts of networks, as sources print them.

A book is a TOML file. It is of one source, or gives each price its own source, and a range where sources differ.

name = "mine"
source = "offers of May 2026"

[any]                          # of every system; [nvl], [ub-mesh] or ["fat-tree:pgft"] are of those alone
free = ["link*"]               # parts of a bill that nothing is paid for, or that another part's price holds
tiers = ["leaf to spine"]      # of whose links injection is counted; a section without has those of [any], else all count

[any.parts]
"NVLink switch" = { dollars = 28000, watts = 275 }
"optical module" = { dollars = [360, 1000], watts = 12, source = "two papers" }
"link x*" = { dollars = 20 }   # of a lane: a `link x4` costs four times as much
"cable" = { dollars = 64, at = "50GB/s", tier = "NPU to *" }  # twice as fast, twice as dear

[any.unpriced]
"WSS" = "no paper prints its price"
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import Bool
from emu.errors import InputError, must_be
from emu.topology.description.values import check_keys, load_toml
from emu.topology.topology import Topology
from emu.units import format_bandwidth, parse_bandwidth

ANY = "any"
_LANES = re.compile(r"(?<=x)\d+(?![\d.])")


def in_tiers(topology: Topology, patterns: Sequence[str]) -> Bool:
    """Return [L] whether each link of a topology is of a tier that one of some patterns names."""
    named = [i for i, each in enumerate(topology.tiers) if any(fnmatchcase(each, pattern) for pattern in patterns)]
    return np.isin(topology.links.dimension, named)


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
    at_Bps: float = 0.0  # bandwidth of the link of which this is the price; 0: whatever the bandwidth
    tier: str = ""  # pattern of the tier of that link; "": links of all tiers

    def times(self, factor: float) -> "PartPrice":
        """Return the price and power of a part that costs so many times as much."""
        low, high = (Price(each.dollars * factor, each.watts * factor) for each in (self.low, self.high))
        return replace(self, low=low, high=high)

    def paid_on(self, topology: Topology, lanes: int) -> float:
        """Return how often the price is paid for a part of a topology: by its lanes, or by the bandwidth of its links.

        Raises:
            InputError: The topology has no such tier, or links of several bandwidths there.
        """
        if not self.at_Bps:
            return lanes
        if self.tier and not any(fnmatchcase(each, self.tier) for each in topology.tiers):
            known = ", ".join(topology.tiers) or "none"
            raise must_be("prices", f"tier of {topology.name}", f"one of its own ({known})", self.tier)
        chosen = in_tiers(topology, [self.tier]) if self.tier else np.ones(len(topology.links), np.bool_)
        rates = np.unique(topology.links.bandwidth_Bps[chosen]).tolist()
        if len(rates) != 1:
            told = ", ".join(map(format_bandwidth, rates)) or "none"
            where = f"links of {topology.name}" + f", tier {self.tier}" * bool(self.tier)
            raise must_be("prices", where, "of one bandwidth where a price has `at`", told, "name one `tier`")
        return float(rates[0]) / self.at_Bps


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

    def price_on(self, part: str, topology: Topology) -> PartPrice | None:
        """Return the price of a part of a topology, by its bandwidth where the price is that of one; None if it has none.

        Raises:
            InputError: As `PartPrice.paid_on`.
        """
        found = self.entry(part)
        return None if found is None else self.parts[found[0]].times(self.parts[found[0]].paid_on(topology, found[1]))

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

    @staticmethod
    def of(book: str, line: str, mend: str) -> "UnpricedError":
        """Return the error; other processes can send it."""
        found = UnpricedError(f"price book {book}: {line}; {mend}")
        found.field, found.value, found.mend = "--prices", book, mend
        return found


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The prices of network parts from one source, in sections for kinds of systems."""

    name: str
    source: str
    sections: Mapping[str, Section]

    @property
    def has_bandwidths(self) -> bool:
        """True if some price is that of a link of some bandwidth."""
        return any(price.at_Bps for section in self.sections.values() for price in section.parts.values())

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
            raise UnpricedError.of(self.name, line, f"give a section [{system}.parts]")
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
    check_keys(given, (*Price._fields, "source", "at", "tier"), where)
    words = {key: given.get(key, "") for key in ("source", "at", "tier")}
    for key, word in words.items():
        if not isinstance(word, str):
            raise must_be(where, key, "text in quotes", word)
    if words["tier"] and not words["at"]:
        raise must_be(where, "at", "given beside tier, such as '50GB/s'", "none")
    at_Bps = parse_bandwidth(words["at"], f"{where}: at") if words["at"] else 0.0
    ends = [_ends(given.get(key, 0.0), key, where) for key in Price._fields]
    low, high = (Price(*each) for each in zip(*ends, strict=True))
    return PartPrice(low, high, words["source"], at_Bps, words["tier"])


def _ends(value: Any, key: str, where: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a number, or of a pair of numbers."""
    pair = value if isinstance(value, list) else [value, value]
    if any(isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each < float("inf") for each in pair):
        raise must_be(where, key, "a number of 0 or more", value)
    if len(pair) != 2 or pair[0] > pair[1]:
        raise must_be(where, key, "a number, or the lowest and the highest, such as [360, 1000]", value)
    return float(pair[0]), float(pair[1])
