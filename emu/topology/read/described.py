"""What a person describes, whatever the notation: nodes and cables as columns. Here it is checked, and becomes a Topology.

C rows of cables.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from emu.arrays import F64, I32, I64, Bool, column
from emu.errors import InputError, must_be
from emu.topology.ordered import by_dimension
from emu.topology.read.values import Routing
from emu.topology.routing import UNREACHED, distances, shortest
from emu.topology.topology import MAX_LINKS, Links, Router, Topology, check_link_count

MAX_NODES = MAX_LINKS // 2 + 1  # more are never all joined
_CHUNK_WORK = 2**24  # destinations times links or nodes that are held at a time


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Cables, or links one way, a row for as many as are alike between the same two nodes."""

    a: I64  # [C] node
    b: I64  # [C] node
    bandwidth_Bps: F64  # [C] one direction
    latency_fs: I64  # [C]
    tier: I64  # [C] index of its tier
    count: I64  # [C] parallel ones
    entry: I64  # [C] where it is written


@dataclass(frozen=True, eq=False, slots=True)
class Described:
    """A topology as it was written."""

    where: str  # the file or the graph, as its reader calls it
    n_npus: int
    n_nodes: int
    rows: Rows
    tiers: tuple[str, ...]
    switches: Mapping[str, int]  # as the bill counts them
    node: Callable[[int], str]  # how a node is called
    entry: Callable[[int], str]  # how an entry is called: "line 3"
    routing: Routing = field(default_factory=Routing)
    one_way: bool = False  # a row is links from a to b only
    repeats: bool = False  # the same two nodes may have several rows


def assemble(described: Described) -> Topology:
    """The topology that was described.

    Cables are sorted by their ends, so that the order in which they were written decides nothing.

    Raises:
        InputError: no NPU, dims that do not number them, a link from a node to itself or written twice, more than 2**24
            links, a switch without links, or NPUs that cannot reach one another.
    """
    where, n, dims = described.where, described.n_npus, described.routing.dims
    check_nodes(where, n, described.n_nodes)
    if dims and np.prod(dims, dtype=np.float64) != n:
        raise must_be(where, "dims", f"sizes whose product is the {n} NPUs", "x".join(map(str, dims)))
    _check_rows(described)
    links = _links(described)
    _check_switches(described, links)
    cables = {"link one way": len(links)} if described.one_way else {"cable": len(links) // 2}
    bill = {"NPU": n, **described.switches, **cables}
    router = _router(described, links)
    assumptions = (_routed(described),)
    return Topology(where, n, described.n_nodes, links, router, dims, bill, assumptions, described.tiers)


def check_nodes(where: str, n_npus: int, n_nodes: int) -> None:
    """Refuse what has no NPU, or more nodes than links could join.

    Raises:
        InputError: so it is.
    """
    if n_npus < 1:
        raise must_be(where, "NPUs", "1 or more", n_npus)
    if n_nodes > MAX_NODES:
        raise must_be(where, "nodes", "at most 2**23 + 1", n_nodes, "take fewer")


def _check_rows(described: Described) -> None:
    rows = described.rows
    check_link_count(described.where, int(rows.count.sum()) * (1 if described.one_way else 2))
    own = np.flatnonzero(rows.a == rows.b)
    if len(own):
        where, node = _at(described, int(own[0])), described.node(int(rows.a[own[0]]))
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
        where, before = _at(described, again), described.entry(int(rows.entry[first]))
        mend = "for parallel cables give count"
        raise InputError(f"{where}: a link must be written once, got {ends} again, which is in {before}; {mend}")


def _at(described: Described, row: int) -> str:
    return f"{described.where}, {described.entry(int(described.rows.entry[row]))}"


def _links(described: Described) -> Links:
    rows = described.rows
    order = np.lexsort((rows.tier, np.maximum(rows.a, rows.b), np.minimum(rows.a, rows.b)))
    order = np.repeat(order, rows.count[order])
    ends = np.stack((rows.a[order], rows.b[order]), axis=-1)
    if not described.one_way:
        ends.sort(axis=1)
    ways = 1 if described.one_way else 2
    back = ends[:, ::-1] if described.one_way else np.stack((ends[:, 1], ends[:, 0]), axis=-1)
    return Links(
        column(ends[:, :ways].ravel(), np.int32),
        column(back[:, :ways].ravel(), np.int32),
        column(np.repeat(rows.bandwidth_Bps[order], ways), np.float64),
        column(np.repeat(rows.latency_fs[order], ways), np.int64),
        column(np.repeat(rows.tier[order], ways), np.int16),
    )


def _check_switches(described: Described, links: Links) -> None:
    used = np.zeros(described.n_nodes, np.bool_)
    used[links.src] = used[links.dst] = True
    idle = np.flatnonzero(~used[described.n_npus :])
    if len(idle):
        node = described.node(int(idle[0]) + described.n_npus)
        raise InputError(f"{described.where}: switch {node} has no link; join it to something or leave it out")


def _relaying(described: Described) -> bool:
    return described.n_nodes == described.n_npus if described.routing.npus_relay is None else described.routing.npus_relay


def _routed(described: Described) -> str:
    if described.routing.by_dimension:
        return "routes go dimension by dimension, the last first, by a shortest way in each that a hash of the key takes"
    relay = "NPUs relay" if _relaying(described) else "NPUs do not relay"
    return f"routes have as few links as can be; of several a hash of the key takes one (ECMP); {relay}"


def _router(described: Described, links: Links) -> Router:
    where, n = described.where, described.n_npus
    if described.routing.by_dimension:
        return by_dimension(where, links, described.routing.dims, described.n_nodes, described.node)
    passes = (np.arange(described.n_nodes) >= n) | _relaying(described)
    found = _unjoined(links, n, passes)
    if found is not None:
        src, dst = map(described.node, found)
        all_relay = np.ones(described.n_nodes, np.bool_)
        mend = "join them by a link or a switch"
        if not _relaying(described) and _unjoined(links, n, all_relay) is None:
            mend = "set npus_relay to true if NPUs pass messages on for one another"
        raise InputError(f"{where}: no way leads from NPU {src} to NPU {dst}; {mend}")
    return shortest(links, described.n_nodes, passes)


def _unjoined(links: Links, n_npus: int, passes: Bool) -> tuple[int, int] | None:
    """Two NPUs that no route joins."""
    inner = passes[links.src] & passes[links.dst]
    part = _parts(links.src[inner], links.dst[inner], len(passes))
    if passes[:n_npus].all() and (part[:n_npus] == part[0]).all():
        return None
    hub = np.bincount(part[passes]).argmax() if passes.any() else -1
    reached = np.zeros((2, len(passes)), np.bool_)
    reached[0, links.src[passes[links.dst] & (part[links.dst] == hub)]] = True
    reached[1, links.dst[passes[links.src] & (part[links.src] == hub)]] = True
    if reached[:, :n_npus].all():
        return None
    size = max(1, _CHUNK_WORK // max(len(links), len(passes)))
    for targets in (np.arange(i, min(n_npus, i + size)) for i in range(0, n_npus, size)):
        lost = np.argwhere(distances(links, len(passes), targets, passes)[:, :n_npus] == UNREACHED)
        if len(lost):
            return int(lost[0, 1]), int(targets[lost[0, 0]])
    return None


def _parts(src: I32, dst: I32, n_nodes: int) -> I32:
    """[nodes] the number of the strong component that each is in."""
    graph = csr_array((np.ones(len(src), np.int8), (src, dst)), shape=(n_nodes, n_nodes))
    return column(connected_components(graph, directed=True, connection="strong")[1], np.int32)
