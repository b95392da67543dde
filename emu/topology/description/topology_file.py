"""Topologies from a user's own file; the suffix of its name gives the notation.

Each notation lists cables between named nodes; in CSV these are `a,b,bandwidth,latency`, and `count`, `tier` and `cost` where
they are wanted. NPUs are the nodes called 0, 1, 2, ..., or those that say so; the others are switches.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from emu.errors import InputError, either, must_be
from emu.files import read_input
from emu.topology.description.assembly import assemble
from emu.topology.description.canonical_order import CableRows, TopologyDescription
from emu.topology.description.toml_groups import read_toml
from emu.topology.description.values import BUILD_IT, check_keys, read_cost, read_count, read_latency, read_rate
from emu.topology.topology import Topology, check_link_count

_TIER = "link"  # default tier
NodeNames = tuple[tuple[str, ...], int]  # the names of nodes in the order of their numbers, NPUs first; the number of NPUs


# An entry of a list, parallel cables between two nodes: the nodes, bandwidth (B/s), latency (ticks), tier, number, and the cost
# of each (0: none is given).
ListedCable = tuple[str, str, float, int, str, int, int]


def read_row(a: str, b: str, given: Mapping[str, Any], where: str) -> ListedCable:
    """Return the cable between a and b, parsed from the texts of one entry; `bandwidth` and `latency` are required.

    Raises:
        InputError: A value is invalid.
    """
    rate, latency = read_rate(given["bandwidth"], where), read_latency(given["latency"], where)
    count, tier = read_count(given.get("count", 1), "count", where), str(given.get("tier", _TIER))
    return a, b, rate, latency, tier, count, read_cost(given, where)


def by_name(names: Iterable[str], where: str) -> NodeNames:
    """Return the names of nodes in order: NPUs by their numbers, then switches in the order of their first occurrence.

    Raises:
        InputError: There is no NPU, or a number is missing.
    """
    unique = list(dict.fromkeys(names))
    npus = sorted((name for name in unique if name.isascii() and name.isdigit()), key=int)
    if not npus:
        raise InputError(f"{where}: no node is an NPU; NPUs are called 0, 1, 2, ..., any other word is a switch")
    for number, name in enumerate(npus):
        if name != str(number):
            raise must_be(where, "NPUs", f"called 0..{len(npus) - 1}", name, f"none is called {number}")
    numbers = set(npus)
    return (*npus, *(name for name in unique if name not in numbers)), len(npus)


def by_kind(kinds: Mapping[str, str], where: str) -> NodeNames:
    """Return the names of nodes in order, where each node says whether it is an NPU or a switch.

    NPUs that are called 0, 1, 2, ... have these numbers; otherwise the order of occurrence counts.

    Raises:
        InputError: There is no NPU.
    """
    npus = [name for name, kind in kinds.items() if kind == "npu"]
    numbered = [str(number) for number in range(len(npus))]
    npus = numbered if set(npus) == set(numbered) else npus
    if not npus:
        raise InputError(f"{where}: no node is an NPU; give some the kind npu")
    return (*npus, *(name for name, kind in kinds.items() if kind != "npu")), len(npus)


def description_of(
    where: str, listed: Sequence[ListedCable], named: NodeNames, entry: Callable[[int], str], **more: Any
) -> TopologyDescription:
    """Return the description of a topology from a list of cables and the names of nodes.

    Args:
        where: See `TopologyDescription`.
        listed: The entries of the list.
        named: The names of the nodes.
        entry: Gives the name of an entry for messages.
        **more: Other fields of a `TopologyDescription`.

    Raises:
        InputError: There are more than 2**24 links.
    """
    names, n_npus = named
    rows, tiers = _to_rows(listed, names, where)
    switches = {"switch": len(names) - n_npus} if len(names) > n_npus else {}
    return TopologyDescription(where, n_npus, len(names), rows, tiers, switches, names.__getitem__, entry, **more)


def _to_rows(listed: Sequence[ListedCable], names: Sequence[str], where: str) -> tuple[CableRows, tuple[str, ...]]:
    """Return the columns of a list of cables, where entry i is row i, and the names of tiers in order of occurrence."""
    check_link_count(where, sum(cables for *_, cables, _ in listed))
    number = {name: i for i, name in enumerate(names)}
    tiers = tuple(dict.fromkeys(tier for *_, tier, _, _ in listed))
    of_tier = {name: i for i, name in enumerate(tiers)}
    rows = [
        (number[a], number[b], rate, latency, of_tier[tier], cables, cost, entry)
        for entry, (a, b, rate, latency, tier, cables, cost) in enumerate(listed)
    ]
    return CableRows.of([zip(*rows, strict=True)] if rows else []), tiers


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
    places = _column_indices(lines[0][1] if lines else [], f"{where}, line 1")
    lines = [(line, cells) for line, cells in lines[1:] if any(cells)]
    listed = [_row(cells, places, f"{where}, line {line}") for line, cells in lines]
    named = by_name((name for row in listed for name in row[:2]), where)
    return description_of(where, listed, named, lambda row: f"line {lines[row][0]}")


def _column_indices(head: list[str], where: str) -> dict[str, int]:
    """Return the index of each column by its name, from the first line of a CSV file."""
    check_keys(filter(None, head), _NEEDED + _OPTIONAL, where)
    if len(set(head)) != len(head) or not set(_NEEDED) <= set(head):
        raise must_be(where, "the head", f"{','.join(_NEEDED)}, and count, tier and cost if you like", ",".join(head))
    return {name: place for place, name in enumerate(head)}


def _row(cells: list[str], places: dict[str, int], where: str) -> ListedCable:
    """Return the cable that one row of a CSV file describes."""
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
    """Return whether the text that names a topology names a file rather than a topology of the catalogue.

    It does if it ends, before or after the first colon, in a suffix of such files, or if it has another suffix and a file of
    that name exists.
    """
    named = any(Path(word).suffix.lower() in READERS for word in (text, text.partition(":")[0]))
    return named or (Path(text).suffix != "" and Path(text).is_file())


def read_file(text: str) -> Topology:
    """Return the topology that a file describes; the path, as the user wrote it, becomes its name.

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
