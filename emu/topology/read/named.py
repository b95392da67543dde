"""Lists of links by the names of their nodes: 0, 1, 2, ... are NPUs, any other word is a switch; or as each node says."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import column
from emu.errors import InputError, must_be
from emu.topology.read.described import Described, Rows
from emu.topology.read.values import read_cost, read_count, read_latency, read_rate
from emu.topology.topology import check_link_count

_TIER = "link"  # where none is given


@dataclass(frozen=True, slots=True)
class Named:
    """The nodes in their order, NPUs first."""

    names: tuple[str, ...]
    n_npus: int

    def call(self, node: int) -> str:
        """The name of a node."""
        return self.names[node]

    @property
    def switches(self) -> dict[str, int]:
        """As the bill counts them."""
        return {"switch": len(self.names) - self.n_npus} if len(self.names) > self.n_npus else {}


class Row(NamedTuple):
    """A line of a list."""

    a: str
    b: str
    bandwidth_Bps: float
    latency_fs: int
    cables: int  # parallel
    tier: str
    cost: int  # 0: it says nothing


def read_row(a: str, b: str, given: Mapping[str, Any], where: str) -> Row:
    """A line that joins a and b, of its values as written; `bandwidth` and `latency` are there.

    Raises:
        InputError: a value that is none.
    """
    return Row(
        a,
        b,
        read_rate(given["bandwidth"], where),
        read_latency(given["latency"], where),
        read_count(given.get("count", 1), "count", where),
        str(given.get("tier", _TIER)),
        read_cost(given, where),
    )


def by_name(names: Iterable[str], where: str) -> Named:
    """NPUs by their numbers, switches in the order in which they come.

    Raises:
        InputError: no NPU, or numbers that leave one out.
    """
    unique = list(dict.fromkeys(names))
    npus = sorted((name for name in unique if name.isascii() and name.isdigit()), key=int)
    if not npus:
        raise InputError(f"{where}: no node is an NPU; NPUs are called 0, 1, 2, ..., any other word is a switch")
    for number, name in enumerate(npus):
        if name != str(number):
            raise must_be(where, "NPUs", f"called 0..{len(npus) - 1}", name, f"none is called {number}")
    numbers = set(npus)
    return Named((*npus, *(name for name in unique if name not in numbers)), len(npus))


def by_kind(kinds: Mapping[str, str], where: str) -> Named:
    """NPUs and switches as each node says, in the order in which they come.

    Raises:
        InputError: no NPU.
    """
    npus = [name for name, kind in kinds.items() if kind == "npu"]
    if not npus:
        raise InputError(f"{where}: no node is an NPU; give some the kind npu")
    return Named((*npus, *(name for name, kind in kinds.items() if kind != "npu")), len(npus))


def described(where: str, listed: Sequence[Row], named: Named, entry: Callable[[int], str], **more: Any) -> Described:
    """What a list describes.

    Args:
        where: As of `Described`.
        listed: Its lines.
        named: Its nodes.
        entry: How a line is called.
        more: Fields of a `Described` that are not what they are unless given.

    Raises:
        InputError: more than 2**24 links.
    """
    rows, tiers = _to_rows(listed, named, where)
    n_nodes = len(named.names)
    return Described(where, named.n_npus, n_nodes, rows, tiers, named.switches, named.call, entry, **more)


def _to_rows(listed: Sequence[Row], named: Named, where: str) -> tuple[Rows, tuple[str, ...]]:
    """The columns of a list, entry i its i-th row, and the tiers in the order in which they come."""
    check_link_count(where, sum(row.cables for row in listed))
    number = {name: i for i, name in enumerate(named.names)}
    tiers = tuple(dict.fromkeys(row.tier for row in listed))
    tier = {name: i for i, name in enumerate(tiers)}
    rows = Rows(
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
