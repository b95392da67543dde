"""SiPAC with its wavelengths spread evenly, and Flex-SiPAC with them steered to the links that jobs use.

Flex-SiPAC 3, 5.B and 6.B. A WSS passes light only, so that it is bought, but is no node: two CUs that differ in one digit
have a link of as many wavelengths as lead from one to the other.
"""

import re
from dataclasses import replace
from functools import partial
from math import factorial
from typing import Annotated

import numpy as np

from emu.arrays import column
from emu.errors import must_be
from emu.topology.catalogue import Bandwidth, Count, Invariants, Kind, Latency, topology
from emu.topology.faults import without
from emu.topology.topology import Box, Drawing, Topology
from emu.units import format_bandwidth, format_time, seconds
from topologies.sipac.jobs import Configuration, initial, reconfigured, sequential
from topologies.sipac.levels import Levels, neighbours, uniform

_PAPER = "Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning (2024), "
_W = 60  # wavelengths of a CU (6.B.1)
_RATE = 4e9  # bytes per second of one, one direction: 32 Gb/s (6.B.1)
_LATENCY = 300_000_000  # ticks: 300 ns, RailX 6.4's for a hop between nodes


def _read_sizes(text: str, name: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9][0-9]{0,8}(\+[1-9][0-9]{0,8})*", text):
        raise must_be("topology", name, "sizes joined by +, such as 8+4+4", text)
    return tuple(map(int, text.split("+")))


def _read_kept(text: str, name: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise must_be("topology", name, "a whole number of 0 or more", text)
    return int(text)


Sizes = Annotated[tuple[int, ...], Kind(_read_sizes, lambda sizes: "+".join(map(str, sizes)))]
Kept = Annotated[int, Kind(_read_kept, str)]
By = Annotated[str, Kind(lambda text, _: text, str)]


def _sipac_invariants(r: int, L: int, w: int, rate: float, **_: object) -> Invariants:
    levels = Levels("sipac", r, L, w)
    return Invariants(
        levels.npus * levels.degree,
        levels.degree,
        L,
        _bisection(levels, rate),
        npus=levels.npus,
        switches=0,
        injection_Bps=(w - _dark(levels)) * rate,
        paths=factorial(L),
    )


def _dark(levels: Levels) -> int:
    """Wavelengths of a CU that no neighbour gets."""
    return levels.r % 2 * (levels.w % 2)


def _bisection(levels: Levels, rate: float) -> float | None:
    """Through the middle of the level whose halves have fewest wavelengths between them; None for odd r."""
    if levels.r % 2:
        return None
    near = neighbours(levels)
    wavelengths, half = uniform(levels, near), levels.r // 2
    digits = [[end // levels.r**level % levels.r for level in range(levels.L)] for end in (near.src, near.dst)]
    return rate * min(int(wavelengths[(a < half) & (b >= half)].sum()) for a, b in zip(*digits, strict=True))


@topology(
    "sipac",
    source=f"{_PAPER}3.A",
    examples=("r=4,L=2", "r=2,L=2,w=2", "r=3,L=2,w=13", "r=6,L=2,w=23,rate=128Gb/s", "r=2,L=4,w=9", "r=5,L=1", "r=4,L=3"),
    full=("r=8,L=2", "r=8,L=3", "r=16,L=2", "r=16,L=3"),
    invariants=_sipac_invariants,
)
def sipac(r: Count, L: Count, w: Count = _W, rate: Bandwidth = _RATE, latency: Latency = _LATENCY) -> Topology:
    """CUs whose L digits below r name them, each with light to all that differ in one: N = r^L, diameter L.

    Args:
        r: Ports of a WSS.
        L: Levels, which are ports of a CU.
        w: Wavelengths of a CU, spread evenly over its L (r - 1) neighbours.
        rate: Of a wavelength.
        latency: Of a hop.
    """
    return topology_of(initial(Levels("sipac", r, L, w)), rate, latency)


def _flex_invariants(r: int, L: int, jobs: tuple[int, ...], w: int, keep: int, **_: object) -> Invariants:
    """Where a wavelength serves each link of a job, as it does where all its CUs have as many neighbours in it."""
    levels = Levels("flex-sipac", r, L, w)
    near, ends = neighbours(levels), np.cumsum(jobs)
    job = np.searchsorted(ends, np.arange(levels.npus), "right")  # CUs in none after all others
    lit = (job[near.src] == job[near.dst]) | (keep > 0)
    degree = np.bincount(near.src[lit], minlength=levels.npus)
    whole = keep > 0 or len(set(job.tolist())) == 1
    fewest, most = int(degree.min()), int(degree.max())
    return Invariants(int(lit.sum()), (fewest, most), L if whole else None, npus=levels.npus, switches=0)


@topology(
    "flex-sipac",
    source=f"{_PAPER}3.C and 6.A.1",
    examples=(
        "r=4,L=2,jobs=16",
        "r=4,L=2,jobs=8+4+4,w=30,keep=1",
        "r=2,L=2,jobs=2+2,w=4,keep=1,by=program",
        "r=2,L=3,jobs=6,w=7,keep=1,rate=10Gb/s",
        "r=4,L=3,jobs=64",
    ),
    full=("r=8,L=2,jobs=64", "r=8,L=3,jobs=512", "r=16,L=3,jobs=4096"),
    invariants=_flex_invariants,
)
def flex_sipac(
    r: Count,
    L: Count,
    jobs: Sizes,
    w: Count = _W,
    keep: Kept = 0,
    by: By = "heuristic",
    rate: Bandwidth = _RATE,
    latency: Latency = _LATENCY,
) -> Topology:
    """SiPAC with the wavelengths between jobs moved to the links within them: what joins no two CUs of a job is dark.

    Args:
        r: Ports of a WSS.
        L: Levels.
        jobs: Sizes, on CUs one after another.
        w: Wavelengths of a CU.
        keep: Wavelengths that all links keep, so that jobs can reach one another.
        by: Whether the heuristic or the integer program assigns the others.
        rate: Of a wavelength.
        latency: Of a hop.
    """
    levels = Levels("flex-sipac", r, L, w)
    levels.check()
    if sum(jobs) > levels.npus:
        raise must_be("flex-sipac", "CUs of all jobs", f"at most {levels.npus} (r^L)", sum(jobs), "take fewer or a larger L")
    return topology_of(reconfigured(initial(levels, keep), sequential(jobs), by=by), rate, latency)


def topology_of(configuration: Configuration, rate: float = _RATE, latency: int = _LATENCY) -> Topology:
    """The topology of what is set up: a link for each pair of neighbours that has wavelengths.

    A message goes level 0 first, then level 1 and so on; where no light leads along, by fewest links.

    Args:
        configuration: Wavelengths of each link.
        rate: Of a wavelength, bytes per second.
        latency: Of a hop, ticks.
    """
    levels, wavelengths = configuration.levels, configuration.wavelengths
    whole, lit = levels.lattice(rate, latency), wavelengths > 0
    found = whole if lit.all() else without(whole, links=np.flatnonzero(~lit))
    return replace(
        found,
        name=levels.name,
        links=replace(found.links, bandwidth_Bps=column(wavelengths[lit] * rate, np.float64)),
        bill=_bill(configuration),
        assumptions=_assumptions(configuration, rate, latency),
        tiers=tuple(f"level {level}" for level in reversed(range(levels.L))),
        draw=partial(_draw, levels),
    )


def _bill(configuration: Configuration) -> dict[str, int]:
    levels, near = configuration.levels, configuration.near
    lit = configuration.wavelengths > 0
    pairs = np.unique(np.minimum(near.src, near.dst)[lit] * near.n + np.maximum(near.src, near.dst)[lit])
    parts = {"NPU": levels.npus, "WSS": levels.switches, "comb transceiver": levels.npus, "fibre pair": levels.npus * levels.L}
    return {**parts, "link of wavelengths": len(pairs)}


def _assumptions(configuration: Configuration, rate: float, latency: int) -> tuple[str, ...]:
    levels = configuration.levels
    total = format_bandwidth(levels.w * rate)
    words = [
        f"a CU has {levels.w} wavelengths of {format_bandwidth(rate)} one way, {total} in all",
        f"a hop takes {format_time(seconds(latency))}, whatever the fibre's length: a WSS is passive (no latency is published)",
        "a message goes level 0 first, then level 1 and so on, and CUs relay it; where no light leads so, by fewest links",
        *(_even(levels) if (configuration.job < 0).any() else ()),
        *(_steered(configuration) if (configuration.job >= 0).any() else ()),
    ]
    return tuple(words)


def _even(levels: Levels) -> tuple[str, ...]:
    each, over = divmod(levels.w, levels.degree)
    over -= _dark(levels)
    dark = "; one is dark, as an odd number of CUs cannot be joined two by two" * _dark(levels)
    rest = f", {over} of them one more" if over else ""
    return (f"without jobs each of {levels.degree} neighbours gets {each} wavelengths{rest}{dark}",)


def _steered(configuration: Configuration) -> tuple[str, ...]:
    """Sentences on jobs."""
    sizes = np.bincount(configuration.job[configuration.job >= 0])
    which = f"jobs of {'+'.join(map(str, sizes))} CUs" if len(sizes) <= 8 else f"{len(sizes)} jobs"
    idle = int((configuration.job < 0).sum())
    return (
        f"{which}, whose traffic is scaled to w wavelengths in and out of every CU (equation 1 leaves the unit open)",
        f"links that are in no job have {configuration.keep or 'no'} wavelengths (keep)",
        *([f"{idle} CUs in no job leave their wavelengths as they were among themselves"] if idle else []),
    )


def _draw(levels: Levels) -> Drawing:
    """Level 0 to the right, level 1 down, level 2 to the right again; lines bowed, so that light past a CU is seen."""
    at, npus = np.zeros((levels.npus, 2)), np.arange(levels.npus)
    pitch, middle = [1.0, 1.5], (levels.r - 1) / 2
    for level in range(levels.L):
        digit, axis = npus // levels.r**level % levels.r, level % 2
        at[:, axis] += digit * pitch[axis] * (1 - 2 * axis)
        at[:, 1 - axis] += (0.3 if level < 2 else 0.8) * (1 - (digit / middle - 1) ** 2)
        pitch[axis] = pitch[axis] * levels.r + 0.8
    return Drawing(at, _boxes(levels))


def _boxes(levels: Levels) -> tuple[Box, ...]:
    """The r smaller ones that the highest level joins, by the paper's name (Figure 2)."""
    size = levels.npus // levels.r
    return tuple(Box(f"SiPAC({levels.r},{levels.L - 2}) {i}", (i * size, (i + 1) * size)) for i in range(levels.r) if size > 1)
