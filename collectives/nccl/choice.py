"""NCCL's choice for one request: algorithm, protocol and channels, and the schedule of the catalogue that sends the same.

Source: NVIDIA/nccl v2.30.7-1, src/enqueue.cc, topoGetAlgoInfo (lines 2028-2118). An operation that NCCL does not tune is made
of sends and receives there. A protocol changes the choice, but not how a schedule is timed.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from collectives.nccl import constants
from collectives.nccl.constants import LL, PROTOCOLS, SIMPLE
from collectives.nccl.graphs import ChannelGraphs, graphs_of
from collectives.nccl.tuning import ALL_REDUCE, ROOTED, TUNED, AlgorithmVariant, ExpectedTime, expected_times, time_us
from emu.collective.algorithm import AlgorithmOnDims
from emu.collective.libraries import GroupNetwork, LibraryChoice, library

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
    """NCCL's choice of an algorithm, its protocol and its number of channels, which it makes together."""

    way: AlgorithmVariant
    channels: int

    def __str__(self) -> str:
        return (
            f"{_CALLED[self.way.algorithm]}, {PROTOCOLS[self.way.protocol]}, {self.channels} channel{'s' * (self.channels > 1)}"
        )


@lru_cache(maxsize=256)
def _expectations(operation: str, around: GroupNetwork) -> tuple[ChannelGraphs, dict[AlgorithmVariant, ExpectedTime]]:
    """Return the channels that NCCL finds for a group, and the times that it expects of each algorithm and protocol."""
    on = graphs_of(around)
    return on, expected_times(operation, on)


def nccl_choice(operation: str, size: int, around: GroupNetwork) -> NcclChoice:
    """Return NCCL's choice for an operation of `size` bytes: the one that its tuning model expects to be the fastest."""
    on, ways = _expectations(operation, around)
    best = min(ways, key=lambda way: time_us(operation, way, ways[way], on, size))
    return NcclChoice(best, _channels(best, size, on))


def _channels(way: AlgorithmVariant, size: int, on: ChannelGraphs) -> int:
    """Return the number of channels: all that NCCL has built, or only as many as have enough bytes to send."""
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
    """Return the algorithm that sends what NCCL would send; None where NCCL sends each pair's data by itself."""
    if around.ranks < 2:
        return None
    if operation not in TUNED:
        return _point_to_point(operation, around)
    found = nccl_choice(operation, size, around)
    return LibraryChoice(_catalogue_name(operation, found, around), str(found))


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
    """Return servers x ranks of each, where the group's order shows them and there are several of both; else ()."""
    each = around.ranks // around.hosts
    return (around.hosts, each) if around.in_order and around.hosts > 1 and each > 1 else ()


def _catalogue_name(operation: str, found: NcclChoice, around: GroupNetwork) -> AlgorithmOnDims:
    """Return the algorithm that sends what NCCL would send.

    The rings of one server are all the same ring, and its trees are chains.
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
    """Return the grid with a ring or pair of trees for each NIC of a server, or for each channel if these are fewer.

    () stays ().
    """
    each = dims[-1] if dims else 1
    lanes = max(lane for lane in range(1, each + 1) if each % lane == 0 and lane <= max(1, channels))
    return dims if lanes == each else (dims[0], lanes, each // lanes, 1)
