"""The prices and the power of parts of networks, as sources print them: a price book, which is a TOML file.

A book is of one source, or gives each price its own source, and a range where sources differ.

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
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import InputError, must_be
from emu.topology.description.values import check_keys, load_toml
from emu.topology.topology import Topology

ANY = "any"
_LANES = re.compile(r"(?<=x)\d+(?![\d.])")


class Price(NamedTuple):
    """The price and the power of one part."""

    dollars: float
    watts: float


@dataclass(frozen=True, slots=True)
class PartPrice:
    """The price and the power of a part by the sources of a book, from the lowest to the highest."""

    low: Price
    high: Price
    source: str = ""  # "": that of the book

    def times(self, lanes: int) -> "PartPrice":
        """Return the price of so many of it."""
        low, high = (Price(each.dollars * lanes, each.watts * lanes) for each in (self.low, self.high))
        return PartPrice(low, high, self.source)


@dataclass(frozen=True, slots=True)
class Section:
    """The entries of a book for one system, or for all."""

    parts: Mapping[str, PartPrice]
    free: tuple[str, ...]  # patterns, as of file names
    tiers: tuple[str, ...]  # patterns; (): none is named
    unpriced: Mapping[str, str]  # why parts have no price, by their patterns

    def price(self, part: str) -> PartPrice | None:
        """Return the price of a part: its own, or as many times that of `link x*` as its name, such as `link x4`, has lanes."""
        own = self.parts.get(part)
        if own is not None:
            return own
        for lanes in _LANES.finditer(part):
            of_lane = self.parts.get(f"{part[: lanes.start()]}*{part[lanes.end() :]}")
            if of_lane is not None:
                return of_lane.times(int(lanes[0]))
        return None

    def is_free(self, part: str) -> bool:
        """Return whether nothing is paid for a part; a price in the section, or that it has none, overrides this."""
        is_named = self.price(part) is not None or bool(self.why_unpriced(part))
        return not is_named and any(fnmatchcase(part, pattern) for pattern in self.free)

    def why_unpriced(self, part: str) -> str:
        """Return why a part has no price; "": the section does not say that it has none."""
        return next((why for pattern, why in self.unpriced.items() if fnmatchcase(part, pattern)), "")

    def over(self, other: "Section") -> "Section":
        """Return the entries of both; those of this section go before those of the other."""
        kept = {part: price for part, price in other.parts.items() if not self.why_unpriced(part)}
        return Section(
            kept | dict(self.parts),
            other.free + self.free,
            self.tiers or other.tiers,
            dict(other.unpriced) | dict(self.unpriced),
        )


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices of one source."""

    name: str
    source: str
    sections: Mapping[str, Section]

    def of(self, topology: Topology) -> Section:
        """Return the entries for a topology: its own sections, together with the section of every system.

        Raises:
            InputError: The book has no entry for it.
        """
        system, _, rest = topology.name.partition(":")
        named = ANY, system, f"{system}:{rest.partition(':')[0]}"
        found = [self.sections[name] for name in named if name in self.sections]
        if not found:
            known = ", ".join(sorted(self.sections))
            raise must_be(self.name, "prices", f"of {system}, or of any", known, f"give a section [{system}.parts]")
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
    return Section(prices, tuple(_words(given, "free", where)), tuple(_words(given, "tiers", where)), unpriced)


def _table(given: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """Return a table in a table; an empty one if it is not there."""
    found = given.get(key, {})
    if not isinstance(found, dict):
        raise must_be(where, key, "a table", found)
    return found


def _words(given: Mapping[str, Any], key: str, where: str) -> list[str]:
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
