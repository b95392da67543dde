"""Cables as arrays, and the topology that is built from them: its links, its bill of parts, and its router.

Link 2c is cable c from a to b, link 2c + 1 the other direction. So a router needs no table: arithmetic gives it the number of a
cable, and the end it comes from gives the direction. `star` is NPUs around one switch that is never the bottleneck: link i goes
up from NPU i, link n + i goes down to it. `SwitchAdding` is the setting `adds` of fabrics whose switches can add the data that
they pass on, such as NVSwitches (NVLink SHARP).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, column
from emu.equivalence import shift
from emu.topology.builders.route_parts import join, link_if
from emu.topology.catalogue import one_of
from emu.topology.paths.shortest_paths import or_shortest, shortest
from emu.topology.topology import Links, Router, Routes, Topology, check_link_count


@dataclass(frozen=True)
class SwitchAdding:
    """The setting `adds`: whether some switches of a topology add data.

    `asked` leaves it to the software of a stack.
    """

    adds: Annotated[str, one_of("asked", "yes", "no")] = "asked"

    def of(self, topology: Topology, first: int, count: int) -> Topology:
        """Return the topology with this setting: by `yes` the switches add, by `asked` they may, by `no` they may not.

        Args:
            topology: The fabric.
            first: The first of the switches that may add, such as those inside hosts.
            count: The number of these switches, which are numbered one after another.
        """
        node = np.arange(topology.n_nodes)
        inside = column((node >= first) & (node < first + count), np.bool_)
        return replace(topology, adds=self.adds == "yes", adders=None if self.adds == "no" else inside)


@dataclass(frozen=True, eq=False, slots=True)
class Cables:
    """Full-duplex cables of one kind, C of them; the arrays of their ends, `a` and `b`, broadcast against each other."""

    kind: str  # name of the part in the bill
    a: ArrayLike  # [C] node
    b: ArrayLike  # [C] node
    bandwidth_Bps: float  # one direction
    latency_fs: int
    dimension: ArrayLike = 0  # the dimension, tier or plane that the cables belong to; one, or [C] one for each

    @property
    def ends(self) -> tuple[I64, I64]:
        """The nodes at both ends, [C] and [C], as flat arrays in C order."""
        a, b = np.broadcast_arrays(np.asarray(self.a, np.int64), np.asarray(self.b, np.int64))
        return a.ravel(), b.ravel()


def wire(name: str, cables: Iterable[Cables]) -> tuple[Links, dict[str, int]]:
    """Return the links of all cables, one kind after another, and the number of cables of each kind.

    Raises:
        InputError: There are more than 2**24 links.
    """
    kinds = list(cables)
    ends = [kind.ends for kind in kinds]
    counts = [len(a) for a, _ in ends]
    check_link_count(name, 2 * sum(counts))
    bill: Counter[str] = Counter()
    for kind, count in zip(kinds, counts, strict=True):
        bill[kind.kind] += count
    pairs = np.concatenate([np.stack(end, axis=-1) for end in ends] or [np.zeros((0, 2), np.int64)])
    twice = [2 * count for count in counts]
    dimensions = [np.repeat(np.broadcast_to(kind.dimension, count), 2) for kind, count in zip(kinds, counts, strict=True)]
    rates, latencies = (np.repeat(each, twice) for each in ([k.bandwidth_Bps for k in kinds], [k.latency_fs for k in kinds]))
    links = Links.of(pairs.ravel(), pairs[:, ::-1].ravel(), rates, latencies, np.concatenate([*dimensions, np.zeros(0)]))
    return links, dict(bill)


def fabric(
    name: str, n_npus: int, cables: Iterable[Cables], router: Router | None, *, bill: Mapping[str, int], **more: Any
) -> Topology:
    """Return the topology of NPUs and switches that cables join.

    Args:
        name: The name of the topology.
        n_npus: The number of NPUs.
        cables: All cables, in the order in which the router counts them; each switch has some.
        router: The router between NPUs; a route from or to a switch is a shortest one. None: all routes are shortest ones.
        bill: Parts besides NPUs and cables.
        **more: Other fields of a `Topology`; `relays=True`: NPUs relay, too.

    Raises:
        InputError: There are more than 2**24 links.
    """
    links, laid = wire(name, cables)
    nodes = max(n_npus, 1 + int(links.dst.max(initial=0)))
    if more.get("relays") is True:
        more["relays"] = np.ones(nodes, np.bool_)
    route = shortest(links, nodes, more.get("relays")) if router is None else or_shortest(router, links, nodes, n_npus)
    return Topology(name, n_npus, nodes, links, route, bill={"NPU": n_npus, **bill, **laid}, **more)


def star(name: str, n_npus: int, bandwidth_Bps: float, latency_fs: int) -> Topology:
    """Return the topology of `n_npus` NPUs around one switch (node `n_npus`); a route between two NPUs has two links.

    Raises:
        InputError: There is no NPU, there are more than 2**24 links, or links have no bandwidth.
    """
    check_link_count(name, 2 * n_npus)
    npus = np.arange(n_npus)
    hub = np.full(len(npus), n_npus)
    links = Links.of(np.concatenate((npus, hub)), np.concatenate((hub, npus)), bandwidth_Bps, latency_fs, 0)
    bill = {"NPU": n_npus, "switch": 1, "cable": n_npus}
    turn = partial(_shifts, n_npus)  # any permutation of the NPUs is a symmetry
    return Topology(name, n_npus, n_npus + 1, links, partial(_route, n_npus), bill=bill, symmetry=turn)


def _shifts(n_npus: int) -> list[I64]:
    """Return the permutation of NPUs that maps each to the next one, and the last to the first."""
    return [shift(((n_npus,), 0), ((1,), None))]


def _route(n_npus: int, src: I64, dst: I64, key: I64) -> Routes:
    """Return the routes of pairs in a star: one link up to the switch and one down; the switch itself may be an end."""
    up, down = (src < n_npus) & (src != dst), (dst < n_npus) & (src != dst)
    if up.all() and down.all():
        both = np.stack((src, n_npus + dst), axis=1).ravel()
        return Routes(column(np.arange(0, len(both) + 1, 2), np.int64), column(both, np.int32))
    return join([link_if(up, src), link_if(down, n_npus + dst)])
