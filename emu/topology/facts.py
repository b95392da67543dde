"""What an architect asks of a topology first: nodes, degree, diameter, injection and bisection bandwidth.

L links, N NPUs, W words of 64 targets.
"""

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from emu.arrays import F64, I64, Bool
from emu.topology.routing import UNREACHED, distances
from emu.topology.topology import Topology

_EXACT_WORK = 2**24  # link-words a breadth-first step may touch before the diameter is sampled
_CHUNK_WORK = 2**21  # of them at a time


@dataclass(frozen=True, slots=True)
class Summary:
    """A topology in numbers, computed from its links."""

    npus: int
    switches: int
    links: int  # directed
    degree: tuple[int, int]  # fewest and most links out of an NPU
    injection_Bps: tuple[float, float]  # least and most bandwidth out of an NPU
    diameter: int | None  # links between the two NPUs farthest apart; None: some pair is not joined
    diameter_exact: bool  # False: from 64 NPUs only, so at least this
    paths: tuple[int, int]  # shortest paths between two NPUs of those sampled: fewest of the farthest pairs, most of all
    bisection_Bps: float  # one way, between the two halves that `halves` names
    halves: str  # the worst joined of those tried; a bound from above on the least of all halvings


def summary(topology: Topology) -> Summary:
    """Count and measure a topology."""
    links, n = topology.links, topology.n_npus
    degree = np.bincount(links.src, minlength=n)[:n]
    injection = np.bincount(links.src, weights=links.bandwidth_Bps, minlength=n)[:n]
    farthest, exact = diameter(topology)
    bandwidth_Bps, halves = bisection(topology)
    return Summary(
        n,
        topology.n_nodes - n,
        len(links),
        (int(degree.min()), int(degree.max())),
        (float(injection.min()), float(injection.max())),
        farthest,
        exact,
        paths(topology),
        bandwidth_Bps,
        halves,
    )


def diameter(topology: Topology) -> tuple[int | None, bool]:
    """Links between the two NPUs farthest apart, and whether every NPU was asked (else 64 of them)."""
    n, n_links = topology.n_npus, max(1, len(topology.links))
    exact = n_links * (n // 64 + 1) <= _EXACT_WORK
    targets = np.arange(n) if exact else np.unique(np.linspace(0, n - 1, 64).astype(np.int64))
    size = 64 * max(1, _CHUNK_WORK // n_links)
    farthest = 0
    for chunk in (targets[i : i + size] for i in range(0, len(targets), size)):
        steps = _steps_to(topology, chunk)
        if steps is None:
            return None, True
        farthest = max(farthest, steps)
    return farthest, exact


def _steps_to(topology: Topology, targets: I64) -> int | None:
    """Hops until every NPU reaches every target: a bit a target, spread from each link's end to its start."""
    order = np.argsort(topology.links.src, kind="stable")
    ends = topology.links.dst[order]
    senders, starts = np.unique(topology.links.src[order], return_index=True)
    bits = np.zeros((topology.n_nodes, len(targets) // 64 + 1), np.uint64)
    index = np.arange(len(targets))
    bits[targets, index // 64] = np.uint64(1) << (index % 64).astype(np.uint64)
    everything = np.bitwise_or.reduce(bits, axis=0)
    steps = 0
    while not (bits[: topology.n_npus] == everything).all():
        grown = bits.copy()
        if len(senders):
            grown[senders] |= np.bitwise_or.reduceat(bits[ends], starts, axis=0)
        if np.array_equal(grown, bits):
            return None
        bits, steps = grown, steps + 1
    return steps


def paths(topology: Topology) -> tuple[int, int]:
    """How many shortest paths join two NPUs: the fewest of the pairs farthest apart, and the most of any pair.

    Asked are all NPUs to as many as 16 of them, fewer where there are many links; parallel links make different paths.
    """
    n, links = topology.n_npus, topology.links
    targets = np.unique(np.linspace(0, n - 1, max(1, min(16, _CHUNK_WORK // max(1, len(links))))).astype(np.int64))
    away = distances(links, topology.n_nodes, targets, np.ones(topology.n_nodes, np.bool_))
    count = np.zeros(away.shape)
    count[np.arange(len(targets)), targets] = 1
    farthest = np.where(away[:, :n] < UNREACHED, away[:, :n], 0).max(initial=0)
    for steps in range(1, int(farthest) + 1):
        at, link = np.nonzero((away[:, links.src] == steps) & (away[:, links.dst] == steps - 1))
        np.add.at(count, (at, links.src[link]), count[at, links.dst[link]])
    far = count[:, :n][(away[:, :n] == farthest) & (farthest > 0)]
    return int(far.min(initial=count.max())) if len(far) else 0, int(count[:, :n].max()) if len(far) else 0


def bisection(topology: Topology) -> tuple[float, str]:
    """Bandwidth one way between two halves of the NPUs, the least of the halvings tried, and which it is.

    Tried are the middle of every dimension of even size where there are several, else the middle of the numbering. The
    least over all halvings is at most this; finding it is NP-hard.
    """
    n, dims = topology.n_npus, topology.dims
    if n < 2:
        return 0.0, "one NPU has no halves"
    digits = np.unravel_index(np.arange(n), dims) if len(dims) > 1 else ()
    halvings = {
        f"dimension {axis} at its middle": digit < dims[axis] // 2 for axis, digit in enumerate(digits) if dims[axis] % 2 == 0
    } or {"the numbering at its middle": np.arange(n) < n // 2}
    return min((cut(topology, low), name) for name, low in halvings.items())


def cut(topology: Topology, low: Bool) -> float:
    """Bandwidth (B/s) from the NPUs where `low` to the others, or back if that is less.

    Args:
        topology: Its switches may fall on either side: the flow through them is the greatest there can be.
        low: [N].
    """
    return min(_flow(topology, low), _flow(topology, ~low))


def _flow(topology: Topology, sources: Bool) -> float:
    """The greatest flow (B/s) with all sources made one node, 0, and all other NPUs another, 1."""
    switches = topology.n_nodes - topology.n_npus
    merged = np.concatenate((np.where(sources, 0, 1), 2 + np.arange(switches)))
    src, dst = merged[topology.links.src], merged[topology.links.dst]
    if not switches:
        return float(topology.links.bandwidth_Bps[(src == 0) & (dst == 1)].sum())
    capacity, unit = _whole(topology.links.bandwidth_Bps)
    graph = csr_array((capacity, (src, dst)), shape=(2 + switches, 2 + switches))
    return float(maximum_flow(graph, 0, 1).flow_value) * unit


def _whole(bandwidth_Bps: F64) -> tuple[NDArray[np.int32], int]:
    """Bandwidths as multiples of a unit so that sums of them stay below 2**31, as the flow's integers must."""
    whole = np.rint(bandwidth_Bps).astype(np.int64)
    unit = max(gcd(*map(int, np.unique(whole))), int(whole.sum() // 2**31) + 1)
    return (whole // unit).astype(np.int32), unit
