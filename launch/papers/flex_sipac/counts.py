"""Rows of the Flex-SiPAC paper that count CUs, links, wavelengths and WSS, by the links of the built topologies."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np

from emu.arrays import Bool
from emu.equivalence import components
from emu.topology.topology import Topology
from launch.papers.networks import GBPS, build_once

_WIDE = "sipac:r=16,L=2,w=64,rate=128Gb/s"  # it has 32 wavelengths a port
_STATIC, _LARGE = "sipac:r=16,L=2", "sipac:r=8,L=3"
_WAVELENGTHS, _RATE = 60, 32  # wavelengths of a CU, and Gb/s of a wavelength (6.B)
RADICES: Mapping[int, range] = MappingProxyType(
    {2: range(4, 42, 2), 3: range(4, 12, 2)}
)  # radices that are built, by number of levels


def component_sizes(topology: Topology, rows: Bool | slice = slice(None)) -> list[int]:
    """Return the number of CUs in each connected part of a topology.

    Args:
        topology: The topology.
        rows: The links that count; all unless given. CUs without such a link are left out.
    """
    links = topology.links
    joined = np.unique(np.concatenate((links.src[rows], links.dst[rows])))
    part = components(topology.n_npus, links.src[rows], links.dst[rows])[joined]
    return [int(size) for size in np.unique(part, return_counts=True)[1]]


def cus(word: str) -> float:
    """Return the number of CUs that links join, on a topology where all of them are in one part."""
    (found,) = component_sizes(build_once(word))
    return float(found)


def _switches() -> float:
    """Return the number of WSS: one for each part that the light of a level joins."""
    topology = build_once(_STATIC)
    return float(sum(len(component_sizes(topology, topology.links.dimension == level)) for level in range(len(topology.dims))))


def common_value(values: Iterable[float]) -> float:
    """Return the value that all CUs have.

    Raises:
        ValueError: the values differ.
    """
    (found,) = set(values)
    return float(found)


def _ports() -> str:
    """Return "L" if a CU has one port for each level and its farthest CU is L links away, else both numbers."""
    topology, links = build_once(_STATIC), build_once(_STATIC).links
    ports = common_value(len(np.unique(links.dimension[links.src == cu])) for cu in range(topology.n_npus))
    others = np.arange(1, topology.n_npus)
    farthest = topology.routes(np.zeros_like(others), others, np.zeros_like(others)).hops.max()
    return "L" if ports == farthest == len(topology.dims) else f"{ports:.0f} ports, {farthest} hops"


def _crossing() -> float:
    """Return the number of links from the lower half of the CUs to the upper."""
    links, half = build_once(_LARGE).links, build_once(_LARGE).n_npus // 2
    return float(((links.src < half) & (links.dst >= half)).sum())


def _out(word: str, level: int | None = None) -> float:
    """Return the bandwidth out of a CU in Gb/s.

    Args:
        word: The topology.
        level: The level whose links count; None: all.
    """
    links = build_once(word).links
    rows = slice(None) if level is None else links.dimension == level
    return common_value(np.round(np.bincount(links.src[rows], links.bandwidth_Bps[rows]) / GBPS).tolist())


def tpuv4(radix: int) -> float:
    """Return the number of chips of the largest TPUv4 whose OCS have this radix."""
    return cus(f"tpuv4:cubes={radix // 2}x1x1,radix={radix}")


def flex(radix: int, levels: int) -> float:
    """Return the number of CUs of a SiPAC with at least one wavelength for each neighbour."""
    return cus(f"sipac:r={radix},L={levels},w={max(_WAVELENGTHS, levels * (radix - 1))}")


def _passes(levels: int) -> float:
    """Return the least radix from which SiPAC with these levels is larger than TPUv4."""
    return float(min(radix for radix in RADICES[levels] if flex(radix, levels) > tpuv4(radix)))


def _two_jobs() -> float:
    """Return the wavelengths of each link within two jobs of two CUs."""
    links = build_once("flex-sipac:r=2,L=2,w=2,jobs=2+2").links
    return common_value(np.rint(links.bandwidth_Bps / GBPS / _RATE).tolist())


def _cus_of_jobs(word: str) -> float:
    """Return the number of CUs that links join within all jobs."""
    return float(sum(component_sizes(build_once(word))))


COUNTS: Mapping[str, Callable[[], float | str]] = MappingProxyType(
    {
        "fs-n-16-2": lambda: cus(_STATIC),
        "fs-n-16-3": lambda: cus("sipac:r=16,L=3"),
        "fs-n-4": lambda: _cus_of_jobs("flex-sipac:r=4,L=2,jobs=4+4+4+4"),
        "fs-n-2": lambda: _cus_of_jobs("flex-sipac:r=2,L=2,w=2,jobs=2+2"),
        "fs-m": _switches,
        "fs-ports": _ports,
        "fs-nb": lambda: common_value(np.bincount(build_once(_STATIC).links.src).tolist()),
        "fs-bis": _crossing,
        "fs-bw": lambda: _out(_LARGE),
        "fs-256": lambda: float(round(build_once(_WIDE).links.bandwidth_Bps.min() / GBPS)),
        "fs-4t": lambda: _out(_WIDE, 0) / 1000,
        "fs-frac": lambda: float(build_once(_LARGE).links.bandwidth_Bps.mean() / GBPS / _RATE),
        "fs-ilp-2x2": _two_jobs,
        "fs-scale-tpu": lambda: tpuv4(128),
        "fs-scale-x2": lambda: _passes(2) - 2,  # the last radix before it
        "fs-scale-x3": lambda: _passes(3),
        "fs-tpu-ocs": lambda: float(build_once("tpuv4:cubes=4x4x4").bill["OCS"]),
    }
)
