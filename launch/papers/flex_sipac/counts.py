"""Rows of the Flex-SiPAC paper that count CUs, links, wavelengths and WSS, on the links of what is built."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np

from emu.arrays import Bool
from emu.topology.orbits import components
from emu.topology.topology import Topology
from launch.papers.wiring import GBPS, built

_WIDE = "sipac:r=16,L=2,w=64,rate=128Gb/s"  # 32 wavelengths a port
_STATIC, _LARGE = "sipac:r=16,L=2", "sipac:r=8,L=3"
_WAVELENGTHS, _RATE = 60, 32  # of a CU, and Gb/s of each (6.B)
RADICES: Mapping[int, range] = MappingProxyType({2: range(4, 42, 2), 3: range(4, 12, 2)})  # by levels; those that are built


def parts(topology: Topology, rows: Bool | slice = slice(None)) -> list[int]:
    """How many CUs each part has that some links, of all unless given, join; those without a link are left out."""
    links = topology.links
    joined = np.unique(np.concatenate((links.src[rows], links.dst[rows])))
    part = components(topology.n_npus, links.src[rows], links.dst[rows])[joined]
    return [int(size) for size in np.unique(part, return_counts=True)[1]]


def cus(word: str) -> float:
    """That links join."""
    (found,) = parts(built(word))
    return float(found)


def _switches() -> float:
    """A WSS of a level is what its light joins."""
    topology = built(_STATIC)
    return float(sum(len(parts(topology, topology.links.dimension == level)) for level in range(len(topology.dims))))


def same(values: Iterable[float]) -> float:
    """What is the same of all CUs."""
    (found,) = set(values)
    return float(found)


def _ports() -> str:
    """Levels on which a CU has light, where its farthest CU is as many links away."""
    topology, links = built(_STATIC), built(_STATIC).links
    ports = same(len(np.unique(links.dimension[links.src == cu])) for cu in range(topology.n_npus))
    others = np.arange(1, topology.n_npus)
    farthest = topology.routes(np.zeros_like(others), others, np.zeros_like(others)).hops.max()
    return "L" if ports == farthest == len(topology.dims) else f"{ports:.0f} ports, {farthest} hops"


def _crossing() -> float:
    links, half = built(_LARGE).links, built(_LARGE).n_npus // 2
    return float(((links.src < half) & (links.dst >= half)).sum())


def _out(word: str, level: int | None = None) -> float:
    """Gb/s out of a CU, of one level where it is given."""
    links = built(word).links
    rows = slice(None) if level is None else links.dimension == level
    return same(np.round(np.bincount(links.src[rows], links.bandwidth_Bps[rows]) / GBPS).tolist())


def tpuv4(radix: int) -> float:
    """Chips of as many cubes as an OCS of that radix takes."""
    return cus(f"tpuv4:cubes={radix // 2}x1x1,radix={radix}")


def flex(radix: int, levels: int) -> float:
    """CUs, of at least a wavelength for each neighbour."""
    return cus(f"sipac:r={radix},L={levels},w={max(_WAVELENGTHS, levels * (radix - 1))}")


def _passes(levels: int) -> float:
    """The least radix by which it is larger than TPUv4."""
    return float(min(radix for radix in RADICES[levels] if flex(radix, levels) > tpuv4(radix)))


def _two_jobs() -> float:
    """Wavelengths of each link within two jobs of two."""
    links = built("flex-sipac:r=2,L=2,w=2,jobs=2+2").links
    return same(np.rint(links.bandwidth_Bps / GBPS / _RATE).tolist())


def _of_jobs(word: str) -> float:
    return float(sum(parts(built(word))))


COUNTED: Mapping[str, Callable[[], float | str]] = MappingProxyType(
    {
        "fs-n-16-2": lambda: cus(_STATIC),
        "fs-n-16-3": lambda: cus("sipac:r=16,L=3"),
        "fs-n-4": lambda: _of_jobs("flex-sipac:r=4,L=2,jobs=4+4+4+4"),
        "fs-n-2": lambda: _of_jobs("flex-sipac:r=2,L=2,w=2,jobs=2+2"),
        "fs-m": _switches,
        "fs-ports": _ports,
        "fs-nb": lambda: same(np.bincount(built(_STATIC).links.src).tolist()),
        "fs-bis": _crossing,
        "fs-bw": lambda: _out(_LARGE),
        "fs-256": lambda: float(round(built(_WIDE).links.bandwidth_Bps.min() / GBPS)),
        "fs-4t": lambda: _out(_WIDE, 0) / 1000,
        "fs-frac": lambda: float(built(_LARGE).links.bandwidth_Bps.mean() / GBPS / _RATE),
        "fs-ilp-2x2": _two_jobs,
        "fs-scale-tpu": lambda: tpuv4(128),
        "fs-scale-x2": lambda: _passes(2) - 2,  # after which
        "fs-scale-x3": lambda: _passes(3),
        "fs-tpu-ocs": lambda: float(built("tpuv4:cubes=4x4x4").bill["OCS"]),
    }
)
