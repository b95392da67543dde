"""Rows of the Flex-SiPAC paper that count CUs, links, wavelengths and WSS, by the links of the built topologies."""

from collections.abc import Iterable, Mapping

import numpy as np

from emu.arrays import Bool
from emu.equivalence import components
from emu.topology.topology import Topology
from launch.papers.networks import GBPS, build_once, parts

_WAVELENGTHS = 60  # of a CU (6.B)
RADICES: Mapping[int, range] = {2: range(4, 42, 2), 3: range(4, 12, 2)}  # radices that are built, by number of levels


def component_sizes(topology: Topology, rows: Bool | slice = slice(None)) -> list[int]:
    """Return the number of computing units (CUs) in each connected part of a topology.

    Args:
        topology: The topology.
        rows: The links that count; all unless given. CUs without such a link are left out.
    """
    links = topology.links
    joined = np.unique(np.concatenate((links.src[rows], links.dst[rows])))
    part = components(topology.n_npus, links.src[rows], links.dst[rows])[joined]
    return [int(size) for size in np.unique(part, return_counts=True)[1]]


def cus(word: str) -> int:
    """Return the number of computing units (CUs) that have a link, in a topology that `word` names."""
    return sum(component_sizes(build_once(word)))


def wss(word: str) -> int:
    """Return the number of WSS: one for each set of CUs that the light of a level joins."""
    topology = build_once(word)
    return sum(len(component_sizes(topology, topology.links.dimension == level)) for level in range(len(topology.dims)))


def common_value(values: Iterable[float]) -> float:
    """Return the value that all CUs have in common.

    Raises:
        ValueError: The values differ.
    """
    (found,) = set(values)
    return float(found)


def ports() -> str:
    """Return "L" if a computing unit (CU) has one port for each of the L levels and its farthest CU is L links away.

    Otherwise the text has both numbers.
    """
    topology = build_once("sipac:r=16,L=2")
    links, others = topology.links, np.arange(1, topology.n_npus)
    found = common_value(len(np.unique(links.dimension[links.src == cu])) for cu in range(topology.n_npus))
    farthest = topology.routes(np.zeros_like(others), others, np.zeros_like(others)).hops.max()
    return "L" if found == farthest == len(topology.dims) else f"{found:.0f} ports, {farthest} hops"


def neighbours(word: str) -> float:
    """Return the number of neighbours that each computing unit has, in a topology that `word` names."""
    return common_value(np.bincount(build_once(word).links.src).tolist())


def crossing(word: str) -> int:
    """Return the number of links from the lower half of the CUs to the upper half."""
    links, half = build_once(word).links, build_once(word).n_npus // 2
    return int(((links.src < half) & (links.dst >= half)).sum())


def cu_rate(word: str, level: int | None = None) -> float:
    """Return the bandwidth out of a CU in Gb/s.

    Args:
        word: The topology.
        level: The level whose links count; None: all.
    """
    links = build_once(word).links
    rows = slice(None) if level is None else links.dimension == level
    return common_value(np.round(np.bincount(links.src[rows], links.bandwidth_Bps[rows]) / GBPS).tolist())


def tpuv4(radix: int) -> int:
    """Return the number of chips of the largest TPUv4 whose OCS have this radix."""
    return cus(f"tpuv4:cubes={radix // 2}x1x1,radix={radix}")


def flex(radix: int, levels: int) -> int:
    """Return the number of CUs of a SiPAC with at least one wavelength for each neighbour."""
    return cus(f"sipac:r={radix},L={levels},w={max(_WAVELENGTHS, levels * (radix - 1))}")


def passes(levels: int) -> int:
    """Return the least radix from which on a SiPAC with these levels is larger than TPUv4."""
    return min(radix for radix in RADICES[levels] if flex(radix, levels) > tpuv4(radix))


def least_link_rate(word: str) -> float:
    """Return the bandwidth of the slowest link in Gb/s."""
    return float(round(build_once(word).links.bandwidth_Bps.min() / GBPS))


def mean_link_rate(word: str) -> float:
    """Return the mean bandwidth of a link in Gb/s."""
    return float(build_once(word).links.bandwidth_Bps.mean() / GBPS)


def wavelengths(word: str, rate: float) -> float:
    """Return the number of wavelengths of each link, by the rate of one wavelength in Gb/s."""
    return common_value(np.rint(build_once(word).links.bandwidth_Bps / GBPS / rate).tolist())


WORDS = (*(parts, cus, wss, neighbours, crossing, cu_rate, tpuv4, passes), *(least_link_rate, mean_link_rate, wavelengths))
