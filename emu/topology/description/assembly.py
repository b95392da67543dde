"""Assembly of a topology from a description in any notation: nodes and cables are checked, and links and routes are made.

Letter: C rows of cables.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from emu.arrays import I64, Bool, column
from emu.errors import InputError, must_be
from emu.topology.description.canonical_order import TopologyDescription, canonical_order
from emu.topology.paths.dimension_order import by_dimension
from emu.topology.paths.path_check import UnevenPaths, find_uneven, find_unjoined
from emu.topology.paths.shortest_paths import ShortestPaths, shortest
from emu.topology.symmetry_search import with_symmetries
from emu.topology.topology import MAX_LINKS, Links, Router, Topology, check_link_count
from emu.units import format_bandwidth

_HASH = "a hash of both NPUs, the group and the channel"
_UNORDERED = "too many switches look alike to put all of them in order; those left alike are in the order of the file"
MAX_NODES = MAX_LINKS // 2 + 1  # the largest number of nodes that so many links can join


def assemble(described: TopologyDescription) -> Topology:
    """Return the topology of a description.

    Switches, tiers and cables get a canonical order, so that the order in which they were written does not matter.

    Raises:
        InputError: There is no NPU, dims do not number the NPUs, a link joins a node to itself or is written twice, there are
            more than 2**24 links, a switch has no links, or NPUs cannot reach one another.
    """
    where, n, dims = described.where, described.n_npus, described.routing.dims
    check_nodes(where, n, described.n_nodes, dims)
    _check_rows(described)
    described, complete = canonical_order(described)
    order, adders = _in_order(described), described.adders
    links, cost = _links(described, order), _cost(described, order)
    _check_switches(described, links)
    router, assumptions = _router(described, links, cost)
    built = Topology(
        where,
        n,
        described.n_nodes,
        links,
        router,
        dims,
        {"NPU": n, **described.switches, **_cable_count(described, links)},
        (*assumptions, *([] if complete else [_UNORDERED])),
        described.tiers,
        cost=cost,
        names=described.node,
        relays=_relay_marks(described),
        routing=tuple(described.routing),
    )
    return with_symmetries(replace(built, adds=adders is not None, adders=adders, network=described.network))


def _cable_count(described: TopologyDescription, links: Links) -> dict[str, int]:
    """Return the number of cables for the bill of parts, or of links if the links are one-way."""
    return {"link one way": len(links)} if described.one_way else {"cable": len(links) // 2}


def check_nodes(where: str, n_npus: int, n_nodes: int, dims: tuple[int, ...] = ()) -> None:
    """Check the numbers of NPUs and nodes: at least one NPU, not too many nodes, and as many NPUs as the grid `dims` has.

    Raises:
        InputError: One of these numbers is wrong.
    """
    if n_npus < 1:
        raise must_be(where, "NPUs", "1 or more", n_npus)
    if n_nodes > MAX_NODES:
        raise must_be(where, "nodes", "at most 2**23 + 1", n_nodes, "take fewer")
    if dims and np.prod(dims, dtype=np.float64) != n_npus:
        raise must_be(where, "dims", f"sizes whose product is the {n_npus} NPUs", "x".join(map(str, dims)))


def _check_rows(described: TopologyDescription) -> None:
    """Check that no link joins a node to itself, and that none is listed twice unless repeats mean parallel cables."""
    rows = described.rows
    check_link_count(described.where, int(rows.count.sum()) * (1 if described.one_way else 2))
    own = np.flatnonzero(rows.a == rows.b)
    if len(own):
        where, node = _entry_text(described, int(own[0])), described.node(int(rows.a[own[0]]))
        raise InputError(f"{where}: a link must join two nodes, got {node} twice")
    if described.repeats or not len(rows.a):
        return
    low, high = (rows.a, rows.b) if described.one_way else (np.minimum(rows.a, rows.b), np.maximum(rows.a, rows.b))
    order = np.lexsort((high, low))
    same = (np.diff(low[order]) == 0) & (np.diff(high[order]) == 0)
    if same.any():
        place = int(np.argmax(same))
        first, again = (int(order[p]) for p in (place, place + 1))
        ends = f"{described.node(int(rows.a[again]))} to {described.node(int(rows.b[again]))}"
        where, before = _entry_text(described, again), described.entry(int(rows.entry[first]))
        mend = "for parallel cables give count"
        raise InputError(f"{where}: a link must be written once, got {ends} again, which is in {before}; {mend}")


def _entry_text(described: TopologyDescription, row: int) -> str:
    """Return the beginning of a message about a cable: the file and the entry from which its row comes."""
    return f"{described.where}, {described.entry(int(described.rows.entry[row]))}"


def _in_order(described: TopologyDescription) -> I64:
    """Return the row of each cable, sorted by its two ends; parallel cables are sorted by their other values."""
    rows = described.rows
    low, high = np.minimum(rows.a, rows.b), np.maximum(rows.a, rows.b)
    direction = rows.a if described.one_way else low
    order = np.lexsort((rows.tier, rows.cost, rows.latency_fs, rows.bandwidth_Bps, direction, high, low))
    return np.repeat(order, rows.count[order])


def _cost(described: TopologyDescription, order: I64) -> I64 | None:
    """Return [L] the cost of each link (1 by default); None if no link has a cost."""
    cost = described.rows.cost
    return np.repeat(np.maximum(cost, 1)[order], 1 if described.one_way else 2) if cost.any() else None


def _links(described: TopologyDescription, order: I64) -> Links:
    """Return the links of the cables in the given order: both directions of each cable, or one for one-way links."""
    rows = described.rows
    ends = np.stack((rows.a[order], rows.b[order]), axis=-1)
    if not described.one_way:
        ends.sort(axis=1)
    ways = 1 if described.one_way else 2
    of_cable = (rows.bandwidth_Bps, rows.latency_fs, rows.tier)
    return Links.of(ends[:, :ways].ravel(), ends[:, ::-1][:, :ways].ravel(), *(np.repeat(c[order], ways) for c in of_cable))


def _check_switches(described: TopologyDescription, links: Links) -> None:
    """Check that every switch has a link; the error names a switch without one."""
    used = np.zeros(described.n_nodes, np.bool_)
    used[links.src] = used[links.dst] = True
    idle = np.flatnonzero(~used[described.n_npus :])
    if len(idle):
        node = described.node(int(idle[0]) + described.n_npus)
        raise InputError(f"{described.where}: switch {node} has no link; join it to something or leave it out")


def _relay_marks(described: TopologyDescription) -> Bool:
    """Return [nodes] whether messages may pass through each node: switches, and NPUs if they relay."""
    return column((np.arange(described.n_nodes) >= described.n_npus) | _npus_relay(described), np.bool_)


def _npus_relay(described: TopologyDescription) -> bool:
    """Return whether NPUs relay messages: as the description says, else only if there are no switches."""
    return described.n_nodes == described.n_npus if described.routing.npus_relay is None else described.routing.npus_relay


def _router(described: TopologyDescription, links: Links, cost: I64 | None) -> tuple[Router, tuple[str, ...]]:
    """Return the router of a description, and sentences that say what the router assumes."""
    where, nodes = described.where, described.n_nodes
    if described.routing.by_dimension:
        found = by_dimension(where, links, described.routing.dims, nodes, described.node, cost)
        way = "a shortest way" if cost is None else "a way of least cost"
        routed = f"routes go dimension by dimension, the last first, by {way} in each that {_HASH} takes"
        return found, (routed, *_find_uneven_paths(described, (ways for ways, _ in found.walks), cost))
    ways = shortest(links, nodes, _relay_marks(described), cost)
    _check_joined(described, ways)
    least = "have as few links as can be" if cost is None else "cost as little as can be, a link 1 unless it says otherwise"
    relay = "NPUs relay" if _npus_relay(described) else "NPUs do not relay"
    routed = f"routes {least}; of several {_HASH} takes one (ECMP); {relay}"
    return ways, (routed, *_find_uneven_paths(described, [ways], cost))


def _check_joined(described: TopologyDescription, ways: ShortestPaths) -> None:
    """Check that there is a path from each NPU to every other one; if not, the error says whether `npus_relay` would help."""
    found = find_unjoined(ways, described.n_npus)
    if found is None:
        return
    src, dst = map(described.node, found)
    all_relay, mend = replace(ways, passes=np.ones_like(ways.passes)), "join them by a link or a switch"
    if not _npus_relay(described) and find_unjoined(all_relay, described.n_npus) is None:
        mend = "set npus_relay to true if NPUs pass messages on for one another"
    raise InputError(f"{described.where}: no way leads from NPU {src} to NPU {dst}; {mend}")


def _find_uneven_paths(described: TopologyDescription, each: Iterable[ShortestPaths], cost: I64 | None) -> tuple[str, ...]:
    """Return a sentence on the pairs of NPUs whose equally short paths have different bandwidths; nothing if there are none.

    If there are several routers, the one with the most such pairs is used.
    """
    found = max(filter(None, (find_uneven(ways, described.n_npus) for ways in each)), key=lambda one: one.pairs, default=None)
    return () if found is None else (_uneven_in_words(described, found, by_cost=cost is not None),)


def _uneven_in_words(described: TopologyDescription, found: UnevenPaths, *, by_cost: bool) -> str:
    """Return a sentence about the pairs whose equally long, or equally dear, paths differ in rate."""
    pair = f"{described.node(found.src)} and {described.node(found.dst)}"
    slow, fast = map(format_bandwidth, found.rates_Bps)
    alike = "of the same cost" if by_cost else "with as few links"
    taken = (
        "a hash takes any of them, a lower cost keeps messages on the fastest"
        if by_cost
        else "only the fastest are taken, unless a cost on links says otherwise"
    )
    many = f"between {found.pairs} of {found.of} pairs of NPUs, such as {pair}"
    return f"{many}, ways {alike} differ in rate, {slow} to {fast} at the narrowest link; {taken}"
