"""The notices of a failed link: which nodes must hear of it, and when, directly or from hop to hop (UB-Mesh 4.2 and Figure 12).

Both ends of the link notice at once. A node that hears of it needs some time to act on it, and to pass it on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, column
from emu.errors import must_be
from emu.topology.fault_injection.machine_state import detour
from emu.topology.paths.shortest_paths import least_weights
from emu.topology.removal import remove_parts
from emu.topology.topology import FailedParts, Repair, Routes, Topology
from emu.units import format_time, seconds

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False, slots=True)
class Recovery:
    """The nodes whose paths a failed cable breaks, and the ticks after which each has heard."""

    nodes: I64  # [M] nodes
    direct_fs: I64  # [M] ticks where the nearer end of the cable tells each node
    flooded_fs: I64  # [M] ticks where the neighbour that heard first tells each node


def users(topology: Topology, src: ArrayLike, installed: Routes) -> list[I64]:
    """Return, for each link, the nodes whose installed paths cross it: the index that direct notification prepares.

    Args:
        topology: The topology of the links.
        src: [P] the node at which each path is installed.
        installed: The paths.
    """
    node = np.repeat(column(src, np.int64), installed.hops)
    found = np.unique(np.stack((installed.link.astype(np.int64), node), axis=-1), axis=0)
    ends = np.searchsorted(found[:, 0], np.arange(1, len(topology.links)))
    return np.split(found[:, 1], ends)


def recovery(topology: Topology, src: ArrayLike, installed: Routes, failed: int, act_fs: int) -> Recovery:
    """Return the nodes whose paths a failed cable breaks, and when each of them has heard of it.

    Args:
        topology: The topology before the failure.
        src: [P] the node at which each path is installed.
        installed: The paths.
        failed: Either link of the cable.
        act_fs: Ticks that a node needs to act on a notice or to pass it on; the paper gives none.

    Raises:
        InputError: The link does not exist, or nothing reaches a node any more.
    """
    links = topology.links
    if not 0 <= failed < len(links):
        raise must_be(topology.name, "a failed link", f"one of 0..{len(links) - 1}", failed)
    ends = int(links.src[failed]), int(links.dst[failed])
    back = int(np.flatnonzero((links.src == ends[1]) & (links.dst == ends[0]))[0])
    left = remove_parts(topology, links=[failed, back])
    broken = users(topology, src, installed)
    nodes = np.union1d(broken[failed], broken[back])
    delays = [_notice_times(left, end, nodes) for end in ends]
    return Recovery(nodes, column(np.minimum(*delays) + act_fs, np.int64), _flood_times(left, ends, nodes, act_fs))


def notify_and_reroute(whole: Topology, broken: FailedParts, ranks: int, was: FailedParts) -> Repair:
    """Return the reaction to failed parts: routes round them, and backup NPUs for failed ones (UB-Mesh 3.3.2, 4.1, 4.2).

    Both ends of each link that has failed or is back tell the NPUs of all ranks directly, although only those must hear whose
    paths change: the time is an upper limit. A failed NPU tells nobody; its neighbours do. The paper does not print the time
    that a node needs to act on a notice, or the backup NPU to take over.
    """
    left, links = detour(whole, broken, ranks), whole.links
    used = left.topology.place(ranks, [node for node in broken.nodes if node < whole.n_npus])
    cables, nodes = list[tuple[int, int]](), list[int]()
    for changed in (broken.beyond(was), was.beyond(broken)):
        cables += changed.cables
        nodes += changed.nodes
    beside = [links.dst[(links.src == node) & ~np.isin(links.dst, broken.nodes)].tolist() for node in nodes]
    took = max((_notice_time(left.topology, ends, used) for ends in (*cables, *beside) if ends), default=0)
    told = f"all have heard in {format_time(seconds(took))} at most by direct notification (4.2), and take other paths"
    return replace(left, took_fs=took, told=told)


def _notice_time(left: Topology, ends: Sequence[int], nodes: I64) -> int:
    """Return the ticks until the last of some nodes is told, each by the nearest end of a failed part that still reaches it."""
    src, dst = np.repeat(column(ends, np.int64), len(nodes)), np.tile(nodes, len(ends))
    found = left.router(src, dst, np.zeros_like(src))
    delay = _delays(left, found)
    delay[(found.hops == 0) & (src != dst)] = _NEVER
    first = delay.reshape(len(ends), len(nodes)).min(axis=0)
    return int(first[first < _NEVER].max(initial=0))


def _notice_times(left: Topology, end: int, nodes: I64) -> I64:
    """Return [M] the ticks of each node's route from an end of the cable; 0 for that end itself."""
    far = nodes != end
    delay = np.zeros(len(nodes), np.int64)
    delay[far] = _delays(left, left.routes(np.full(far.sum(), end), nodes[far], np.zeros(far.sum())))
    return delay


def _delays(left: Topology, routes: Routes) -> I64:
    """Return [P] the sum of the latencies of each route."""
    delay = np.zeros(len(routes.hops), np.int64)
    np.add.at(delay, np.repeat(np.arange(len(delay)), routes.hops), left.links.latency_fs[routes.link])
    return delay


def _flood_times(left: Topology, ends: tuple[int, int], nodes: I64, act_fs: int) -> I64:
    """Return [M] the ticks until a notice that every node passes on to all its neighbours, by one cable each, is acted on."""
    heard = least_weights((left.links.src, left.links.dst), left.links.latency_fs + act_fs, left.n_nodes, [np.array(ends)])[0]
    return column(heard[nodes] + act_fs, np.int64)
