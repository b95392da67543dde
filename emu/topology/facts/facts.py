"""The key figures of a topology: nodes, degree, diameter, injection, bisection and all-to-all bandwidth.

Further functions test whether the routing spreads messages over equal paths, and give the rate at which all NPUs can send to
all others at one time over the topology's own routes. Letters: L links, N NPUs, P pairs, W words of 64 targets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations

import numpy as np

from emu.arrays import F64, I64, Bool, column, even_sample
from emu.errors import InputError, must_be
from emu.topology.builders.route_parts import mix
from emu.topology.facts.flow import Arcs, least_cut
from emu.topology.facts.lit_links import lit_rates, time_of_links
from emu.topology.paths.shortest_paths import UNREACHED, ShortestPaths, shortest
from emu.topology.paths.spray import sprayed
from emu.topology.topology import CHANNELS, Routes, Topology, cached_by_topology

MOST = 2**13  # largest number of NPUs: 67 million pairs take about a minute
_PAIRS, _ALL = 2**18, 2**24  # pairs routed at one time; routes in all, where a pair has several
_WAYS = 4  # largest number of routes of a pair
_CHANNELS = 64  # channels from which those of a pair are drawn


def exchange_rate(topology: Topology) -> float:
    """Return the largest rate (B/s) at which all NPUs can send equally to all others at one time without overload.

    Each pair sends on up to four channels that a hash draws, so that paths of equal length are used, or sprays its messages.
    Links that an optical switch lights in turns share its time; the time in which it turns is left out.

    Raises:
        InputError: There are fewer than two NPUs or more than 8,192, or no route joins a pair.
    """
    n = topology.n_npus
    if not 2 <= n <= MOST:
        raise must_be(topology.name, "NPUs of an all-to-all", f"2..{MOST}", n, "take a smaller size")
    ways = max(1, min(_WAYS, _ALL // (n * n)))
    taken = sum(
        (_link_load(topology, sources, ways) for sources in np.array_split(np.arange(n), -(-n * n // _PAIRS))),
        _no_load(topology),
    )
    return (n - 1) * ways / time_of_links(topology, column(taken / topology.links.bandwidth_Bps, np.float64))


def _no_load(topology: Topology) -> F64:
    """Return [L] zeros: the number of messages on each link before any is counted."""
    return np.zeros(len(topology.links))


def _link_load(topology: Topology, sources: I64, ways: int) -> F64:
    """Return [L] the number of messages of the given sources that cross each link."""
    src, dst = (grid.ravel() for grid in np.meshgrid(sources, np.arange(topology.n_npus), indexing="ij"))
    src, dst = src[src != dst], dst[src != dst]
    count = _no_load(topology)
    if topology.spray is not None:
        over = sprayed(topology, topology.spray, src, dst, np.zeros_like(src))
        return count + np.bincount(over.link, over.weight, len(count)) * (ways / topology.spray.parts)
    for way in range(ways):
        routes = topology.routes(src, dst, mix(src, dst, way) % _CHANNELS)
        count += np.bincount(routes.link, minlength=len(topology.links))
    return count


_EXACT_WORK = 2**24  # link-words that a breadth-first step may touch; above this the diameter is sampled
_CHUNK_WORK = 2**21  # link-words at one time
_NPUS, _KEYS = 64, 4  # how many NPUs and keys are tried


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers that a report has of a topology, computed from its links: diameter, bisection, degree and more."""

    npus: int
    switches: int
    links: int  # directed links
    degree: tuple[int, int]  # fewest and most links out of an NPU
    injection_Bps: tuple[float, float]  # least and most bandwidth out of an NPU at one time
    diameter: int | None  # links between the two NPUs farthest apart; None: some pair has no path
    diameter_exact: bool  # False: only 64 NPUs were tried, so that the true diameter may be larger
    paths: tuple[int, int]  # shortest paths between sampled NPUs: the fewest of the farthest pairs, the most of any pair
    bisection_Bps: float  # bandwidth one way between the two halves that `halves` names
    halves: str  # the halves with the least bandwidth of those tried; other halves may have less


def injection_rates(topology: Topology, counted: Bool | None = None) -> F64:
    """Return [n_nodes] the bandwidth (B/s) out of each node over all its links, or those of [L] that are counted.

    Of links that optical switches light in turns, those that can be lit at one time count.
    """
    some = np.arange(len(topology.links)) if counted is None else np.flatnonzero(counted)
    return lit_rates(topology, some, column(topology.links.src[some], np.int64), topology.n_nodes)


def summary(topology: Topology) -> Summary:
    """Return the numbers that a report has of a topology, computed from its links."""
    links, n = topology.links, topology.n_npus
    degree = np.bincount(links.src, minlength=n)[:n]
    injection = injection_rates(topology)[:n]
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
    """Return the largest hop distance between two NPUs (None if some pair has no path), and whether it is exact.

    With many NPUs only the paths to 64 of them are computed. The number is None if some pair has no path.
    """
    n, n_links = topology.n_npus, max(1, len(topology.links))
    if n_links * (n // 64 + 1) > _EXACT_WORK:
        ways = _all_shortest(topology)
        farthest = [_hops_to(ways, target)[:n] for target in even_sample(n, 64)]
        return (None, True) if min(hops.min() for hops in farthest) < 0 else (int(max(hops.max() for hops in farthest)), False)
    size, farthest_yet = 64 * max(1, _CHUNK_WORK // n_links), 0
    for first in range(0, n, size):
        steps = _steps_to(topology, np.arange(first, min(first + size, n)))
        if steps is None:
            return None, True
        farthest_yet = max(farthest_yet, steps)
    return farthest_yet, True


def _all_shortest(topology: Topology) -> ShortestPaths:
    """Return all paths with the fewest links, in which every node may relay and the speed of links does not matter."""
    return shortest(topology.links, topology.n_nodes, cost=np.ones(len(topology.links)))


def _hops_to(ways: ShortestPaths, target: int) -> I64:
    """Return [nodes] the number of links on the shortest path from each node to `target`; -1 if there is no path."""
    found = ways.grades(np.array([target]))[0]
    return np.where(found < UNREACHED, found, -1)


def _steps_to(topology: Topology, targets: I64) -> int | None:
    """Return the number of hops within which every NPU reaches every target; None if a target cannot be reached.

    Each target is a bit that spreads from the end of a link to its start.
    """
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
    """Return the least number of shortest paths of the farthest pairs, and the largest number of any pair.

    The pairs are all NPUs to at most 16 of them, fewer where there are many links. Parallel links make different paths.
    """
    n, most, fewest, farthest, ways = topology.n_npus, 0.0, 0.0, 0, _all_shortest(topology)
    for target in even_sample(n, max(1, min(16, _CHUNK_WORK // max(1, len(topology.links))))):
        hops = _hops_to(ways, target)
        count, reach = _paths_to(topology, hops)[:n], int(hops[:n].max())
        least = float(count[hops[:n] == reach].min())
        if reach > 0:
            fewest = least if reach > farthest else min(fewest, least) if reach == farthest else fewest
            most, farthest = max(most, float(count[hops[:n] > 0].max())), max(farthest, reach)
    return int(fewest), int(most)


def _paths_to(topology: Topology, hops: I64) -> F64:
    """Return [nodes] the number of shortest paths from each node to a target.

    Args:
        topology: The topology.
        hops: [nodes] the number of links on the shortest path from each node to the target.
    """
    src, dst = topology.links.src, topology.links.dst
    nearer = np.flatnonzero((hops[src] == hops[dst] + 1) & (hops[dst] >= 0))
    nearer = nearer[np.argsort(hops[src[nearer]], kind="stable")]
    ends = np.searchsorted(hops[src[nearer]], np.arange(1, int(hops.max()) + 2))
    count = np.where(hops == 0, 1.0, 0.0)
    for first, end in pairwise(ends):
        step = nearer[first:end]
        np.add.at(count, src[step], count[dst[step]])
    return count


def bisection(topology: Topology) -> tuple[float, str]:
    """Return the bandwidth (B/s, one direction) between two halves of the NPUs, and a name for the halves.

    The halves are those with the least bandwidth of all that `halvings` names; n // 2 NPUs are in one of them. The least
    bandwidth over all possible halves is at most this; finding it is NP-hard. Of links that optical switches light in
    turns, those that can be lit at one time count.
    """
    if topology.n_npus < 2:
        return 0.0, "one NPU has no halves"
    found, tried = (np.inf, ""), [(_floor(topology, low), name, low) for name, low in halvings(topology.n_npus, topology.dims)]
    for least, name, low in sorted(tried, key=lambda each: each[:2]):
        if least > found[0]:
            break
        found = min(found, (cut(topology, low), name))
    return found


def _floor(topology: Topology, low: Bool) -> float:
    """Return a lower bound (B/s) of `cut`, found without a flow: the bandwidth of paths over at most one switch.

    Where optical switches light a part of the links, the bound is 0.
    """
    links, n = topology.links, topology.n_npus
    if topology.circuits is not None:
        return 0.0
    ends = []
    for here in (low, ~low):
        side = np.concatenate((np.where(here, 0, 1), np.full(topology.n_nodes - n, 2))).astype(np.int8)  # from, to, a switch
        src, dst, rate = side[links.src], side[links.dst], links.bandwidth_Bps
        up, down = (src == 0) & (dst == 2), (src == 2) & (dst == 1)
        through = (np.bincount(end[of], rate[of], topology.n_nodes) for end, of in ((links.dst, up), (links.src, down)))
        ends.append(float(rate[(src == 0) & (dst == 1)].sum() + np.minimum(*through).sum()))
    return min(ends)


def halvings(n: int, dims: tuple[int, ...]) -> Iterator[tuple[str, Bool]]:
    """Yield cuts of n NPUs into halves: a name, and [n] whether each NPU is in the half with n // 2 NPUs.

    A dimension of even size is cut at its middle. In an odd dimension the NPUs in the middle are themselves cut along another
    dimension, in either direction; the halves then differ by one NPU at most.
    """
    axes = [axis for axis, size in enumerate(dims) if size > 1]
    if len(axes) < 2:
        yield "the lower half of the NPUs' numbers and the upper", np.arange(n) < n // 2
        return
    digits = np.unravel_index(np.arange(n), dims)
    for order in dict.fromkeys(_up_to_even(dims, first, second, axes) for first, second in permutations(axes, 2)):
        rest = ", then ".join(map(str, order[1:]))
        name = f"dimension {order[0]} at its middle{f', its middle place by dimension {rest}' if rest else ''}"
        for way in (1, -1)[: len(order)]:
            keys = [digits[order[0]], *(way * digits[axis] for axis in order[1:])]
            low = np.zeros(n, np.bool_)
            low[np.lexsort(keys[::-1])[: n // 2]] = True
            yield name, low


def _up_to_even(dims: tuple[int, ...], first: int, second: int, axes: list[int]) -> tuple[int, ...]:
    """Return the axes `first` and `second` and the following ones, up to the first with an even size."""
    order = (first, second, *(axis for axis in axes if axis not in (first, second)))
    return order[: next((at for at, axis in enumerate(order) if dims[axis] % 2 == 0), len(order)) + 1]


def cut(topology: Topology, low: Bool) -> float:
    """Return the bandwidth (B/s) from the NPUs where `low` is true to the other NPUs, or in the other direction if less.

    Args:
        topology: The topology. A switch may be on either side: the flow through switches is the largest possible.
        low: [N] whether each NPU is on the first side.
    """
    return min(_flow(topology, low), _flow(topology, ~low))


def _flow(topology: Topology, sources: Bool) -> float:
    """Return the largest flow (B/s) from all sources to all other NPUs, which equals the least cut between them."""
    links, switches = topology.links, np.zeros(topology.n_nodes - topology.n_npus, np.bool_)
    inside = np.concatenate((sources, switches))
    if len(switches) and sources.any() and not sources.all():
        src, dst, whole = (column(c, np.int64) for c in (links.src, links.dst, np.ceil(links.bandwidth_Bps)))
        inside = least_cut(Arcs(src, dst, whole), inside, np.concatenate((~sources, switches)))
    crossing = np.flatnonzero(inside[links.src] & ~inside[links.dst])
    return float(lit_rates(topology, crossing, np.zeros_like(crossing), 1)[0])


@cached_by_topology(1)
def routes_spread(topology: Topology) -> bool:
    """Return whether the routing spreads messages over equal paths by their key (ECMP), found from a sample of pairs.

    The result is True if some pairs have no route, or if optical switches turn; False where all messages are sprayed, as all of
    one pair then cross the same links. Messages to and from switches that add are not sprayed.
    """
    if topology.spray is not None and topology.adders is None and not topology.adds:
        return False
    src, dst = some_pairs(topology)
    if topology.circuits or not len(src):
        return bool(topology.circuits)
    try:
        first, *others = (_routes(topology, src, dst, key) for key in range(_KEYS))
    except InputError:
        return True
    return not all(np.array_equal(first.start, other.start) and np.array_equal(first.link, other.link) for other in others)


def some_pairs(topology: Topology) -> tuple[I64, I64]:
    """Return the sources and destinations of a sample of pairs of NPUs.

    From each NPU of a sample, a pair goes to the next NPU, to one a third of all NPUs away, and to one half of all away.
    """
    n = topology.n_npus
    src = even_sample(n, _NPUS)
    far = np.unique(np.array([1, n // 3, n // 2]))
    away = far[far % n > 0]
    return np.tile(src, len(away)), np.add.outer(away, src).ravel() % n


def _routes(topology: Topology, src: I64, dst: I64, communicator: int) -> Routes:
    """Return the routes of pairs on the first channel of a communicator."""
    return topology.routes(src, dst, np.full(len(src), communicator * CHANNELS))
