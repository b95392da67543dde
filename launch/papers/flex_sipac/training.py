"""Figures 7 and 8 of the Flex-SiPAC paper: one all_reduce by size, and the gradients of three models, by the skew of two jobs.

The paper takes messages from task graphs that it does not print. Here a model sends the gradient of each of its layers, in
float32: VGG-16 (Simonyan and Zisserman, arXiv:1409.1556, table 1, D), BERT-large (Devlin et al., arXiv:1810.04805, section 3)
and Candle Uno as FlexFlow's example has it (lib/models/candle_uno). Letters: N CUs, in a larger and a smaller job.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from emu.collective.shape import PartialGrid, Shape
from launch.papers.networks import collective_s
from launch.papers.paper import Curve, Figure
from launch.papers.targets import Answer

_R = 8
FLEX, MESH, SHARED, TORUS, LIGHT = (
    "Flex-SiPAC, Flex-SiPCO",
    "Flex-SiPAC, mesh",
    "DGX-H100, mesh",
    "TPUv4, mesh",
    "SiP-OCS, mesh",
)
_OF = {  # the last are the switches of SiP-OCS: from 16 up to 64 for larger topologies (6.A.2)
    64: ("flex-sipac:r=8,L=2", "sipac:r=8,L=2", "tpuv4:cubes=1x1x1", 2, 16),
    512: ("flex-sipac:r=8,L=3,w=63", "sipac:r=8,L=3,w=63", "tpuv4:cubes=2x2x2", 3, 64),
}
JOBS = {64: (32, 40, 48, 56, 64), 512: (256, 320, 384, 448, 512)}  # CUs of the larger job: sigma from 0 to 1


@cache
def time_s(name: str, n: int, job: int, size: int) -> float:
    """Return the seconds of an all_reduce of the larger job, which begins at CU 0.

    Args:
        name: The system and its algorithm.
        n: The CUs of the system.
        job: The CUs of the job; all others are another job.
        size: The bytes of the all_reduce.
    """
    flexible, static, torus, levels, switches = _OF[n]
    jobs = f"jobs={job}+{n - job}" if job < n else f"jobs={n}"
    own = f"{flexible},{jobs}" if job < n else static
    part: Shape = PartialGrid((_R,) * levels, tuple(range(job)))
    giant = f"big-switch:n={n},bandwidth=240GB/s,latency=300ns"
    tiered = f"dgx-h100:superpod:servers={n // 8},bandwidth=240GB/s" if n <= 256 else giant
    words: Mapping[str, tuple[str, str, Shape]] = {
        FLEX: (own, "flex-sipco", part),
        MESH: (own, "direct", job),
        SHARED: (tiered, "direct", job),
        TORUS: (f"{torus},bandwidth=40GB/s", "direct", job),
        LIGHT: (f"sip-ocs:n={n},ports={switches},{jobs}", "direct", job),
    }
    word, algorithm, shape = words[name]
    return collective_s(word, "all_reduce", algorithm, shape, size, np.arange(job))


def _dense(*widths: int) -> list[int]:
    """Return the parameters of fully connected layers of these widths, with biases."""
    return [a * b + b for a, b in pairwise(widths)]


def vgg() -> list[int]:
    """Return the parameters of the layers of VGG-16."""
    channels = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    return [9 * a * b + b for a, b in pairwise(channels)] + _dense(512 * 7 * 7, 4096, 4096, 1000)


def bert() -> list[int]:
    """Return the numbers of parameters of BERT-large's embeddings, and of attention and both products of its 24 layers."""
    hidden, inner = 1024, 4096
    attention, (first, second) = 4 * (hidden * hidden + hidden), _dense(hidden, inner, hidden)
    return [(30522 + 512 + 2) * hidden, *[attention, first, second] * 24]


def candle() -> list[int]:
    """Return the numbers of parameters of Candle Uno's layers: a tower for each kind of feature, then common layers."""
    wide, inputs = 4192, (942, 5270, 2048)
    towers = [size for features in inputs for size in _dense(features, *[wide] * 8)]
    return towers + _dense(2 + 5 * wide, *[wide] * 4, 1)  # two doses, a cell, and two drugs by two kinds of features


WORKLOADS: Mapping[str, Callable[[], list[int]]] = {"VGG": vgg, "Candle": candle, "Transformer": bert}


@cache
def iteration_s(name: str, n: int, job: int, workload: str) -> float:
    """Return the seconds in which a job reduces the gradients of all layers of a model, one after another.

    Sizes are rounded up to whole shares of all ranks.
    """
    unit = 4 * 8 * 8 * 3 * job
    sizes = Counter(-(-4 * count // unit) * unit for count in WORKLOADS[workload]())
    return sum(times * time_s(name, n, job, size) for size, times in sizes.items())


def sigma(n: int, job: int) -> float:
    """Return the skew of two jobs as the paper defines it; a single job has skew 1."""
    return 1 - (n - job) / job


SYSTEMS = (FLEX, MESH, SHARED, TORUS, LIGHT)
_SIZES = (2**10, 2**14, 2**17, 2**20, 2**23, 2**26)


def by_size(_: Any) -> Sequence[Figure]:
    """Return figure 7: the time of an all_reduce on 512 CUs by size, for one job and for two equal jobs."""
    return [
        Figure(
            f"Flex-SiPAC figure 7: an all_reduce on 512 CUs, the larger job {job} (sigma = {sigma(512, job):.2f})",
            "bytes",
            "seconds",
            [Curve(name, _SIZES, [time_s(name, 512, job, size) for size in _SIZES]) for name in SYSTEMS],
            log="xy",
        )
        for job in (512, 448, 256)
    ]


def by_skew(_: Any) -> Sequence[Figure]:
    """Return figures 8a and 8b: the time of an iteration's all_reduces on 64 and on 512 CUs by the skew of two jobs."""
    return [
        Figure(
            f"Flex-SiPAC figure {place}: gradients of {workload} on {n} CUs",
            "sigma",
            "seconds",
            [
                Curve(name, [sigma(n, job) for job in JOBS[n]], [iteration_s(name, n, job, workload) for job in JOBS[n]])
                for name in SYSTEMS
            ],
        )
        for place, n in (("8a", 64), ("8b", 512))
        for workload in WORKLOADS
    ]


def _times_text(times: Mapping[str, float]) -> str:
    """Return the times of systems as text."""
    return ", ".join(f"{name} {1e6 * s:.1f} us" for name, s in times.items())


def _leads(times: Mapping[str, float]) -> bool:
    """Return whether Flex-SiPAC with Flex-SiPCO is no slower than any other system, and faster than some."""
    return times[FLEX] <= min(times.values()) * (1 + 1e-9) and times[FLEX] < max(times.values())


def _is_fastest_at_some_size(sizes: Sequence[int], systems: Sequence[str] = SYSTEMS) -> Answer:
    """Return whether Flex-SiPAC with Flex-SiPCO is the fastest of some systems on 512 CUs for some sizes, for every skew."""
    lost, notes = 0, []
    for job in (512, 448, 256):
        for size in sizes:
            times = {name: time_s(name, 512, job, size) for name in systems}
            lost += not _leads(times)
            notes.append(f"{size} bytes, the larger job {job}: {_times_text(times)}")
    of = 3 * len(sizes)
    return Answer("the fastest" if not lost else f"slower in {lost} of {of}", (*notes, _steered(512)), holds=not lost)


def _steered(n: int) -> str:
    """Return a note on the circuits of SiP-OCS on N CUs."""
    return f"SiP-OCS: {_OF[n][-1]} switches, whose circuits stay within jobs"


def _worst(n: int) -> Answer:
    """Return whether TPUv4 is the slowest for VGG on N CUs where jobs are skewed."""
    notes, holds = [], True
    for job in JOBS[n][2:]:
        times = {name: iteration_s(name, n, job, "VGG") for name in SYSTEMS}
        holds &= max(times, key=lambda name: times[name]) == TORUS
        notes.append(f"the larger job {job}: {_times_text(times)}")
    return Answer("TPUv4 the slowest" if holds else "not the slowest", (*notes, _steered(n)), holds=holds)


def _mesh(n: int) -> Answer:
    """Return whether a mesh on Flex-SiPAC is slower than Flex-SiPCO for equal jobs of Candle and of the transformer."""
    half = n // 2
    ratios = {w: iteration_s(MESH, n, half, w) / iteration_s(FLEX, n, half, w) for w in ("Candle", "Transformer")}
    told = ", ".join(f"{ratio:.2f} times ({w})" for w, ratio in ratios.items())
    return Answer(told, (f"jobs of {half} and {half} CUs",), holds=min(ratios.values()) > 1)


def _best(systems: Sequence[str] = SYSTEMS) -> Answer:
    """Return whether Flex-SiPAC with Flex-SiPCO is the fastest of some systems for all workloads and skews on 64 CUs."""
    cases = [(workload, job) for workload in WORKLOADS for job in JOBS[64]]
    lost = [told for case in cases if (told := _loss(64, *case, systems))]
    ours = "the fastest" if not lost else f"slower in {len(lost)} of {len(cases)}"
    return Answer(ours, (*lost, _steered(64)), holds=not lost)


def _best_of_large(systems: Sequence[str] = SYSTEMS) -> Answer:
    """Return whether Flex-SiPAC with Flex-SiPCO is the fastest on 512 CUs; the first case that it loses ends the search."""
    cases = [(workload, job) for workload in WORKLOADS for job in reversed(JOBS[512])]
    lost = next((told for case in cases if (told := _loss(512, *case, systems))), "")
    ends = (lost, "the first case that is lost ends the search") if lost else ()
    return Answer("slower in a case" if lost else "the fastest", (*ends, _steered(512)), holds=not lost)


def _loss(n: int, workload: str, job: int, systems: Sequence[str]) -> str:
    """Return by what another system is faster than Flex-SiPAC with Flex-SiPCO, as text; "" if none is."""
    times = {name: iteration_s(name, n, job, workload) for name in systems}
    best = min(times, key=lambda name: times[name])
    return (
        "" if _leads(times) else f"{workload}, the larger job {job}: {best} takes {times[best] / times[FLEX]:.3f} of its time"
    )


def _median() -> Answer:
    """Return whether VGG sends smaller messages than the other two, by the median of its layers."""
    sizes = {workload: 4 * float(np.median(layers())) for workload, layers in WORKLOADS.items()}
    told = ", ".join(f"{workload} {size / 2**20:.1f} MiB" for workload, size in sizes.items())
    return Answer(told, ("the median of the gradients of a layer",), holds=min(sizes, key=lambda each: sizes[each]) == "VGG")


_TWO = (FLEX, LIGHT)
WORKLOAD_ROWS: Mapping[str, Callable[[], Answer]] = {
    "fs-7-small": partial(_is_fastest_at_some_size, (2**10, 2**14)),
    "fs-7-large": partial(_is_fastest_at_some_size, (2**17, 2**20)),
    "fs-7-ocs": partial(_is_fastest_at_some_size, (2**10, 2**14, 2**17, 2**20), _TWO),
    "fs-8-sizes": _median,
    "fs-8-tpu": partial(_worst, 64),
    "fs-8-mesh": partial(_mesh, 64),
    "fs-8-best": _best,
    "fs-8-ocs": partial(_best, _TWO),
    "fs-8b-tpu": partial(_worst, 512),
    "fs-8b-mesh": partial(_mesh, 512),
    "fs-8b-best": _best_of_large,
    "fs-8b-ocs": partial(_best_of_large, _TWO),
}
