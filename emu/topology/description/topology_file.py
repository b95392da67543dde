"""Topologies from a user's own file; the suffix of its name gives the notation.

Also here: topologies as lists of cables in CSV: `a,b,bandwidth,latency`, and `count`, `tier` and `cost` where they are wanted.
"""

import csv
import io
from collections.abc import Callable
from pathlib import Path

from emu.errors import InputError, either, must_be
from emu.files import read_input
from emu.topology.description.assembly import TopologyDescription, assemble
from emu.topology.description.node_names import ListedCable, by_name, description_of, read_row
from emu.topology.description.toml_groups import read_toml
from emu.topology.description.values import BUILD_IT, check_keys
from emu.topology.topology import Topology

_NEEDED = ("a", "b", "bandwidth", "latency")
_OPTIONAL = ("count", "tier", "cost")


def read_csv(path: Path, where: str) -> TopologyDescription:
    """Return the topology that a CSV file describes.

    Each line is a cable. Nodes called 0, 1, 2, ... are NPUs, the others are switches.

    Raises:
        InputError: The head is missing, a column is unknown, a value is invalid, or NPUs are not called 0, 1, 2, ....
    """
    try:
        text = read_input("topology", path, where, mend=BUILD_IT).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{where}: no CSV: {error}") from None
    places = _places(lines[0][1] if lines else [], f"{where}, line 1")
    lines = [(line, cells) for line, cells in lines[1:] if any(cells)]
    listed = [_row(cells, places, f"{where}, line {line}") for line, cells in lines]
    named = by_name((name for row in listed for name in row[:2]), where)
    return description_of(where, listed, named, lambda row: f"line {lines[row][0]}")


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


def _read_graphml(path: Path, where: str) -> TopologyDescription:
    """Read a GraphML file as `read_graphml` does, which is imported here because it loads networkx.

    Args:
        path: The file.
        where: The name of the file in messages.
    """
    from emu.topology.description.networkx_graph import read_graphml

    return read_graphml(path, where)


READERS: dict[str, Callable[[Path, str], TopologyDescription]] = {
    ".toml": read_toml,
    ".csv": read_csv,
    ".graphml": _read_graphml,
}


def is_file(text: str) -> bool:
    """Return whether a text that names a topology names a file."""
    named = any(Path(word).suffix.lower() in READERS for word in (text, text.partition(":")[0]))
    return named or (Path(text).suffix != "" and Path(text).is_file())


def read_file(text: str) -> Topology:
    """Return the topology that a file describes; its path, as it is written, is its name.

    Raises:
        InputError: The file cannot be read, or describes no topology; the message names the file, and the line or the entry.
    """
    path = Path(text)
    reader = READERS.get(path.suffix.lower())
    if reader is None and path.is_file():
        raise must_be("topology", "a file", f"one that ends in {either(READERS)}", text)
    if reader is None:
        raise InputError(f"topology: {text!r} is a file, which takes no settings; write them into it")
    return assemble(reader(path, text))
