"""SiPAC with its wavelengths spread evenly, and Flex-SiPAC with wavelengths moved to the links that jobs use.

Source: Flex-SiPAC 3, 5.B and 6.B. A WSS passes light only, so that it is in the bill but is no node. Two CUs that differ in one
digit have a link of as many wavelengths as lead from one to the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import factorial
from typing import Annotated

import numpy as np

from emu.arrays import I64, Bool, column
from emu.equivalence import components
from emu.errors import must_be
from emu.topology.catalogue import HOP_LATENCY, Bandwidth, Count, Invariants, Latency, SettingKind, topology, whole_number
from emu.topology.gang_rule import in_blocks
from emu.topology.job_sizes import Sizes, SizesOrNone
from emu.topology.placement import without
from emu.topology.removal import remove_parts
from emu.topology.topology import Drawing, FailedParts, Reaction, Topology, frames
from emu.topology.usable_npus import usable_in_blocks
from emu.units import format_bandwidth, format_time, seconds
from topologies.sipac.assignment import Configuration, initial, moves, reconfigure, sequential
from topologies.sipac.levels import Levels, comb_lines, neighbours, uniform

_PAPER = "Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning (2024), "
_W = 60  # default wavelengths of a CU (6.B.1)
_RATE = 4e9  # bytes per second of a wavelength, one direction: 32 Gb/s (6.B.1)
TUNING = 70_000_000_000  # ticks: 70 us, that of InfiniteHBD's thermo-optic switches (5.1), as these are (5.A); none is printed


@dataclass(frozen=True)
class Light:
    """The settings of light: the rate of a wavelength and the latency of a hop."""

    rate: Bandwidth = _RATE
    latency: Latency = HOP_LATENCY  # latency of a hop


@dataclass(frozen=True)
class SteeredLight(Light):
    """The settings of light whose wavelengths can be moved to other links."""

    tuning: Latency = TUNING


_AS_PRINTED = Light()


Kept = Annotated[int, whole_number(0)]
By = Annotated[str, SettingKind(lambda text, _: text, str)]


def _sipac_invariants(r: int, L: int, w: int, light: Light) -> Invariants:
    """Return the invariants of the sipac topology by closed forms."""
    levels = Levels("sipac", r, L, w)
    return Invariants(
        levels.npus * levels.degree,
        levels.degree,
        L,
        _bisection(levels, light.rate),
        npus=levels.npus,
        switches=0,
        injection_Bps=(w - _dark(levels)) * light.rate,
        paths=factorial(L),
    )


def _dark(levels: Levels) -> int:
    """Return the number of wavelengths of a CU that no neighbour gets."""
    return levels.r % 2 * (levels.w % 2)


def _bisection(levels: Levels, rate: float) -> float | None:
    """Return the bandwidth (B/s) through the middle of the level whose halves have the fewest wavelengths between them.

    It is None for odd r.
    """
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
def sipac(r: Count, L: Count, w: Count = _W, *, light: Light) -> Topology:
    """Join CUs whose L digits below r name them by light to all CUs that differ in one digit: N = r^L, diameter L.

    Args:
        r: Ports of a WSS.
        L: Levels, which are ports of a CU.
        w: Wavelengths of a CU, spread evenly over its L (r - 1) neighbours.
        light: Rate of a wavelength, latency of a hop.
    """
    return topology_of(initial(Levels("sipac", r, L, w)), light)


def _flex_invariants(
    r: int, L: int, jobs: tuple[int, ...], w: int, keep: int, before: tuple[int, ...], **_: object
) -> Invariants:
    """Return the invariants of the flex-sipac topology, if every link within a job has a wavelength.

    Every such link has one if all compute units (CUs) of a job have equally many neighbours in it.

    Args:
        r: Ports of a WSS.
        L: Levels.
        jobs: Sizes of the jobs.
        w: Wavelengths of a CU.
        keep: Wavelengths that every link keeps.
        before: Sizes of the jobs that ran before; CUs without a job still have the wavelengths of that time.
        **_: Other arguments of the topology.
    """
    levels = Levels("flex-sipac", r, L, w)
    near = neighbours(levels)
    job, earlier = (np.searchsorted(np.cumsum(sizes), np.arange(levels.npus), "right") for sizes in (jobs, before))
    left = (job == len(jobs))[near.src] & (earlier[near.src] != earlier[near.dst])  # CUs in no job keep their wavelengths
    lit = (job[near.src] == job[near.dst]) & ~left | (keep > 0)
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
        "r=2,L=3,jobs=4,keep=1",
        "r=2,L=3,jobs=6,w=7,keep=1,rate=10Gb/s",
        "r=4,L=3,jobs=64",
        "r=4,L=2,jobs=8+4,w=12,before=8+8,keep=1",
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
    before: SizesOrNone = (),
    *,
    light: SteeredLight,
) -> Topology:
    """Move the wavelengths between jobs of a SiPAC to the links within jobs; a link that joins no two CUs of a job is dark.

    Args:
        r: Ports of a WSS.
        L: Levels.
        jobs: Sizes of jobs, which are on CUs one after another.
        w: Wavelengths of a CU.
        keep: Wavelengths that all links keep, so that jobs can reach one another.
        by: Whether the heuristic or the integer program assigns the others.
        before: Sizes of the jobs that run when these come; `none`: the wavelengths are spread evenly.
        light: Rate of a wavelength, latency of a hop, and the time in which transmitters and WSS move wavelengths.
    """
    levels = Levels("flex-sipac", r, L, w)
    levels.check()
    for sizes in (before, jobs):
        if sum(sizes) > levels.npus:
            what = f"at most {levels.npus} (r^L)"
            raise must_be("flex-sipac", "CUs of all jobs", what, sum(sizes), "take fewer or a larger L")
    then = initial(levels, keep)
    if before:
        then = reconfigure(then, sequential(before), by=by)
    now = reconfigure(then, sequential(jobs), by=by)
    return replace(topology_of(now, light, then if before else None), fault_handler=partial(repair_links, now, light))


def topology_of(configuration: Configuration, light: Light = _AS_PRINTED, before: Configuration | None = None) -> Topology:
    """Return the topology of a configuration: a link for each pair of neighbours that has wavelengths.

    A message goes along level 0 first, then level 1 and so on; where no light leads along, it takes the fewest links.

    Args:
        configuration: The wavelengths of each link.
        light: Rate of a wavelength, latency of a hop.
        before: The configuration until then, if an assumption is to say what changes.
    """
    levels, wavelengths = configuration.levels, configuration.wavelengths
    whole, lit = levels.lattice(light.rate, light.latency), wavelengths > 0
    found = whole if lit.all() else remove_parts(whole, links=np.flatnonzero(~lit))
    return replace(
        found,
        name=levels.name,
        links=replace(found.links, bandwidth_Bps=column(wavelengths[lit] * light.rate, np.float64)),
        bill=_bill(configuration),
        assumptions=(*_assumptions(configuration, light), *(_change_words(before, configuration) if before else ())),
        tiers=tuple(f"level {level}" for level in reversed(range(levels.L))),
        draw=partial(_draw, levels),
        usable_counter=partial(usable_in_blocks, levels.name),
        gangs=in_blocks,
    )


def repair_links(
    now: Configuration, light: SteeredLight, whole: Topology, broken: FailedParts, ranks: int, was: FailedParts
) -> Reaction:
    """Return the reaction of the system to failed parts (Flex-SiPAC 3.C).

    Wavelengths of failed links move to other links of the job. Else the job moves to other compute units (CU).

    Args:
        now: The wavelengths of all links, and the jobs.
        light: The settings of light.
        whole: The topology without failed parts.
        broken: The parts that have failed by now.
        ranks: The number of ranks of the job.
        was: The parts that had failed before.

    Raises:
        InputError: The job must move, because a CU of it has failed or no links join its CUs, and no block of CUs is free.
    """
    (after, order), (before, _) = (_steered_around(now, each, ranks) for each in (broken, was))
    moved = moves(before, after)
    told = (
        f"{moved} wavelengths move to other links (3.C) in {format_time(seconds(light.tuning))}, "
        "as long as InfiniteHBD's switches take, for which no figure is published"
    )
    failed = ", ".join([*(f"CU {node}" for node in broken.nodes), *(f"the link {a}-{b}" for a, b in broken.cables)])
    named = replace(
        topology_of(after, light), name=f"{whole.name}, wavelengths moved from {failed}", placer=partial(without, order)
    )
    if not moved:
        return Reaction(named, 0, "what failed goes dark, and no wavelength moves")
    return Reaction(named, light.tuning, told)


@lru_cache(maxsize=16)
def _steered_around(now: Configuration, broken: FailedParts, ranks: int) -> tuple[Configuration, I64]:
    """Return the configuration around failed parts, and the CUs in the order in which ranks take them.

    Raises:
        InputError: See `repair_links`.
    """
    if broken == FailedParts():
        return now, np.arange(now.near.n)
    dark = broken.marks(now.near.src, now.near.dst)
    jobs = [np.flatnonzero(now.job == job) for job in range(now.job.max(initial=-1) + 1)]
    for number, job in enumerate(jobs):
        if not _can_run(now, job, broken, dark):
            sizes = (len(job), ranks) if ranks < len(job) and len(jobs) == 1 else (len(job),)
            jobs[number] = _block(now, jobs, number, sizes, partial(_can_run, now, broken=broken, dark=dark))
    order = np.concatenate((*jobs, np.setdiff1d(np.arange(now.near.n), np.concatenate(jobs))))
    return reconfigure(now, jobs, by=now.by, dark=dark), order


def _can_run(now: Configuration, cus: I64, broken: FailedParts, dark: Bool) -> bool:
    """Return whether a job can run on these CUs: none has failed, and links join them all.

    Links that every CU keeps for all jobs are enough.
    """
    near = now.near
    if now.keep or np.isin(cus, broken.nodes).any():
        return not np.isin(cus, broken.nodes).any()
    ends = ~dark & np.isin(near.src, cus) & np.isin(near.dst, cus)
    return len(np.unique(components(near.n, near.src[ends], near.dst[ends])[cus])) == 1


def _block(now: Configuration, jobs: Sequence[I64], number: int, sizes: Sequence[int], serve: Callable[[I64], bool]) -> I64:
    """Return a block of consecutive CUs that can serve a job and that no other job uses.

    A block begins at a multiple of its size. Its size is the first of the given sizes for which there is such a block.

    Args:
        now: The present configuration.
        jobs: The CUs of each job.
        number: The number of the job.
        sizes: The sizes of blocks, in the order in which they are tried.
        serve: A function that says whether a job can run on given CUs.
    """
    others = np.concatenate([np.zeros(0, np.int64), *(each for i, each in enumerate(jobs) if i != number)])
    found: I64
    for size in sizes:
        for found in np.arange(now.near.n // size * size).reshape(-1, size):
            if not np.isin(found, others).any() and serve(found):
                return found
    what = f"one of which none failed, that links join and that no other job has, for a job of {sizes[-1]}"
    raise must_be(now.levels.name, "a block of CUs", what, f"none among {now.near.n}")


def _bill(configuration: Configuration) -> dict[str, int]:
    """Return the numbers of parts of a configuration."""
    levels, near = configuration.levels, configuration.near
    lit = configuration.wavelengths > 0
    pairs = np.unique(np.minimum(near.src, near.dst)[lit] * near.n + np.maximum(near.src, near.dst)[lit])
    parts = {"NPU": levels.npus, "WSS": levels.switches, "comb transceiver": levels.npus, "fibre pair": levels.npus * levels.L}
    return {**parts, "link of wavelengths": len(pairs)}


def _assumptions(configuration: Configuration, light: Light) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology."""
    levels = configuration.levels
    total = format_bandwidth(levels.w * light.rate)
    words = [
        f"a CU has {levels.w} wavelengths of {format_bandwidth(light.rate)} one way, {total} in all",
        f"a hop takes {format_time(seconds(light.latency))}, whatever the fibre's length: "
        "a WSS is passive (no latency is published)",
        "a message goes level 0 first, then level 1 and so on, and CUs relay it; where no light leads so, by fewest links",
        *(_even(levels) if (configuration.job < 0).any() else ()),
        *(_job_words(configuration) if (configuration.job >= 0).any() else ()),
    ]
    return tuple(words)


def _even(levels: Levels) -> tuple[str, ...]:
    """Return the sentence about how a CU without a job spreads its wavelengths."""
    each, over = divmod(levels.w, levels.degree)
    over -= _dark(levels)
    dark = "; one is dark, as an odd number of CUs cannot be joined two by two" * _dark(levels)
    rest = f", {over} of them one more" if over else ""
    return (f"without jobs each of {levels.degree} neighbours gets {each} wavelengths{rest}{dark}",)


def _job_words(configuration: Configuration) -> tuple[str, ...]:
    """Return the sentences about the jobs of a configuration."""
    sizes = np.bincount(configuration.job[configuration.job >= 0])
    which = f"jobs of {'+'.join(map(str, sizes))} CUs" if len(sizes) <= 8 else f"{len(sizes)} jobs"
    idle = int((configuration.job < 0).sum())
    return (
        f"{which}, whose traffic is scaled to w wavelengths in and out of every CU (equation 1 leaves the unit open)",
        f"links that are in no job have {configuration.keep or 'no'} wavelengths (keep)",
        *([f"{idle} CUs in no job leave their wavelengths as they were among themselves"] if idle else []),
    )


def _change_words(before: Configuration, now: Configuration) -> tuple[str, ...]:
    """Return a sentence on a change of jobs: the wavelengths that move, and the lines that stay (Flex-SiPAC 3.C)."""
    w, near = now.levels.w, now.near
    were = comb_lines(near, before.wavelengths, w)
    are = comb_lines(near, now.wavelengths, w, were)
    stay = np.isin(are.link * w + are.line, were.link * w + were.line)
    sizes = "+".join(map(str, np.bincount(before.job[before.job >= 0])))
    return (
        f"as these jobs come after {sizes} CUs, {moves(before, now)} of {len(are.link)} wavelengths turn to another link, "
        f"and {int(stay.sum())} stay the comb lines of theirs",
    )


def _draw(levels: Levels) -> Drawing:
    """Return a drawing with level 0 to the right, level 1 down, and level 2 to the right.

    Lines are curved, so that each link can be seen.
    """
    at, npus = np.zeros((levels.npus, 2)), np.arange(levels.npus)
    pitch, middle = [1.0, 1.5], (levels.r - 1) / 2
    for level in range(levels.L):
        digit, axis = npus // levels.r**level % levels.r, level % 2
        at[:, axis] += digit * pitch[axis] * (1 - 2 * axis)
        at[:, 1 - axis] += (0.3 if level < 2 else 0.8) * (1 - (digit / middle - 1) ** 2)
        pitch[axis] = pitch[axis] * levels.r + 0.8
    size = levels.npus // levels.r  # of the r smaller SiPACs that the highest level joins, by the paper's name (Figure 2)
    return Drawing(at, frames(f"SiPAC({levels.r},{levels.L - 2})", size, levels.r * (size > 1)))
