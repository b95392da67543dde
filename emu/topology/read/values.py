"""One value of a topology that a person described: read, or refused in a line that says where it stands."""

import csv
import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.units import parse_bandwidth, parse_time

_ROUTES = ("shortest", "by-dimension")
_MOST_COST = 2**16 - 1  # of a link, as OSPF's


class Routing(NamedTuple):
    """What is said of the routes of a topology."""

    dims: tuple[int, ...] = ()
    by_dimension: bool = False
    npus_relay: bool | None = None  # unless given, where there are no switches


ROUTING_KEYS = ("dims", "routes", "npus_relay")


def load_toml(path: Path, what: str, name: str) -> dict[str, Any]:
    """The table of a TOML file.

    Args:
        path: Of the file.
        what: It describes.
        name: By which messages call it.

    Raises:
        InputError: a file that cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{what}: cannot read {name!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: no TOML: {error}") from None


@contextmanager
def csv_rows(path: Path, what: str, name: str, needed: Sequence[str]) -> Iterator["csv.DictReader[str]"]:
    """The rows of a CSV file, to be read within; columns beyond those needed are passed over.

    Args:
        path: Of the file.
        what: Asks for it.
        name: By which messages call it.
        needed: Columns.

    Raises:
        InputError: a file that cannot be read or is no CSV, or a column that is missing; what is raised within goes through.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in needed if column not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{name}, line 1: columns missing: {', '.join(missing)}; those needed are {', '.join(needed)}")
            yield reader
    except OSError as error:
        raise InputError(f"{what}: cannot read {name!r}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{name}: no CSV: {error}") from None


@contextmanager
def located(where: str) -> Iterator[None]:
    """Begin the message of an error within with the file and the entry, instead of who found it.

    Raises:
        InputError: what was raised within, said to be there.
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {str(error).partition(': ')[2]}") from None


def read_rate(value: object, where: str) -> float:
    """Bytes per second of a bandwidth, one direction.

    Raises:
        InputError: no rate above 0 with its unit.
    """
    with located(where):
        if not isinstance(value, str):
            raise must_be("", "bandwidth", "a rate in quotes with its unit, such as '50GB/s' or '400Gb/s'", value)
        return parse_bandwidth(value)


def read_latency(value: object, where: str) -> int:
    """Ticks of a link.

    Raises:
        InputError: no time of 0 or more with its unit.
    """
    with located(where):
        if not isinstance(value, str) or re.fullmatch(r"[\d.eE+-]+", value):
            raise must_be("", "latency", "a time in quotes with its unit, such as '500ns'", value)
        return parse_time(value, "latency")


def read_count(value: object, name: str, where: str) -> int:
    """A whole number of 1 or more, as a number or a word.

    Raises:
        InputError: something else.
    """
    plain = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        plain = int(value)
    if plain is None or plain < 1:
        raise must_be(where, name, "a whole number of 1 or more", value)
    return plain


def read_cost(given: Mapping[str, Any], where: str) -> int:
    """What a route over a link counts; 0 where nothing is given.

    Raises:
        InputError: no whole number of 1 to 65535.
    """
    if given.get("cost") in (None, ""):
        return 0
    found = read_count(given["cost"], "cost", where)
    if found > _MOST_COST:
        raise must_be(where, "cost", f"at most {_MOST_COST}", found)
    return found


def read_dims(value: object, where: str) -> tuple[int, ...]:
    """Sizes of the dimensions, from `[3, 4]` or `3x4`.

    Raises:
        InputError: something else.
    """
    sizes = value.split("x") if isinstance(value, str) else value
    if not isinstance(sizes, list | tuple) or not sizes:
        raise must_be(where, "dims", "sizes such as [3, 4] or '3x4'", value)
    return tuple(read_count(size, "each of dims", where) for size in sizes)


def read_switch(value: object, name: str, where: str) -> bool:
    """True or false.

    Raises:
        InputError: something else.
    """
    known = {"true": True, "false": False}
    found = known.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise must_be(where, name, "true or false", value)
    return found


def read_word(value: object, name: str, known: Collection[str], where: str) -> str:
    """One of the known words.

    Raises:
        InputError: another; the message names the nearest.
    """
    if not isinstance(value, str):
        raise must_be(where, name, f"one of {', '.join(known)}", value)
    if value not in known:
        with located(where):
            raise unknown(name, value, known)
    return value


def read_routing(given: Mapping[str, Any], where: str) -> Routing:
    """The dims and the routes, where they are given.

    Raises:
        InputError: a value that is none, or routes by dimension without dims.
    """
    found = Routing(
        read_dims(given["dims"], where) if "dims" in given else (),
        read_word(given.get("routes", "shortest"), "routes", _ROUTES, where) == "by-dimension",
        read_switch(given["npus_relay"], "npus_relay", where) if "npus_relay" in given else None,
    )
    if found.by_dimension and not found.dims:
        raise InputError(f"{where}: routes by dimension need dims; give the sizes of the NPU numbering, such as 3x4")
    return found


def check_keys(given: Iterable[str], known: Collection[str], where: str, *, others: bool = False) -> None:
    """Refuse keys that mean nothing here.

    Args:
        given: As written.
        known: That mean something.
        where: The file and the entry.
        others: Whether keys may be there that are no misspelt known ones, as a drawing's.

    Raises:
        InputError: an unknown key; the message names the nearest.
    """
    for key in (key for key in given if key not in known):
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.75 if others else 0.5)
        if near or not others:
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"
            raise InputError(f"{where}: unknown key {key!r}; {hint}")
