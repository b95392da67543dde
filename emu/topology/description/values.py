"""Parsers of single values in a description of a topology; an error names the file and the entry."""

import csv
import difflib
import io
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import InputError, at_place, must_be
from emu.files import read_input
from emu.registry import unknown
from emu.units import parse_bandwidth, parse_time

_ROUTES = ("shortest", "by-dimension")
_MOST_COST = 2**16 - 1  # largest cost of a link, as in OSPF


class RoutingSettings(NamedTuple):
    """The settings by which a described topology is routed.

    They are its dims, whether routes follow the dims in order, and whether NPUs relay messages for others.
    """

    dims: tuple[int, ...] = ()
    by_dimension: bool = False
    npus_relay: bool | None = None  # None: NPUs relay where there are no switches


BUILD_IT = "give whole groups of nodes an entry in TOML, or build it in Python by @topology (--import FILE.py)"  # if too large
ROUTING_KEYS = ("dims", "routes", "npus_relay")


def load_toml(path: Path, what: str, name: str, mend: str = "") -> dict[str, Any]:
    """Return the table of a TOML file.

    Args:
        path: The path of the file.
        what: The subject of the file, for messages.
        name: The name of the file in messages.
        mend: What to do about a file that is too large.

    Raises:
        InputError: The file cannot be read, is too large, or is no TOML.
    """
    try:
        return tomllib.loads(read_input(what, path, name, mend=mend).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: no TOML: {error}") from None


@contextmanager
def csv_rows(path: Path, what: str, name: str, needed: Sequence[str]) -> Iterator["csv.DictReader[str]"]:
    """Yield a CSV reader of a file, for use in a `with` block; columns beyond the needed ones are ignored.

    The mark by which a spreadsheet begins a file of UTF-8 is skipped, and so are spaces after commas.

    Args:
        path: The path of the file.
        what: The subject of the file, for messages.
        name: The name of the file in messages.
        needed: The required columns.

    Raises:
        InputError: The file cannot be read, is too large or no CSV, or a column is missing. Errors of the block pass through.
    """
    try:
        text = io.StringIO(read_input(what, path, name).decode("utf-8-sig"), newline="")
        reader = csv.DictReader(text, skipinitialspace=True, strict=True)
        missing = [column for column in needed if column not in (reader.fieldnames or ())]
        if missing:
            raise InputError(f"{name}, line 1: columns missing: {', '.join(missing)}; those needed are {', '.join(needed)}")
        yield reader
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: no CSV: {error}") from None
    except csv.Error as error:
        raise InputError(f"{name}, line {reader.line_num + 1}: no CSV: {error}") from None  # the row that begins there


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put the file and the entry `where` before the message of each InputError that is raised within the context.

    Raises:
        InputError: An InputError was raised within.
    """
    try:
        yield
    except InputError as error:
        raise at_place(where, error) from None


def read_rate(value: object, where: str) -> float:
    """Return a bandwidth in bytes per second, one direction.

    Raises:
        InputError: The value is no rate above 0 with its unit.
    """
    with located(where):
        if not isinstance(value, str):
            raise must_be("", "bandwidth", "a rate in quotes with its unit, such as '50GB/s' or '400Gb/s'", value)
        return parse_bandwidth(value)


def read_latency(value: object, where: str) -> int:
    """Return the latency of a link in ticks.

    Raises:
        InputError: The value is no time of 0 or more with its unit.
    """
    with located(where):
        if not isinstance(value, str) or re.fullmatch(r"[\d.eE+-]+", value):
            raise must_be("", "latency", "a time in quotes with its unit, such as '500ns'", value)
        return parse_time(value, "latency")


def read_count(value: object, name: str, where: str) -> int:
    """Return a whole number of 1 or more, from a number or from a text of digits.

    Raises:
        InputError: The value is something else.
    """
    plain = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        plain = int(value)
    if plain is None or plain < 1:
        raise must_be(where, name, "a whole number of 1 or more", value)
    return plain


def read_cost(given: Mapping[str, Any], where: str) -> int:
    """Return the cost of a link; 0 if the entry has none.

    Raises:
        InputError: The value is no whole number of 1 to 65535.
    """
    if given.get("cost") in (None, ""):
        return 0
    found = read_count(given["cost"], "cost", where)
    if found > _MOST_COST:
        raise must_be(where, "cost", f"at most {_MOST_COST}", found)
    return found


def read_dims(value: object, where: str) -> tuple[int, ...]:
    """Return the sizes of the dims, from `[3, 4]` or `3x4`.

    Raises:
        InputError: The value is something else.
    """
    sizes = value.split("x") if isinstance(value, str) else value
    if not isinstance(sizes, list | tuple) or not sizes:
        raise must_be(where, "dims", "sizes such as [3, 4] or '3x4'", value)
    return tuple(read_count(size, "each of dims", where) for size in sizes)


def read_bool(value: object, name: str, where: str) -> bool:
    """Return a setting that is true or false, from a truth value or from the text `true` or `false`.

    Raises:
        InputError: The value is something else.
    """
    known = {"true": True, "false": False}
    found = known.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise must_be(where, name, "true or false", value)
    return found


def read_word(value: object, name: str, known: Collection[str], where: str) -> str:
    """Return the value after the check that it is one of the known words.

    Raises:
        InputError: It is not; the message names the closest known word.
    """
    if not isinstance(value, str):
        raise must_be(where, name, f"one of {', '.join(known)}", value)
    if value not in known:
        raise InputError(f"{where}: {unknown(name, value, known)}")
    return value


def read_routing(given: Mapping[str, Any], where: str) -> RoutingSettings:
    """Return the routing settings, parsed from the keys of a file.

    Raises:
        InputError: A value is invalid, or routes by dimension are asked for without dims.
    """
    found = RoutingSettings(
        read_dims(given["dims"], where) if "dims" in given else (),
        read_word(given.get("routes", "shortest"), "routes", _ROUTES, where) == "by-dimension",
        read_bool(given["npus_relay"], "npus_relay", where) if "npus_relay" in given else None,
    )
    if found.by_dimension and not found.dims:
        raise InputError(f"{where}: routes by dimension need dims; give the sizes of the NPU numbering, such as 3x4")
    return found


def check_keys(given: Iterable[str], known: Collection[str], where: str, *, others: bool = False) -> None:
    """Check that every key is known.

    Args:
        given: The keys as they are written.
        known: The keys that have a meaning.
        where: The file and the entry, for messages.
        others: Whether other keys may be there, such as those of a drawing; a misspelt known key is refused even then.

    Raises:
        InputError: A key is unknown; the message names the nearest.
    """
    for key in (key for key in given if key not in known):
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.75 if others else 0.5)
        if near or not others:
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"
            raise InputError(f"{where}: unknown key {key!r}; {hint}")
