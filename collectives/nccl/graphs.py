"""The channels that NCCL lays over a server's NVLinks and NICs: the number and the speed of those of each pattern.

Its search tries speeds from the highest down and keeps the first that carries the most. This file has what the search finds on
servers with equal GPUs, each with all its NVLinks to one switch, and each NIC beside its GPU. Source: NVIDIA/nccl
v2.30.7-1, src/graph/search.cc lines 410-458 (NVLS), 1036-1049 (doubled channels), 1074-1275 (the search), and
src/graph/connect.cc lines 460-483 (channels of the communicator). Bandwidths in GB/s.
"""

from dataclasses import dataclass, replace

from collectives.nccl.constants import GENERATIONS, MOST_CHANNELS, MOST_SEARCHED, Generation
from emu.collective.libraries import GroupNetwork

_PCIE_REACHES = 0.96  # share of a NIC's rate that its PCIe lanes carry: 24 of 25 GB/s, 48 of 50
_FAST, _MANY = 50.0, 4  # a Hopper doubles channels from that speed on, or up to that many
_SLOW = 25.0  # slower channels are not doubled
_ENOUGH = 0.49  # lower shares of the best speed are not tried


@dataclass(frozen=True, slots=True)
class ChannelGraph:
    """The equal channels of one pattern, such as ring or tree: their number, and their speeds in GB/s.

    `within` is the speed of a channel inside a server, `between` that over its NIC.
    """

    channels: int
    within: float  # speed of a channel in a server
    between: float  # speed of a channel over its NIC


@dataclass(frozen=True, slots=True)
class ChannelGraphs:
    """The channels of all patterns that NCCL's search finds for one group."""

    generation: Generation
    servers: int
    per_server: int
    ring: ChannelGraph
    tree: ChannelGraph
    nvls: ChannelGraph | None  # None: no switch of a server adds
    nics_add: bool  # whether switches between servers add

    @property
    def ranks(self) -> int:
        """The number of ranks of the group: servers times ranks of a server."""
        return self.servers * self.per_server

    @property
    def channels(self) -> int:
        """The number of channels of rings and trees.

        It is twice the number that the search has found, and twice that again if few fast channels cross servers.
        """
        doubled = min(MOST_CHANNELS, 2 * self.ring.channels)
        few = self.servers > 1 and self.generation.nvls and self.ring.within > 45 and doubled < 16
        return 2 * doubled if few else doubled


def graphs_of(around: GroupNetwork) -> ChannelGraphs:
    """Return the ring, the trees and the NVLink SHARP channels that NCCL's search finds for a group.

    If a server's links are no faster than its NICs, each rank counts as a server of its own.

    Args:
        around: The servers, links and NICs that join the ranks of the group.
    """
    apart = around.hosts == 1 and around.within_Bps <= FASTEST_NIC
    servers, each = (around.ranks, 1) if apart else (around.hosts, max(1, around.ranks // around.hosts))
    nic = (around.within_Bps if apart else around.between_Bps) / 1e9
    known = generation_of(around.within_Bps / 1e9)
    ring = _ring(known, servers, each, nic, _nvlink(known, around))
    tree = ring if servers == 1 else _wider(ring, known, each, _nvlink(known, around))
    adds = around.adds_within and not apart and known.nvls > 0 and each > 1
    nvls = _nvls(known, servers, each, ring, _nvlink(known, around)) if adds else None
    return ChannelGraphs(known, servers, each, ring, tree, nvls, around.adds_between and servers > 1)


FASTEST_NIC = 100e9  # bytes per second, one way: 800 Gb/s; a faster port counts as NVLink


def generation_of(nvlink: float) -> Generation:
    """Return the GPU generation with `nvlink` GB/s over all NVLinks of a GPU, one way."""
    return next((each for each in GENERATIONS if nvlink <= each.most_nvlink), GENERATIONS[-1])


def _nvlink(known: Generation, around: GroupNetwork) -> float:
    """Return the rate (GB/s) that NCCL assumes for all NVLinks of a GPU together.

    A GPU with fewer links than others of its generation has proportionally less.
    """
    return known.nvlink * min(1.0, around.within_Bps / 1e9 / known.most_nvlink)


def _ring(known: Generation, servers: int, each: int, nic: float, nvlink: float) -> ChannelGraph:
    """Return the ring channels: within a server as many as NVLink carries, between servers one for each NIC."""
    if servers == 1:
        return _doubled(_fill_channels(known.within, MOST_SEARCHED, nvlink, nvlink), known)
    reach = _PCIE_REACHES * nic
    speed = next((s for s in known.between if s <= reach), known.between[-1])
    return _doubled(ChannelGraph(each, speed, speed), known)


def _fill_channels(speeds: tuple[float, ...], most: int, fastest: float, total: float) -> ChannelGraph:
    """Return the channels at the first of some speeds (GB/s) at which they carry most of `total` GB/s together."""
    best = ChannelGraph(0, 0.0, 0.0)
    for speed in (s for s in speeds if s <= fastest):
        if best.channels and (speed / best.within <= _ENOUGH or best.channels * best.within >= total):
            break
        channels = min(most, int(total / speed))
        if channels * speed > best.channels * best.within:
            best = ChannelGraph(channels, speed, speed)
    return best


def _doubled(found: ChannelGraph, known: Generation) -> ChannelGraph:
    """Return twice as many channels at half the rate if the GPU can use them; else the given channels."""
    many = known.nvls and found.within < _FAST and found.channels > _MANY
    if found.within < _SLOW or many:
        return found
    channels = min(2 * found.channels, MOST_SEARCHED)
    parts = -(-channels // found.channels)
    return ChannelGraph(channels, found.within / parts, found.between / parts)


def _wider(ring: ChannelGraph, known: Generation, each: int, nvlink: float) -> ChannelGraph:
    """Return the channels of a tree.

    Within a server, in which the chain of a tree has one hop less than a ring, they are up to twice as fast as over NICs.
    """
    best = ring
    for speed in sorted(s for s in known.between if s > ring.within):
        if best.within >= 2 * best.between or each == 1 or ring.channels * speed * (each - 1) > nvlink * each:
            break
        best = replace(best, within=speed)
    return best


def _nvls(known: Generation, servers: int, each: int, ring: ChannelGraph, nvlink: float) -> ChannelGraph:
    """Return the channels of NVLS, which has a head for each GPU.

    The NVLinks of a head carry its own channel twice, and every other channel once.
    """
    speeds = known.within if servers == 1 else known.between
    fastest = nvlink if servers == 1 else ring.between * -(-ring.channels // each)
    within = next((s for s in speeds if s <= fastest and s * (each + 1) <= nvlink), speeds[-1])
    between = within
    for speed in sorted(s for s in speeds if within < s and (servers == 1 or s <= fastest)):  # in one server nothing limits it
        between = speed if between < 2 * within else between
    return ChannelGraph(each, within, between)
