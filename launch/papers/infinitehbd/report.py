"""The InfiniteHBD paper as a registered `Paper`: its rows, and figures 13 to 18 and 20 to 23."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from emu.arrays import F64
from launch.papers.infinitehbd import costs, counts, orderings, traffic, waste
from launch.papers.infinitehbd.costs import PRICED, aggregate
from launch.papers.infinitehbd.orderings import SCALES, largest, waiting
from launch.papers.infinitehbd.setting import assumptions, paper_step
from launch.papers.infinitehbd.times import PLACED
from launch.papers.infinitehbd.traffic import PLACEMENTS, RATIOS, SIZES, crossing
from launch.papers.infinitehbd.training import TRAINING
from launch.papers.infinitehbd.waste import NPUS, RATES, SYSTEMS, TPS, at_rate, holds, on_trace, servers
from launch.papers.paper import Curve, DrawFunction, Figure, FittedInput, Paper, register

_WASTE, _FAULTY = "GPU waste ratio (%)", "faulty nodes of 4 GPUs (%)"
_ON_TRACE = "over the production trace, nodes of 4 GPUs"


def _cumulative(values: F64, share: F64) -> tuple[list[float], list[float]]:
    """Return the values in ascending order, and the share of the time with so much or less."""
    order = np.argsort(values, kind="stable")
    return values[order].tolist(), share[order].cumsum().tolist()


def _for_each_tp(x: str, y: str, points: Callable[[str, int], tuple[Sequence[float], Sequence[float]]]) -> list[Figure]:
    """Return a figure for each TP, with a curve for each system that can hold a group of this size.

    Args:
        x: The title of the first axis.
        y: The title of the other axis.
        points: The function that computes the points of a system's curve at a TP.
    """
    return [
        Figure(f"TP-{tp}", x, y, [Curve(system, *points(system, tp)) for system in SYSTEMS if holds(system, tp)]) for tp in TPS
    ]


def _spread(paper: Any) -> list[Figure]:
    """Return the distribution of the waste for each TP (figures 13 and 21)."""

    def points(system: str, tp: int) -> tuple[list[float], list[float]]:
        found = on_trace(system, tp)
        return _cumulative(100 * found.wasted, found.share)

    return _for_each_tp(f"{_WASTE} {_ON_TRACE}", "CDF", points)


def _over_time(paper: Any) -> list[Figure]:
    """Return the waste over time for each TP (InfiniteHBD figure 20)."""

    def points(system: str, tp: int) -> tuple[list[float], list[float]]:
        found = on_trace(system, tp)
        return found.begin.tolist(), (100 * found.wasted).tolist()

    return _for_each_tp("day of the trace", _WASTE, points)


def _waste_by_rate(paper: Any) -> list[Figure]:
    """Return the waste by the share of faulty nodes, for each TP (figures 14 and 22)."""
    at = [100 * rate for rate in RATES]
    return _for_each_tp(_FAULTY, _WASTE, lambda system, tp: (at, [100 * at_rate(system, tp, rate).mean for rate in RATES]))


def _jobs(paper: Any) -> Figure:
    """Return the largest job for each TP (InfiniteHBD figure 15)."""
    bars = {s: [float(largest(s, tp)) if holds(s, tp) else 0.0 for tp in TPS] for s in SYSTEMS}
    curves = [Curve(system, range(len(TPS)), sizes) for system, sizes in bars.items()]
    title = f"The largest job that {NPUS} GPUs hold at any time of the trace"
    return Figure(title, "tensor parallelism", "GPUs", curves, words=[f"TP-{tp}" for tp in TPS])


def _waits(paper: Any) -> list[Figure]:
    """Return the share of the time that jobs wait, by their size, for each TP (figures 16 and 23)."""

    def points(system: str, tp: int) -> tuple[list[float], list[float]]:
        jobs = [int(scale * NPUS) // tp * tp for scale in SCALES]
        return [100 * job / NPUS for job in jobs], [100 * waiting(system, tp, job) for job in jobs]

    return _for_each_tp("job (% of all GPUs)", "time that the job waits (%)", points)


_CROSS = "cross-ToR traffic (%)"


def _traffic_by_size(paper: Any) -> Figure:
    """Return the cross-ToR traffic by the size of the cluster (InfiniteHBD figure 17a)."""
    curves = [Curve(way, SIZES, [crossing(way, 0.9, 0.05, size=size) for size in SIZES]) for way in PLACEMENTS]
    return Figure("A job of 90 %, 5 % of nodes faulty", "GPUs of the cluster", _CROSS, curves, log="x")


_OF_JOBS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.825, 0.85, 0.875, 0.9)


def _traffic_by_job(paper: Any) -> Figure:
    """Return the cross-ToR traffic by the size of the job (InfiniteHBD figure 17b)."""
    at = [100 * job for job in _OF_JOBS]
    curves = [Curve(way, at, [crossing(way, job, 0.05) for job in _OF_JOBS]) for way in PLACEMENTS]
    printed = [Curve("printed", [90.0], [float(each.value)], printed=True) for each in paper.targets if each.id == "hbd-o-172"]
    return Figure("8,192 GPUs, 5 % of nodes faulty", "job (% of all GPUs)", _CROSS, [*curves, *printed])


def _traffic_by_faults(paper: Any) -> Figure:
    """Return the cross-ToR traffic by the share of faulty nodes (InfiniteHBD figure 17c)."""
    at = [100 * rate for rate in RATIOS]
    curves = [Curve(way, at, [crossing(way, 0.85, rate) for rate in RATIOS]) for way in PLACEMENTS]
    return Figure("8,192 GPUs, a job of 85 %", "faulty nodes (%)", _CROSS, curves)


_COST_RATES = (0.0, 0.02, 0.04, 0.06, 0.08, 0.10, 0.12, 0.14, 0.16)


def _costs(paper: Any) -> Figure:
    """Return a figure of the aggregate cost by the share of faulty nodes (InfiniteHBD figure 17d)."""
    at = [100 * rate for rate in _COST_RATES]
    curves = [Curve(system, at, [aggregate(system, rate) / 1000 for rate in _COST_RATES]) for system in PRICED]
    title = "The network, and GPUs faulty or wasted, TP-32"
    return Figure(title, _FAULTY, "aggregate cost (1,000 $ a GPU)", curves)


def _trace(paper: Any) -> list[Figure]:
    """Return the share of faulty servers over time, and its distribution (InfiniteHBD figure 18)."""
    found = servers()
    percent = 100 * found.faulty.mean(axis=1)
    return [
        Figure("(a) over time", "day", "faulty servers (%)", [Curve("trace", found.begin.tolist(), percent.tolist())]),
        Figure("(b) how often", "faulty servers (%)", "CDF", [Curve("trace", *_cumulative(percent, found.share))]),
    ]


_PARTS: Mapping[str, Callable[[Any], Figure]] = {
    "17a": _traffic_by_size,
    "17b": _traffic_by_job,
    "17c": _traffic_by_faults,
    "17d": _costs,
}
FIGURES: Mapping[str, DrawFunction] = {
    "13": _spread,
    "14": _waste_by_rate,
    "15": _jobs,
    "16": _waits,
    "17": lambda paper: [draw(paper) for draw in _PARTS.values()],
    **_PARTS,
    "18": _trace,
    "20": _over_time,
    "21": _spread,
    "22": _waste_by_rate,
    "23": _waits,
}
_STEPS = FittedInput(
    "the share of peak that products reach and the share of the DCN's bandwidth that data reach, on hbd-t2-mfu8-1024 and "
    "hbd-t2-mfu8-131072",
    ("hbd-t2-mfu8-1024", "hbd-t2-mfu8-131072"),
)
_TRAFFIC = FittedInput(
    "the share of all traffic that CP has, on hbd-o-base; the nodes of a domain and K, on hbd-o-172 and hbd-o-7pct",
    ("hbd-o-base", "hbd-o-172", "hbd-o-7pct"),
)
_GPU_PRICE = FittedInput("the price of a GPU, on hbd-agg-cross", ("hbd-agg-cross",))
FITTED: Mapping[str, FittedInput] = {
    **{f"hbd-{row}": _STEPS for row in TRAINING},
    **{f"hbd-{row}": _TRAFFIC for row in traffic.ANSWERS},
    "hbd-agg-": _GPU_PRICE,
    "hbd-oe-step": _STEPS,
    "hbd-7-fixed": _STEPS,
}
_ALL = (TRAINING, costs.ANSWERS, waste.ANSWERS, orderings.ANSWERS, traffic.ANSWERS, PLACED, counts.ANSWERS)
PAPER = register(
    Paper(
        Path(__file__).parent,
        title="InfiniteHBD",
        source="Shou et al., InfiniteHBD: Building Datacenter-Scale High-Bandwidth Domain for LLM with Optical Circuit "
        "Switching Transceivers (SIGCOMM 2025).",
        example="--table 2",
        figures=FIGURES,
        answers={f"hbd-{start}": answer for group in _ALL for start, answer in group.items()},
        fitted=FITTED,
        arithmetic=("hbd-hw-power",),
        words=counts.WORDS,
        assumptions=assumptions,
        steps_of=lambda kept: partial(paper_step, kept),
    )
)
