"""NCCL's choice for one request (algorithm, protocol, channels), and the algorithm of the catalogue that sends the same.

Source: NVIDIA/nccl v2.30.7-1, src/enqueue.cc, topoGetAlgoInfo (lines 2028-2118). An operation that NCCL does not tune is made
of sends and receives there. A protocol changes the choice, but not how a schedule is timed.

`nccl_choice` uses NCCL's tuning model: the latency and bandwidth that it expects of each algorithm and protocol, and the time
of a size. Source: NVIDIA/nccl v2.30.7-1, src/graph/tuning.cc, ncclTopoTuneModel (lines 243-560) and ncclTopoGetAlgoTime
(630-660). Hosts are Intel's and NICs add no latency of their own, as NCCL takes InfiniBand's. No variable of NCCL's environment
is set.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import inf, log2
from types import MappingProxyType
from typing import NamedTuple

from collectives.nccl import constants
from collectives.nccl.constants import LL, LL128, PROTOCOLS, SIMPLE, Rates
from collectives.nccl.graphs import ChannelGraph, ChannelGraphs, graphs_of
from emu.collective.choice import AlgorithmOnDims
from emu.collective.libraries import GroupNetwork, LibraryChoice, library
from emu.units import format_bandwidth

ALL_REDUCE = "all_reduce"
HALVES = ("all_gather", "reduce_scatter")
ROOTED = ("broadcast", "reduce")
TUNED = (ALL_REDUCE, *HALVES, *ROOTED)


class AlgorithmVariant(NamedTuple):
    """An algorithm of NCCL, such as ring, with one of its protocols (LL, LL128 or Simple)."""

    algorithm: str
    protocol: int


ExpectedTime = tuple[float, float]  # microseconds before the first byte, and GB/s for the operation's size, that NCCL expects


def expected_times(operation: str, on: ChannelGraphs) -> dict[AlgorithmVariant, ExpectedTime]:
    """Return the latency and the bandwidth that NCCL expects of each variant that can serve an operation, in NCCL's order."""
    ways = (
        AlgorithmVariant(name, protocol) for name in _serving(operation, on) for protocol in range(len(constants.PROTOCOLS))
    )
    found = ((way, (_latency(operation, way, on), _bandwidth(operation, way, on))) for way in ways)
    return {way: each for way, each in found if each[1] > 0}


def time_us(operation: str, way: AlgorithmVariant, of: ExpectedTime, on: ChannelGraphs, size: int) -> float:
    """Return the microseconds that NCCL expects an operation to take.

    Args:
        operation: The operation.
        way: The algorithm with its protocol.
        of: The latency and the bandwidth that NCCL expects of it.
        on: The channels of the group.
        size: The size in bytes.
    """
    (latency, bandwidth), step = of, int(log2(size // 64)) if size >= 64 else -1
    corrected = way.algorithm == "tree" or on.generation is constants.GENERATIONS[-1]
    if operation == ALL_REDUCE and corrected and 0 <= step < constants.TREES_TO.get(way.algorithm, 0):
        bandwidth *= constants.TREES_REACH[way.protocol][step]
    of_each = size // (on.channels * on.ranks)
    if way == AlgorithmVariant("ring", SIMPLE) and on.servers > 1 and operation == ALL_REDUCE and of_each >= 64:
        latency *= constants.RING_PLATEAU[on.generation.name == "Volta"]
    return latency + size / (1000 * bandwidth)


def _serving(operation: str, on: ChannelGraphs) -> Iterator[str]:
    """Yield the algorithms that can serve an operation of a group."""
    whole, half = operation == ALL_REDUCE, operation in HALVES
    direct = on.nics_add and on.per_server <= constants.MOST_DIRECT
    if whole:
        yield "tree"
    yield "ring"
    if direct and on.nvls and (whole or half):
        yield "collnet-direct"
    if direct and whole:
        yield "collnet-chain"
    if on.nvls and on.nvls.channels > 1:
        if (on.servers == 1 or on.nics_add) and (whole or (half and on.per_server <= constants.MOST_HEADS)):
            yield "nvls"
        if whole and on.servers > 1:
            yield "nvls-tree"
    if half and on.per_server == 1:
        yield "pat"


def _rate(rates: Rates, on: ChannelGraphs) -> float:
    """Return the rate for the number of servers of a group.

    Args:
        rates: The rates for one server, for two, and for more.
        on: The channels of the group.
    """
    return rates[min(on.servers - 1, 2)]


def _bandwidth(operation: str, way: AlgorithmVariant, on: ChannelGraphs) -> float:
    """Return the bandwidth (GB/s) for the operation's size; 0 if the algorithm does not exist with that protocol."""
    name, protocol = way
    if name == "ring":
        return _ring_bandwidth(protocol, on) * on.ranks / _steps(operation, on)
    if name == "tree":
        return _tree_bandwidth(protocol, on) / 2
    if protocol != SIMPLE:
        return 0.0
    if name == "pat":
        return 0.75 * on.ring.channels * on.ring.between
    if name in ("nvls", "nvls-tree") and on.nvls:
        return _nvls_bandwidth(operation, name, on, on.nvls)
    return _collnet_bandwidth(operation, name, on)


def _steps(operation: str, on: ChannelGraphs) -> int:
    """Return the number of steps of a ring for an operation."""
    return {ALL_REDUCE: 2 * (on.ranks - 1), **dict.fromkeys(HALVES, on.ranks - 1)}.get(operation, on.ranks)


def _speed(graph: ChannelGraph, on: ChannelGraphs) -> float:
    """Return the rate (GB/s) of one channel: within a server for up to two servers, else between servers."""
    return graph.within if on.servers <= 2 else graph.between


def _most_ll(on: ChannelGraphs) -> float:
    """Return the largest bandwidth (GB/s) of protocol LL."""
    return on.generation.ll if on.servers == 1 else _rate(constants.LL_BETWEEN, on)


def _ring_bandwidth(protocol: int, on: ChannelGraphs) -> float:
    """Return the bus bandwidth (GB/s) of rings."""
    bus = on.ring.channels * _speed(on.ring, on)
    if protocol == LL:
        return min(_most_ll(on), bus / 2)
    return min(0.92 * bus, on.ring.channels * on.generation.ring_ll128) if protocol == LL128 else bus


def _tree_bandwidth(protocol: int, on: ChannelGraphs) -> float:
    """Return the bus bandwidth (GB/s) of trees."""
    channels, full = on.tree.channels, on.tree.channels * _speed(on.tree, on)
    bus = min(0.92 * full, channels * _rate(on.generation.tree, on))
    if protocol == LL:
        bus = min(bus / 3.8, _most_ll(on))
    if protocol == LL128:
        bus = min(bus * (7 / 9 if on.servers == 1 else 120 / 128), channels * _rate(on.generation.tree_ll128, on))
    return 0.85 * bus if on.per_server == 1 else bus


def _nvls_bandwidth(operation: str, name: str, on: ChannelGraphs, graph: ChannelGraph) -> float:
    """Return the bandwidth (GB/s) of NVLS, in which switches within servers add.

    That of an all_reduce is in terms of its size.
    """
    within = graph.within * on.generation.nvls * (graph.channels - 1) / graph.channels
    within *= 2 if operation == ALL_REDUCE else (on.per_server - 1) / on.per_server
    between = graph.between * (2 if name == "nvls-tree" and on.servers == 2 else 1)
    bus = graph.channels * min(within, between, _rate(on.generation.nvls_tree, on) if name == "nvls-tree" else inf)
    return bus * on.ranks / _steps(operation, on) if operation == ALL_REDUCE else bus


def _collnet_bandwidth(operation: str, name: str, on: ChannelGraphs) -> float:
    """Return the bandwidth (GB/s) of CollNet, in which switches between servers add."""
    graph, each = on.nvls or on.ring, on.per_server
    bus = graph.channels * graph.within
    if name == "collnet-chain":
        return on.ring.channels * on.ring.within / 2
    if operation in HALVES:
        return each * min(graph.within, 0.9 * graph.between)
    per_nic = each / graph.channels
    return bus / (per_nic - (per_nic - 1) / 2) * (0.85 if on.generation.nvls else 1) / 2


def _latency(operation: str, way: AlgorithmVariant, on: ChannelGraphs) -> float:
    """Return the latency (us) of an algorithm and protocol: a base, and its hops over NVLink and over NICs."""
    name, p = way
    base, near = constants.BASE.get(name, (0.0,) * 3)[p], constants.OVER_NVLINK.get(name, (0.0,) * 3)[p]
    far, each, deep = constants.OVER_NICS["tree" if on.per_server == 1 else name][p], on.per_server, int(log2(on.servers))
    if name == "ring":
        return base + _ring_latency(operation, p, on, near, far)
    of = {
        "tree": base + 2 * ((each - 1) * near + deep * far),
        "nvls": near + far * (on.servers > 1),
        "nvls-tree": near + 2 * deep * far,
        "pat": base + deep * far / 3.5 + 2.8 * on.ranks,
        "collnet-chain": 2 * (each - 1) * near + far,
        "collnet-direct": 2 * (min(1, each - 1) * near + (each - 1) * 0.4) + far,
    }
    return of[name]


def _ring_latency(operation: str, protocol: int, on: ChannelGraphs, near: float, far: float) -> float:
    """Return the latency (us) of the steps of a ring."""
    if operation in ROOTED:  # the channels of a search are all alike here
        return near if on.servers == 1 else constants.OVER_NICS["ring"][protocol]
    between = 0 if on.servers == 1 else (2 if operation == ALL_REDUCE else 1) * (on.servers - 1)
    step = max(near, constants.POST[protocol]) if on.servers > 1 else near
    return (_steps(operation, on) - between) * step + between * far


_CALLED: Mapping[str, str] = MappingProxyType(
    {
        "tree": "Tree",
        "ring": "Ring",
        "collnet-direct": "CollNetDirect",
        "collnet-chain": "CollNetChain",
        "nvls": "NVLS",
        "nvls-tree": "NVLSTree",
        "pat": "PAT",
    }
)


class NcclChoice(NamedTuple):
    """NCCL's choice for one operation: the algorithm, the protocol and the number of channels."""

    way: AlgorithmVariant
    channels: int

    def __str__(self) -> str:
        return (
            f"{_CALLED[self.way.algorithm]}, {PROTOCOLS[self.way.protocol]}, {self.channels} channel{'s' * (self.channels > 1)}"
        )


@lru_cache(maxsize=256)
def _expectations(operation: str, around: GroupNetwork) -> tuple[ChannelGraphs, dict[AlgorithmVariant, ExpectedTime]]:
    """Return NCCL's channels for a group, and the times that NCCL expects of each algorithm and protocol."""
    on = graphs_of(around)
    return on, expected_times(operation, on)


def nccl_choice(operation: str, size: int, around: GroupNetwork) -> NcclChoice:
    """Return NCCL's choice for an operation of `size` bytes: the variant that its tuning model expects to be fastest."""
    on, ways = _expectations(operation, around)
    best = min(ways, key=lambda way: time_us(operation, way, ways[way], on, size))
    return NcclChoice(best, _channels(best, size, on))


def _channels(way: AlgorithmVariant, size: int, on: ChannelGraphs) -> int:
    """Return the number of channels for a message size: all that NCCL has built, or fewer if the bytes are too few."""
    if way.algorithm.startswith("nvls"):
        within, across = constants.NVLS_CHANNELS[on.generation.name]
        return min(across, on.channels) if way.algorithm == "nvls" and on.servers > 1 else (within, across)[on.servers > 1]
    if way.algorithm == "pat":
        return on.channels
    slow = way == AlgorithmVariant("ring", SIMPLE) and on.ring.channels * on.ring.within <= constants.PCIE
    threads = constants.SLOW_THREADS if slow else constants.THREADS[way.protocol]
    each = threads * constants.BYTES_A_THREAD[way.protocol] * (on.ranks if way == AlgorithmVariant("ring", LL) else 1)
    return max(1, min(on.channels, size // each))


@library("nccl")
def nccl(operation: str, size: int, around: GroupNetwork) -> LibraryChoice | None:
    """Return the algorithm that sends the same as NCCL would; None if NCCL sends the data of each pair by itself."""
    if around.ranks < 2:
        return None
    if operation not in TUNED:
        return _point_to_point(operation, around)
    found = nccl_choice(operation, size, around)
    served = _catalogue_name(operation, found, around)
    return LibraryChoice(served, str(found), tuple(_assumptions(found, served, around)))


_RINGS, _TREES = ("one ring", "rings"), ("one pair of trees", "pairs of trees")
_LANES = MappingProxyType({"ring": _RINGS, "rail-ring": _RINGS, "double-tree": _TREES, "rail-tree": _TREES})


def _assumptions(found: NcclChoice, served: AlgorithmOnDims, around: GroupNetwork) -> Iterator[str]:
    """Yield a sentence for each thing on which a choice, or the time of the schedule that sends the same, rests."""
    on, nic_Bps = graphs_of(around), around.between_Bps if around.hosts > 1 else around.within_Bps
    of_each = f"{on.per_server} {on.generation.name} GPU{'s' * (on.per_server > 1)}"
    if on.servers == 1:
        yield f"NCCL is taken to see 1 server of {of_each}"
        return
    yield f"NCCL is taken to see {on.servers} servers of {of_each}, with a NIC of {format_bandwidth(nic_Bps)} for each GPU"
    lanes = _lanes(_nodes(around), found.channels)[1] if served.dims else 1
    names = _LANES.get(served.algorithm)
    if names and lanes < found.channels:
        timed = names[0] if lanes == 1 else f"{lanes} {names[1]}"
        yield (
            f"the {found.channels} channels of NCCL are timed as {timed}, with one way from each GPU to the next; so many "
            "channels may spread over more ways"
        )
    if names is _RINGS and on.per_server > 1:
        yield (
            "a ring leaves a server by the NIC of one GPU and enters the next by that of another, on the topology's routes; "
            "NCCL first takes such a message over NVLink to the GPU whose NIC is on the same rail (PXN)"
        )


def _point_to_point(operation: str, around: GroupNetwork) -> LibraryChoice | None:
    """Return the algorithm of an all_to_all: sends and receives, which go over the NIC of the receiving rank (PXN)."""
    if operation != "all_to_all":
        return None
    dims = _nodes(around)
    return (
        LibraryChoice(AlgorithmOnDims("rail", dims), "sends and receives, PXN")
        if dims
        else LibraryChoice(AlgorithmOnDims("at-once"), "sends and receives")
    )


def _nodes(around: GroupNetwork) -> tuple[int, ...]:
    """Return (servers, ranks of a server) if both are above 1 and the group is in this order; else ()."""
    each = around.ranks // around.hosts
    return (around.hosts, each) if around.in_order and around.hosts > 1 and each > 1 else ()


def _catalogue_name(operation: str, found: NcclChoice, around: GroupNetwork) -> AlgorithmOnDims:
    """Return the algorithm of the catalogue that sends the same data as NCCL's choice.

    Within one server, all rings are the same ring, and trees are chains.
    """
    name, dims = found.way.algorithm, _nodes(around)
    if operation in ROOTED:
        return AlgorithmOnDims("pipelined-chain")
    if name == "pat":
        return AlgorithmOnDims("bruck")
    if name == "nvls" and operation != ALL_REDUCE:
        return AlgorithmOnDims("in-switch")
    if name in ("nvls", "nvls-tree"):
        return (
            AlgorithmOnDims("in-switch-tree", dims or (1, around.ranks))
            if dims or around.hosts == 1
            else AlgorithmOnDims("double-tree")
        )
    lanes = _lanes(dims, found.channels)
    if name == "ring":
        return AlgorithmOnDims("rail-ring", lanes) if lanes[1:2] > (1,) else AlgorithmOnDims("ring")
    return AlgorithmOnDims("rail-tree", lanes) if dims else AlgorithmOnDims("double-tree")


def _lanes(dims: tuple[int, ...], channels: int) -> tuple[int, ...]:
    """Return the grid with a ring or a pair of trees for each NIC of a server, or for each channel if these are fewer.

    The grid () stays ().
    """
    each = dims[-1] if dims else 1
    lanes = max(lane for lane in range(1, each + 1) if each % lane == 0 and lane <= max(1, channels))
    return dims if lanes == each else (dims[0], lanes, each // lanes, 1)
