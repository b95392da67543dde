"""Rows of the RailX paper that count chips, rails, optical switches and hops on built topologies, and its cost tables.

Costs are those of the parts of built topologies at the paper's prices.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise, permutations

import numpy as np

from emu.equivalence import components
from emu.study.cost.network_cost import Cost, cost
from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import bisection, cut
from emu.topology.paths.path_check import cycle
from emu.topology.topology import Topology
from launch.data.presets import find_book
from launch.papers.networks import build_once, parts
from launch.papers.paper import FormulaCase, check_formula
from launch.papers.targets import Answer
from topologies.railx.rail_repair import largest_grid, subnetworks

HYPERX = "railx:hyperx:m=4,n=2"
_PORT, _OCS = 50e9, 128  # bytes per second one way: 400 Gb/s; ports of an optical switch
_SAMPLE = 40_000


def chips(word: str) -> int:
    """Return the number of chips that links join with chip 0, itself included."""
    topology = build_once(word)
    return int((components(topology.n_npus, topology.links.src, topology.links.dst) == 0).sum())


def optical_switches(word: str) -> float:
    """Return the number of optical switches (OCS) that the rails fill; a rail takes one port at each end."""
    links = build_once(word).links
    return float(links.bandwidth_Bps[links.dimension > 0].sum() / _PORT / _OCS)


def rails(word: str, m: int) -> float:
    """Return the number of rails along X of a node of m x m chips; 0 if nodes have different numbers.

    Args:
        word: The name of the topology, with its settings.
        m: The number of chips along the edge of a node.
    """
    links = build_once(word).links
    out = set(np.bincount(links.src[links.dimension == 1] // m**2).tolist())
    return float(out.pop() / 2) if len(out) == 1 else 0.0


def row_nodes(word: str, m: int) -> int:
    """Return the number of nodes that rails along X join directly with the first node, itself included."""
    links = build_once(word).links
    row = links.dimension == 1
    return len(np.unique(links.dst[row][links.src[row] // m**2 == 0] // m**2)) + 1


def row_bound(word: str, m: int) -> float:
    """Return an upper bound of the all-to-all rate: a chip's ports along X over the share of chips in other columns."""
    topology = build_once(word)
    along = topology.links.bandwidth_Bps[topology.links.dimension == 1].sum() / _PORT / topology.n_npus
    return float(along / (1 - 1 / row_nodes(word, m)))


def line_nodes(word: str, m: int) -> int:
    """Return the number of nodes to which the first node is joined by rails along X, directly or over other nodes."""
    topology = build_once(word)
    row = topology.links.dimension == 1
    part = components(topology.n_npus // m**2, topology.links.src[row] // m**2, topology.links.dst[row] // m**2)
    return int((part == part[0]).sum())


def _lemma() -> Answer:
    """Return whether each ordered pair of nodes is joined once, by the first links of the rails of a row."""
    sizes, once = (5, 7, 8, 9, 16, 37, 63, 64), []
    for size in sizes:
        links = build_once(f"railx:hyperx:m=1,n={size - 1}").links
        plus = np.flatnonzero(links.dimension == 1)[::2]
        first = plus[links.src[plus] < size]
        pairs = Counter(zip(links.src[first].tolist(), links.dst[first].tolist(), strict=True))
        once.append(pairs == dict.fromkeys(permutations(range(size), 2), 1))
    words = f"nodes of a row: {', '.join(map(str, sizes))}; 4 and 6 are refused"
    return Answer("every ordered pair once" if all(once) else "not all pairs once", (words,), holds=all(once))


def _hops(word: str) -> tuple[int, int, int]:
    """Return the most hops inside nodes and the most between nodes over random pairs, and the number of virtual channels.

    The number of virtual channels is 0 if routes can deadlock.
    """
    topology = build_once(word)
    src, dst = np.random.default_rng(0).integers(topology.n_npus, size=(2, _SAMPLE))
    apart = src != dst
    routes = topology.routes(src[apart], dst[apart], np.arange(int(apart.sum())) % 5)
    pair, light = np.repeat(np.arange(len(routes.hops)), routes.hops), topology.links.dimension[routes.link] > 0
    inside, between = (int(np.bincount(pair[kind]).max(initial=0)) for kind in (~light, light))
    assert routes.virtual is not None
    return inside, between, 0 if cycle(routes, routes.virtual) else int(routes.virtual.max()) + 1


def hops(word: str) -> int:
    """Return the largest number of hops between nodes of a route, over random pairs."""
    return _hops(word)[1]


def virtual_channels(word: str) -> int:
    """Return the number of virtual channels; 0 if routes can deadlock."""
    return _hops(word)[2]


def _most_inside() -> Answer:
    """Return the most hops inside nodes for m = 4, and whether they are at most 5m - 6 for each m from 2 to 5."""
    every = {m: _hops(f"railx:hyperx:m={m},n=2")[0] for m in (2, 3, 4, 5)}
    holds = all(found <= 5 * m - 6 for m, found in every.items())
    words = ", ".join(f"m={m}: {found} of at most {5 * m - 6}" for m, found in every.items())
    return Answer(float(every[4]), (f"a bound, which is kept: {words}",), holds=holds)


def _throughput(topology: Topology, cut_Bps: float) -> float:
    """Return the all-to-all throughput of a chip in ports: 2 B_c / N with B_c in both directions (equation 2).

    Args:
        topology: The topology.
        cut_Bps: The bandwidth of the cut.
    """
    return float(4 * cut_Bps / topology.links.bandwidth_Bps.min() / topology.n_npus)


def _torus_throughput() -> Answer:
    """Return the all-to-all throughput of the torus."""
    topology = build_once("railx:torus:m=7,n=9,nodes=64x64")
    return check_formula([("R=128, m=7, n=9", _throughput(topology, bisection(topology)[0]), 16 * 9 / (128 * 7))])


def _dragonfly_throughput() -> Answer:
    """Return the all-to-all throughput of the dragonfly."""
    topology, groups = build_once("railx:dragonfly:m=4,n=2,groups=10"), 10
    between = cut(topology, np.arange(topology.n_npus) < topology.n_npus // 2)
    found = _throughput(topology, between) * (groups - 1) / groups
    return check_formula([("m=4, n=2, 10 groups", found, 2 * 2 / 4)], "but for what stays in a group")


def lone_rate() -> float:
    """Return the bandwidth (TB/s) out of a chip that is the only one of its node."""
    links = build_once("railx:hyperx:m=1,n=9").links
    return float(np.bincount(links.src, links.bandwidth_Bps).min() / 1e12)


def _grids() -> Answer:
    """Return on how many random grids the largest allocation is that of trying every set of rows, and whether on all."""
    rng, equal, of = np.random.default_rng(0), 0, 400
    for _ in range(of):
        rows, columns = rng.integers(2, 8, size=2)
        faults = rng.integers((0, 0), (rows, columns), size=(int(rng.integers(0, 8)), 2))
        kept = largest_grid(int(rows), int(columns), faults)
        most = 0
        for chosen in range(2**rows):
            left = np.array([row for row in range(rows) if chosen >> row & 1])
            lost = len(np.unique(faults[np.isin(faults[:, 0], left), 1]))
            most = max(most, len(left) * (int(columns) - lost))
        equal += most == len(kept[0]) * len(kept[1])
    return Answer(f"equal on {equal} grids", ("2 to 7 rows and columns, up to 7 faults, seeded",), holds=equal == of)


def largest_job_nodes(side: int, faults: np.ndarray) -> int:
    """Return the number of nodes of the largest job on a square grid with faulty nodes.

    A job takes the nodes where some rows cross some columns, and none of these nodes may be faulty.

    Args:
        side: The number of rows, and of columns.
        faults: [any, 2] the row and the column of each faulty node.
    """
    kept = largest_grid(side, side, faults)
    return len(kept[0]) * len(kept[1])


def _other_subnetworks() -> Answer:
    """Return how many sub-networks take all nodes where four faults cost one job two rows or columns, at most."""
    side, counts = 5, Counter[int]()
    for places in combinations(range(side**2), 4):
        faults = np.stack(np.divmod(places, side), 1)
        rows, columns = largest_grid(side, side, faults)
        if len(rows) + len(columns) == 2 * side - 2:
            grids = subnetworks(side, side, faults)
            used = sum(len(along) * len(across) for along, across in grids)
            counts[len(grids) if used == side**2 - 4 else 0] += 1
    words = ", ".join(f"{count} take {number} sub-networks" for number, count in sorted(counts.items()))
    found = max(counts) if 0 not in counts else 0  # none where nodes are left over
    return Answer(float(found), (f"places of four faults on {side} x {side} nodes, which use all others: {words}",))


def _worst() -> Iterator[FormulaCase]:
    """Yield the nodes of the largest job with the worst faults."""
    for a in (1, 2, 5):
        yield f"R=128, {2 * a} faults", largest_job_nodes(64, np.stack([np.arange(2 * a)] * 2, 1)), (64 - a) ** 2


def availability(side: int, rate: float, samples: int = 100) -> float:
    """Return the share of nodes that the largest job can use, in per cent, as the mean over random faults.

    Args:
        side: The number of nodes of a side of the square.
        rate: The share of nodes that are faulty.
        samples: The number of random faults.
    """
    rng = np.random.default_rng(0)
    sizes = [largest_job_nodes(side, np.argwhere(rng.random((side, side)) < rate)) for _ in range(samples)]
    return float(100 * np.mean(sizes) / side**2)


def mean_largest_job(side: int, faults: int, samples: int = 20) -> float:
    """Return the number of nodes of the largest job, as the mean over random sets of a number of faults."""
    rng = np.random.default_rng(0)
    drawn = [rng.choice(side**2, faults, replace=False) for _ in range(samples)]
    return float(np.mean([largest_job_nodes(side, np.stack(np.divmod(each, side), 1)) for each in drawn]))


def _available() -> Answer:
    """Return the availability at a fault rate of 0.1 %, which is above 90 % and falls with the radix."""
    every = {2 * side: availability(side, 0.001) for side in (64, 80, 160)}
    words = ", ".join(f"{found:.1f} % at R={radix}" for radix, found in every.items())
    holds = every[128] > 90 and all(a > b for a, b in pairwise(every.values()))
    return Answer(every[128], (f"{words}: not above 90 % for every R that the paper uses",), holds=holds)


def _falls() -> Answer:
    """Return the correlation of the largest job with faults, and whether it falls linearly and above the worst case."""
    counts = (0, 2, 4, 6, 8, 10)
    means = [mean_largest_job(64, faults) for faults in counts]
    linear = float(np.corrcoef(counts, means)[0, 1])
    worst = [(64 - faults / 2) ** 2 for faults in counts]
    holds = linear < -0.99 and all(mean >= low for mean, low in zip(means, worst, strict=True))
    words = ", ".join(f"{faults} faults {mean:.0f}" for faults, mean in zip(counts, means, strict=True))
    return Answer(f"correlation {linear:.3f}", (f"nodes of 4096 in the mean: {words}",), holds=holds)


def _availability_falls() -> Answer:
    """Return the availabilities of the system in per cent, and whether they fall from 32x32 over 64x64 to 128x128 nodes."""
    every = [availability(side, 0.001) for side in (32, 64, 128)]
    words = ", ".join(f"{side}x{side} {found:.1f} %" for side, found in zip((32, 64, 128), every, strict=True))
    return Answer(words, holds=every[0] > every[1] > every[2])


WORDS = (parts, chips, optical_switches, rails, row_nodes, row_bound, line_nodes, lone_rate, hops, virtual_channels)
COUNTS: Mapping[str, Callable[[], Answer]] = {
    "rx-hx-par": lambda: check_formula([("r=8, a=2", row_nodes("railx:hyperx:m=4,n=2,a=2", 4), 8 / 2 + 1)]),
    "rx-lem31": _lemma,
    "rx-t2-torus-bw": _torus_throughput,
    "rx-t2-df-bw": _dragonfly_throughput,
    "rx-d-hx": _most_inside,
    "rx-a2": _grids,
    "rx-a5": _other_subnetworks,
    "rx-worst": lambda: check_formula(_worst()),
    "rx-avail": _available,
    "rx-avail-s1": _falls,
    "rx-avail-s2": _availability_falls,
}


BOOK, REFERENCE = "railx", "2FT"
LINES: Mapping[str, str] = {  # 36 ports of 400 Gb/s a chip; switches have 64 ports, optical ones 128
    "2FT": "fat-tree:radix=64,tiers=2,planes=36",
    "Tap13": "fat-tree:radix=64,taper=3,planes=36",
    "Tap49": "fat-tree:radix=64,tiers=3,taper=7,planes=36",
    "Hx4": "hammingmesh:boards=32x32,side=4,planes=9",
    "Hx7": "hammingmesh:boards=32x32,side=7,planes=9",
    "Hx7-2ft": "hammingmesh:boards=64x64,side=7,planes=9",
    "TorOCS": "tpuv4:cubes=4x4x4,planes=6",
    "Tor": "tpuv4:cubes=4x4x4,planes=6",
    "RO": "rail-only:dims=64x64,planes=18",
    # 36 rails do not join 64 nodes of a row all to all. Of the splits that join 64, this has the widest middle.
    "Rx4": "railx:split:m=4,n=9,rails=K16@15+C4@21/K16@15+C4@21,k=1",
    "Rx7": "railx:hyperx:m=7,n=9,k=1",
}
_OPTICAL = "OCS"
_WITHOUT_SWITCHES = "Tor"  # its cubes are joined by the cables and modules of TorOCS
_PARTS: Mapping[str, tuple[tuple[str, ...], int]] = {  # by column the parts, and how many of them count as one
    "sw": (("switch", _OPTICAL), 1),
    "aot": (("optical transceiver", "optical module"), 1000),
    "pcc": (("DAC cable",), 1000),
}


@cache
def line_cost(name: str) -> Cost:
    """Return the cost of one line of the cost table, without switches in the bill if the line has none."""
    topology = build_topology(LINES[name])
    if name == _WITHOUT_SWITCHES:
        topology = replace(topology, bill={part: count for part, count in topology.bill.items() if part != _OPTICAL})
    return cost(topology, find_book(BOOK), across=True)


def dollars(name: str) -> float:
    """Return the dollars of a line of the cost table."""
    return line_cost(name).dollars


def value(name: str, what: str) -> float:
    """Return the value of a line of the cost table in one of its columns."""
    found = line_cost(name)
    if what in _PARTS:
        parts, of = _PARTS[what]
        return sum(found.parts[part][0] for part in parts if part in found.parts) / of
    if what == "cost":
        return found.dollars / 1e6
    if what == "gbw":
        return 100 * _global(name)
    return _rate(name, what) / _rate(REFERENCE, what)


def _global(name: str) -> float:
    """Return the global bandwidth of a line of the cost table as a share of its injection bandwidth.

    Global bandwidth is what half of the chips can send to the other half at once, for each of them.
    """
    found = line_cost(name)
    assert found.global_GBps is not None
    return found.global_GBps / found.injection_GBps


def _rate(name: str, what: str) -> float:
    """Return the dollars for each GB/s of injection, or of global bandwidth."""
    each = line_cost(name).dollars_per_injection_GBps
    return each / _global(name) if what == "cgb" else each
