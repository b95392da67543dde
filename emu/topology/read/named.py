"""Lists of links by the names of their nodes: 0, 1, 2, ... are NPUs, any other word is a switch; or as each node says."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import column
from emu.errors import InputError, must_be
from emu.topology.read.described import Rows
from emu.topology.topology import check_link_count

TIER = "link"  # where none is given


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


def to_rows(listed: Sequence[Row], named: Named, where: str) -> tuple[Rows, tuple[str, ...]]:
    """The columns of a list, entry i its i-th row, and the tiers in the order in which they come.

    Raises:
        InputError: more than 2**24 links.
    """
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
        column(np.arange(len(listed)), np.int64),
    )
    return rows, tiers
