"""The notices of a failed link: when all have heard of it directly (UB-Mesh 4.2 and Figure 12); both ends notice at once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from emu.arrays import I64, column
from emu.topology.fault_injection.machine_state import detour
from emu.topology.topology import FailedParts, Repair, Topology
from emu.units import format_time, seconds

_NEVER = np.iinfo(np.int64).max


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
    pair, delay = np.repeat(np.arange(len(src)), found.hops), np.zeros(len(src), np.int64)
    np.add.at(delay, pair, left.links.latency_fs[found.link])
    delay[(found.hops == 0) & (src != dst)] = _NEVER
    first = delay.reshape(len(ends), len(nodes)).min(axis=0)
    return int(first[first < _NEVER].max(initial=0))
