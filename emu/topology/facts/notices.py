"""The time until a network knows of a failed link: by flooding hop by hop, or by notices sent directly.

With flooding, every node that receives the notice acts on it, and passes it on to all its neighbours. A direct notice goes
along the remaining routes, and only the node for which it is meant acts on it (UB-Mesh 4.2, Figure 12).
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from emu.arrays import F64, I64, ascending, column
from emu.errors import must_be
from emu.topology.fault_injection.machine_state import rows_of
from emu.topology.removal import remove_parts
from emu.topology.topology import Topology

_CHANNELS = 16  # of each pair, whose paths count


@dataclass(frozen=True, slots=True)
class Notices:
    """The notices of one failed link: the time of the last one, the number sent, and the nodes that act on one."""

    last_fs: int  # ticks until the last NPU whose paths change has acted on its notice
    sent: int  # notices on links, each hop of each notice
    acting: int  # nodes that act on one


def hearers(topology: Topology, cable: tuple[int, int]) -> I64:
    """Return the NPUs that use a cable for a message to some other NPU, on any of 16 channels.

    Raises:
        InputError: no cable joins the two nodes.
    """
    ends = min(cable), max(cable)
    if not 0 <= ends[0] < ends[1] < topology.n_nodes or not len(rows_of(topology, [ends])):
        raise must_be("notices", "cable", "two nodes that a cable joins", f"{cable[0]}-{cable[1]}")
    n = topology.n_npus
    src, dst = (np.repeat(each, _CHANNELS) for each in np.nonzero(~np.eye(n, dtype=np.bool_)))
    routes = topology.routes(src, dst, np.arange(len(src)) % _CHANNELS)
    over = np.isin(routes.link, rows_of(topology, [ends]))
    return column(ascending(np.repeat(src, routes.hops)[over]), np.int64)


def direct_notices(topology: Topology, cable: tuple[int, int], handling_fs: int) -> Notices:
    """Return the notices that the two ends of a failed cable send directly to the NPUs that use the cable.

    Args:
        topology: The whole topology.
        cable: The two nodes that the links of the cable join.
        handling_fs: Ticks in which a node acts on a notice.
    """
    told, left = _npus_to_notify(topology, cable), _without(topology, cable)
    routes = [left.router(np.full_like(told, end), told, np.zeros_like(told)) for end in cable]
    took_fs = [np.add.reduceat(np.append(left.links.latency_fs[of.link], 0), of.start[:-1]) for of in routes]
    delays = np.stack([np.where(of.hops > 0, took, np.inf) for of, took in zip(routes, took_fs, strict=True)])  # inf: cut off
    hops = np.choose(np.argmin(delays, axis=0), [of.hops for of in routes])
    last_fs = int(np.min(delays, axis=0).max(initial=0, where=hops > 0))
    acting = int((hops > 0).sum())
    return Notices(last_fs + handling_fs * bool(acting), int(hops.sum()), acting)


def flooded_notices(topology: Topology, cable: tuple[int, int], handling_fs: int) -> Notices:
    """Return the notices of a failed cable that nodes flood hop by hop; see `direct_notices` for the arguments."""
    told, left = _npus_to_notify(topology, cable), _without(topology, cable)
    heard_fs = _hop_by_hop(left, cable, handling_fs)
    pairs = np.unique(np.stack((left.links.src, left.links.dst)), axis=1)
    acting = int(np.isfinite(heard_fs).sum()) - len(cable)
    sent = int(np.isfinite(heard_fs)[pairs[0]].sum()) - acting  # a node does not send it back to where it has heard it
    return Notices(int(heard_fs[told].max(initial=0)), sent, acting)


def _npus_to_notify(topology: Topology, cable: tuple[int, int]) -> I64:
    """Return the NPUs, other than the ends of a cable, that must be told of its failure because their paths change."""
    return column(np.setdiff1d(hearers(topology, cable), cable), np.int64)


def _without(topology: Topology, cable: tuple[int, int]) -> Topology:
    """Return the topology without both directions of a cable."""
    return remove_parts(topology, links=rows_of(topology, [(min(cable), max(cable))]))


def _hop_by_hop(left: Topology, ends: tuple[int, int], handling_fs: int) -> F64:
    """Return [n_nodes] the ticks until each node has acted on a notice that every node floods to its neighbours."""
    links = left.links
    weight = (links.latency_fs + handling_fs).astype(np.float64)
    order = np.lexsort((weight, links.dst, links.src))
    src, dst, weight = links.src[order], links.dst[order], weight[order]
    first = np.flatnonzero(np.append(True, (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])))  # the fastest of parallel links
    graph = coo_array((weight[first], (src[first], dst[first])), shape=(left.n_nodes, left.n_nodes)).tocsr()
    return column(dijkstra(graph, indices=list(ends), min_only=True), np.float64)
