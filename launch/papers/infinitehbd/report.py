"""The InfiniteHBD paper with all its rows, and figures 13 to 18 and 20 to 23 with its axes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from emu.arrays import F64
from launch.papers.infinitehbd import costs, counts, orderings, traffic, waste
from launch.papers.infinitehbd.costs import PRICED, aggregate
from launch.papers.infinitehbd.orderings import largest, waiting
from launch.papers.infinitehbd.setting import DENSE, InfiniteHBDSteps
from launch.papers.infinitehbd.traffic import PLACEMENTS, RATIOS, SIZES, crossing
from launch.papers.infinitehbd.training import TRAINING, BestPlan, best_plan
from launch.papers.infinitehbd.waste import NPUS, RATES, SYSTEMS, TPS, at_rate, holds, on_trace, servers
from launch.papers.paper import Curve, Figure, Paper, register

_ON_TRACE = "over the production trace, nodes of 4 GPUs"
_SCALES = (0.70, 0.75, 0.80, 0.85, 0.875, 0.90, 0.925, 0.95)


def _systems(tp: int) -> list[str]:
    """Return the systems that can hold a group of this size."""
    return [system for system in SYSTEMS if holds(system, tp)]


def _cumulative(values: F64, share: F64) -> tuple[list[float], list[float]]:
    """Return the values in ascending order, and the share of the time with so much or less."""
    order = np.argsort(values, kind="stable")
    return values[order].tolist(), share[order].cumsum().tolist()


def _spread(paper: Any) -> list[Figure]:
    """Return the distribution of the waste for each TP (figures 13 and 21)."""
    found = []
    for tp in TPS:
        rows = {system: on_trace(system, tp) for system in _systems(tp)}
        curves = [Curve(system, *_cumulative(100 * row.wasted, row.share)) for system, row in rows.items()]
        found.append(Figure(f"TP-{tp}", f"GPU waste ratio (%) {_ON_TRACE}", "CDF", curves))
    return found


def _over_time(paper: Any) -> list[Figure]:
    """Return the waste over time for each TP (InfiniteHBD figure 20)."""
    found = []
    for tp in TPS:
        rows = {system: on_trace(system, tp) for system in _systems(tp)}
        curves = [Curve(system, row.begin.tolist(), (100 * row.wasted).tolist()) for system, row in rows.items()]
        found.append(Figure(f"TP-{tp}", "day of the trace", "GPU waste ratio (%)", curves))
    return found


def _by_rate(paper: Any) -> list[Figure]:
    """Return the waste by the share of faulty nodes, for each TP (figures 14 and 22)."""
    at = [100 * rate for rate in RATES]
    return [
        Figure(
            f"TP-{tp}",
            "faulty nodes of 4 GPUs (%)",
            "GPU waste ratio (%)",
            [Curve(system, at, [100 * at_rate(system, tp, rate).mean for rate in RATES]) for system in _systems(tp)],
        )
        for tp in TPS
    ]


def _jobs(paper: Any) -> Figure:
    """Return the largest job for each TP (InfiniteHBD figure 15)."""
    bars = {s: [float(largest(s, tp)) if holds(s, tp) else 0.0 for tp in TPS] for s in SYSTEMS}
    curves = [Curve(system, range(len(TPS)), sizes) for system, sizes in bars.items()]
    title = f"The largest job that {NPUS} GPUs hold at any time of the trace"
    return Figure(title, "tensor parallelism", "GPUs", curves, words=[f"TP-{tp}" for tp in TPS])


def _waits(paper: Any) -> list[Figure]:
    """Return the share of the time that jobs wait, by their size, for each TP (figures 16 and 23)."""
    found = []
    for tp in TPS:
        jobs = [int(scale * NPUS) // tp * tp for scale in _SCALES]
        at = [100 * job / NPUS for job in jobs]
        curves = [Curve(s, at, [100 * waiting(s, tp, job) for job in jobs]) for s in _systems(tp)]
        found.append(Figure(f"TP-{tp}", "job (% of all GPUs)", "time that the job waits (%)", curves))
    return found


_CROSS = "cross-ToR traffic (%)"


def _by_size(paper: Any) -> Figure:
    """Return the cross-ToR traffic by the size of the cluster (InfiniteHBD figure 17a)."""
    curves = [Curve(way, SIZES, [crossing(way, 0.9, 0.05, size=size) for size in SIZES]) for way in PLACEMENTS]
    return Figure("A job of 90 %, 5 % of nodes faulty", "GPUs of the cluster", _CROSS, curves, log="x")


_OF_JOBS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.825, 0.85, 0.875, 0.9)


def _by_job(paper: Any) -> Figure:
    """Return the cross-ToR traffic by the size of the job (InfiniteHBD figure 17b)."""
    at = [100 * job for job in _OF_JOBS]
    curves = [Curve(way, at, [crossing(way, job, 0.05) for job in _OF_JOBS]) for way in PLACEMENTS]
    return Figure(
        "8,192 GPUs, 5 % of nodes faulty", "job (% of all GPUs)", _CROSS, [*curves, *_printed_curve(paper, "o-172", 90.0)]
    )


def _by_faults(paper: Any) -> Figure:
    """Return the cross-ToR traffic by the share of faulty nodes (InfiniteHBD figure 17c)."""
    at = [100 * rate for rate in RATIOS]
    curves = [Curve(way, at, [crossing(way, 0.85, rate) for rate in RATIOS]) for way in PLACEMENTS]
    return Figure("8,192 GPUs, a job of 85 %", "faulty nodes (%)", _CROSS, curves)


_COST_RATES = (0.0, 0.02, 0.04, 0.06, 0.08, 0.10, 0.12, 0.14, 0.16)


def _costs(paper: Any) -> Figure:
    """Return the aggregate cost by the share of faulty nodes (InfiniteHBD figure 17d)."""
    at = [100 * rate for rate in _COST_RATES]
    curves = [Curve(system, at, [aggregate(system, rate) / 1000 for rate in _COST_RATES]) for system in PRICED]
    title = "The network, and GPUs faulty or wasted, TP-32"
    return Figure(title, "faulty nodes of 4 GPUs (%)", "aggregate cost (1,000 $ a GPU)", curves)


def _printed_curve(paper: Any, row: str, x: float) -> list[Curve]:
    """Return the printed value of a row as a curve of one mark."""
    return [Curve("printed", [x], [float(each.value)], printed=True) for each in paper.targets if each.id == f"hbd-{row}"]


def _trace(paper: Any) -> list[Figure]:
    """Return the share of faulty servers over time, and its distribution (InfiniteHBD figure 18)."""
    found = servers()
    percent = 100 * found.faulty.mean(axis=1)
    return [
        Figure("(a) over time", "day", "faulty servers (%)", [Curve("trace", found.begin.tolist(), percent.tolist())]),
        Figure("(b) how often", "faulty servers (%)", "CDF", [Curve("trace", *_cumulative(percent, found.share))]),
    ]


def _all(figures: Sequence[Callable[[Any], Figure]], paper: Any) -> list[Figure]:
    """Return several figures as the parts of one."""
    return [figure(paper) for figure in figures]


_PARTS = MappingProxyType({"17a": _by_size, "17b": _by_job, "17c": _by_faults, "17d": _costs})
FIGURES: Mapping[str, Callable[[Any], Figure | Sequence[Figure]]] = MappingProxyType(
    {
        "13": _spread,
        "14": _by_rate,
        "15": _jobs,
        "16": _waits,
        "17": partial(_all, [*_PARTS.values()]),
        **_PARTS,
        "18": _trace,
        "20": _over_time,
        "21": _spread,
        "22": _by_rate,
        "23": _waits,
    }
)


_ALL = (TRAINING, costs.ANSWERS, waste.ANSWERS, orderings.ANSWERS, traffic.ANSWERS, counts.ANSWERS)


@register
@dataclass(eq=False)
class InfiniteHBDPaper(Paper):
    """The InfiniteHBD paper; a step or a search is computed for the first row that needs it."""

    searched: dict[tuple[int, int], BestPlan] = field(default_factory=dict)
    title = "InfiniteHBD"
    source = (
        "Shou et al., InfiniteHBD: Building Datacenter-Scale High-Bandwidth Domain for LLM with Optical Circuit Switching "
        "Transceivers (SIGCOMM 2025)."
    )
    example = "--table 2"
    figures = FIGURES
    answers = MappingProxyType({f"hbd-{start}": answer for group in _ALL for start, answer in group.items()})

    @cached_property
    def steps(self) -> InfiniteHBDSteps:
        """The estimates of the paper's steps."""
        return InfiniteHBDSteps(self.cache)

    def assumptions(self) -> tuple[str, ...]:
        """Return the assumptions of all rows."""
        return self.steps.assumptions()

    def best(self, gpus: int, tp: int = 0) -> BestPlan:
        """Return the best plan within the limits of table 2; with one TP where `tp` is above 0."""
        if (gpus, tp) not in self.searched:
            self.searched[gpus, tp] = best_plan(self.steps, DENSE, gpus, tp)
        return self.searched[gpus, tp]

    def sizes(self) -> list[int]:
        """Return the numbers of GPUs in table 2."""
        return sorted({target.number("gpus") for target in self.of("2") if "gpus" in target.given})
