"""A price book: what parts cost and draw, as one source prints it. Books are never mixed: they contradict one another.

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

from emu.errors import InputError, must_be
from emu.topology.description.values import check_keys, load_toml
from emu.topology.topology import Topology

ANY = "any"


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
