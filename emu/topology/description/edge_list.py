"""Topologies as lists of cables in CSV: `a,b,bandwidth,latency`, and `count`, `tier` and `cost` where they are wanted."""

import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from emu.errors import InputError, must_be
from emu.topology.description.assembly import TopologyDescription
from emu.topology.description.node_names import ListedCable, by_name, description_of, read_row
from emu.topology.description.values import check_keys

_NEEDED = ("a", "b", "bandwidth", "latency")
_OPTIONAL = ("count", "tier", "cost")


def read_csv(path: Path, where: str) -> TopologyDescription:
    """Return the topology that a CSV file describes.

    Each line is a cable. Nodes called 0, 1, 2, ... are NPUs, the others are switches.

    Raises:
        InputError: The head is missing, a column is unknown, a value is invalid, or NPUs are not called 0, 1, 2, ....
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{where}: no CSV: {error}") from None
    places = _places(lines[0][1] if lines else [], f"{where}, line 1")
    lines = [(line, cells) for line, cells in lines[1:] if any(cells)]
    listed = [_row(cells, places, f"{where}, line {line}") for line, cells in lines]
    named = by_name((name for row in listed for name in row[:2]), where)
    return description_of(where, listed, named, partial(_entry, [line for line, _ in lines]))


def _entry(lines: Sequence[int], row: int) -> str:
    """Return the name of a row for messages: its line in the file."""
    return f"line {lines[row]}"


def _places(head: list[str], where: str) -> dict[str, int]:
    """Return the index of each column."""
    check_keys(filter(None, head), _NEEDED + _OPTIONAL, where)
    if len(set(head)) != len(head) or not set(_NEEDED) <= set(head):
        raise must_be(where, "the head", f"{','.join(_NEEDED)}, and count, tier and cost if you like", ",".join(head))
    return {name: place for place, name in enumerate(head)}


def _row(cells: list[str], places: dict[str, int], where: str) -> ListedCable:
    """Return the cable that one row of the CSV file lists."""
    if len(cells) != len(places):
        raise must_be(where, "values", f"as many as the head has, {len(places)}", len(cells))
    given = {name: cells[place] for name, place in places.items() if cells[place] or name not in _OPTIONAL}
    if not given["a"] or not given["b"]:
        raise must_be(where, "a and b", "names of nodes", f"{given['a']},{given['b']}")
    return read_row(given["a"], given["b"], given, where)
