"""Lists of cables between named nodes.

NPUs are the nodes called 0, 1, 2, ..., or those that say so; the others are switches.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import column
from emu.errors import InputError, must_be
from emu.topology.description.assembly import TopologyDescription
from emu.topology.description.cable_rows import CableRows
from emu.topology.description.values import read_cost, read_count, read_latency, read_rate
from emu.topology.topology import check_link_count

_TIER = "link"  # default tier


NodeNames = tuple[tuple[str, ...], int]  # the names of nodes in the order of their numbers, NPUs first; the number of NPUs


class ListedCable(NamedTuple):
    """One entry of a list: parallel cables between two nodes."""

    a: str
    b: str
    bandwidth_Bps: float
    latency_fs: int
    cables: int  # number of parallel cables
    tier: str
    cost: int  # cost of a link; 0: none is given


def read_row(a: str, b: str, given: Mapping[str, Any], where: str) -> ListedCable:
    """Return the entry that joins a and b, from its values as they are written; `bandwidth` and `latency` must be there.

    Raises:
        InputError: A value is invalid.
    """
    return ListedCable(
        a,
        b,
        read_rate(given["bandwidth"], where),
        read_latency(given["latency"], where),
        read_count(given.get("count", 1), "count", where),
        str(given.get("tier", _TIER)),
        read_cost(given, where),
    )


def by_name(names: Iterable[str], where: str) -> NodeNames:
    """Return the nodes with NPUs numbered by their names, and switches in the order in which they come.

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
    """Return the nodes with NPUs and switches as each node says, in the order in which they come.

    NPUs that are called 0, 1, 2, ... have these numbers.

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
    """Return the description of a topology that a list of cables makes.

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
    """Return the columns of a list, where entry i is row i, and the tiers in the order in which they come."""
    check_link_count(where, sum(row.cables for row in listed))
    number = {name: i for i, name in enumerate(names)}
    tiers = tuple(dict.fromkeys(row.tier for row in listed))
    tier = {name: i for i, name in enumerate(tiers)}
    rows = CableRows(
        column([number[row.a] for row in listed], np.int64),
        column([number[row.b] for row in listed], np.int64),
        column([row.bandwidth_Bps for row in listed], np.float64),
        column([row.latency_fs for row in listed], np.int64),
        column([tier[row.tier] for row in listed], np.int64),
        column([row.cables for row in listed], np.int64),
        column([row.cost for row in listed], np.int64),
        column(np.arange(len(listed)), np.int64),
    )
    return rows, tiers
