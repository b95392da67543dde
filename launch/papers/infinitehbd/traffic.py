"""The traffic between ToRs with the placement of the InfiniteHBD paper and with other placements: 6.4, appendix D."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import I64
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer, Target
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan, OcstrxRates
from topologies.infinitehbd.orchestration import choose_groups, cross_tor, orchestrate, search


class Cluster(NamedTuple):
    """The sizes of a cluster that section 6.4 does not print, and K."""

    gpus: int = 8  # of a node
    tor: int = 2  # nodes of a ToR
    domain: int = 256  # nodes of a domain of aggregation switches
    k: int = 3

    def __str__(self) -> str:
        return f"{self.gpus} GPUs a node, {self.tor} nodes a ToR, {self.domain} nodes a domain, K={self.k}"


SHARE = 0.10  # of all traffic, that CP sends between nodes: fitted on hbd-o-base
USED = Cluster()  # the domain and K are fitted on hbd-o-172 and hbd-o-7pct
OTHERS = (
    *(USED._replace(tor=tor) for tor in (4, 8)),
    *(USED._replace(domain=domain) for domain in (64, 128, 512, 1024)),
    USED._replace(gpus=4),
    USED._replace(k=2),
)
TP, SIZE = 32, 8192  # TP and GPUs of 6.4
_DRAWS, _FEW = 200, 40
_USED = f"not printed: rings between TP groups have {100 * SHARE:g} % of all bytes, {USED.domain} nodes a domain, K={USED.k}"
_RACK = (
    f"not printed: {USED.gpus} GPUs a node and {USED.tor} nodes a ToR, as racks have in the network of [24], which 6.4 follows"
)
_BASELINES = (
    "baseline: nodes are taken at random, until the groups of the job find room among them (6.4); in order: the first groups "
    "of the line without a constraint (Algorithm 2), those that share ToRs first"
)


@cache
def plan(size: int = SIZE, of: Cluster = USED) -> OcstrxPlan:
    """Return the wiring of a cluster with this number of GPUs."""
    dims = size // (of.gpus * of.domain), of.domain // of.tor, of.tor, of.gpus
    return OcstrxPlan("infinitehbd", dims, of.k, TP, OcstrxRates())


PLACEMENTS = ("Optimized", "In order", "Baseline")


def placement(way: str, of: OcstrxPlan, faulty: I64, job: int, random: np.random.Generator) -> I64:
    """Return [groups, nodes] the nodes of each group under one of the compared placements.

    Args:
        way: The placement: Optimized is the paper's Algorithm 5; In order takes the first groups of the line, without regard to
            ToRs; Baseline is that of the words of 6.4.
        of: The wiring of the cluster.
        faulty: The faulty nodes.
        job: The number of GPUs that are placed.
        random: The source of random numbers.
    """
    if way == "Baseline":
        return _random_groups(of, faulty, job // of.tp, random)
    return orchestrate(of, faulty, job) if way == "Optimized" else orchestrate(of, faulty, 0)[: job // of.tp]


def _random_groups(of: OcstrxPlan, faulty: I64, wanted: int, random: np.random.Generator) -> I64:
    """Return [groups, nodes] groups on the fewest nodes of a random order among which `wanted` groups fit.

    The groups are in the order of the line, so that fibres join the nodes of each group.
    """
    every = np.arange(of.nodes)
    order = random.permutation(np.setdiff1d(every, faulty))

    def among(nodes: int) -> I64:
        return choose_groups(of, np.isin(every, order[:nodes]), 0)

    fewest = bisect_left(range(len(order)), wanted, lo=wanted * of.m, key=lambda nodes: len(among(nodes)))
    return among(fewest)[:wanted]


@cache
def crossing(way: str, job: float, faults: float, draws: int = _FEW, size: int = SIZE, cluster: Cluster = USED) -> float:
    """Return the share (per cent) of traffic that leaves a ToR, as a mean over random faults that leave room for the job.

    Args:
        way: The placement, one of `PLACEMENTS`.
        job: The share of GPUs that the job takes.
        faults: The share of nodes that are faulty.
        draws: The number of random faults.
        size: The number of GPUs.
        cluster: The other sizes.
    """
    of, random, found = plan(size, cluster), np.random.default_rng(0), []
    wanted = int(job * size) // of.tp * of.tp
    for _ in range(draws):
        faulty = random.choice(of.nodes, round(faults * of.nodes), replace=False)
        if len(choose_groups(of, ~np.isin(np.arange(of.nodes), faulty), 0)) * of.tp >= wanted:
            found.append(cross_tor(of, placement(way, of, faulty, wanted, random)))
    return 100 * SHARE * float(np.mean(found)) if found else float("nan")


def _others_text(job: float, faults: float) -> str:
    """Return a text on the traffic that leaves a ToR, in per cent, with each placement that the paper does not propose.

    Args:
        job: The share of GPUs that the job takes.
        faults: The share of nodes that are faulty.
    """
    found = ", ".join(f"{way.lower()} {crossing(way, job, faults):.2f} %" for way in PLACEMENTS[1:])
    return f"beside it: {found} ({_BASELINES})"


def _job_and_faults(target: Target) -> tuple[float, float]:
    """Return the size of the job and the rate of faults of a row, as shares."""
    return float(target.given["job"]) / 100, float(target.given["faults"]) / 100


def _best(paper: Any, target: Target) -> Answer:
    """Return how many per cent of all traffic leave a ToR with the paper's placement.

    The notes have the same for other placements, and for machines with other sizes of nodes, ToRs and domains.
    """
    at = _job_and_faults(target)
    others = "; ".join(f"{crossing('Optimized', *at, cluster=other):.2f} % with {other}" for other in OTHERS)
    notes = (f"the mean of {_DRAWS} draws", _others_text(*at), _USED, _RACK, f"in other clusters: {others}")
    return Answer(crossing("Optimized", *at, _DRAWS), notes)


_JOBS = (0.7, 0.75, 0.8, 0.85, 0.9)


def _baseline(paper: Any, target: Target) -> Answer:
    """Return the traffic that leaves ToRs with the paper's baseline, as a mean over sizes of jobs."""
    faults = float(target.given["faults"]) / 100
    found = [crossing("Baseline", job, faults) for job in _JOBS]
    told = f"jobs of {100 * _JOBS[0]:g} to {100 * _JOBS[-1]:g} %: {min(found):.2f} to {max(found):.2f} %"
    first = ", ".join(f"{crossing('In order', job, faults):.2f} %" for job in _JOBS)
    others = [crossing("Baseline", _JOBS[0], faults, cluster=other) for other in OTHERS]
    same = f"{min(others):.2f} to {max(others):.2f} % with other sizes of nodes, ToRs and domains, and K=2"
    return Answer(float(np.mean(found)), (told, f"in order: {first}", _BASELINES, same, _USED, _RACK))


RATIOS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.065, 0.07, 0.075, 0.08, 0.09)
_NEAR_ZERO, _PRINTED_KNEE = 0.5, 0.07


def _flat_up_to(job: float, cluster: Cluster) -> float:
    """Return the largest share of faulty nodes (per cent) up to which hardly any traffic leaves ToRs; 0 if none."""
    below = takewhile(lambda rate: crossing("Optimized", job, rate, cluster=cluster) < _NEAR_ZERO, RATIOS)
    return 100 * max(below, default=0.0)


def _knee(paper: Any, target: Target) -> Answer:
    """Return up to which share of faulty nodes the paper's placement has hardly any traffic between ToRs."""
    job = float(target.given["job"]) / 100
    told = ", ".join(f"{100 * rate:g} %: {crossing('Optimized', job, rate):.2f}" for rate in RATIOS)
    up_to, least = _flat_up_to(job, USED), 100 * max(rate for rate in RATIOS if rate < _PRINTED_KNEE)
    others = "; ".join(f"{_flat_up_to(job, other):g} % with {other}" for other in OTHERS)
    notes = (told, _USED, _RACK, f"in other clusters: {others}")
    return Answer(f"<{_NEAR_ZERO:g} up to {up_to:g}% faults", notes, holds=up_to >= least)


_BENT = 0.1  # largest distance from a straight line, as a share of its rise


def is_straight_rise(x: Sequence[float], y: Sequence[float]) -> bool:
    """Return whether values rise along a straight line, and by clearly more than zero."""
    slope, base = np.polyfit(x, y, 1)
    rise = slope * (x[-1] - x[0])
    return bool(rise > _NEAR_ZERO and np.abs(np.array(y) - slope * np.array(x) - base).max() <= _BENT * rise)


def _grows(paper: Any, target: Target) -> Answer:
    """Return the least and the last traffic of the paper's baseline, and whether it grows with faults along a straight line."""
    job = float(target.given["job"]) / 100
    of = {way: [crossing(way, job, rate) for rate in RATIOS] for way in PLACEMENTS[1:]}
    told = tuple(
        f"{way.lower()}: {', '.join(f'{100 * rate:g} %: {percent:.2f}' for rate, percent in zip(RATIOS, found, strict=True))}"
        for way, found in of.items()
    )
    found = of["Baseline"]
    return Answer(f"{found[0]:.2f}->{found[-1]:.2f} %", (*told, _BASELINES), holds=is_straight_rise(RATIOS, found))


SIZES = (8192, 16384, 32768, 65536)
_SMALL = 4096
_FLAT = 0.4  # percentage points


def _flat(paper: Any, target: Target) -> Answer:
    """Return whether the traffic is the same for all sizes of clusters, and less than half of the baseline's."""
    job, faults = _job_and_faults(target)
    found = [crossing("Optimized", job, faults, _FEW, size) for size in SIZES]
    told = ", ".join(f"{size} GPUs {percent:.2f} %" for size, percent in zip(SIZES, found, strict=True))
    small = f"{_SMALL} GPUs, which are two domains, {crossing('Optimized', job, faults, _FEW, _SMALL):.2f} %"
    flat, baseline = bool(np.ptp(found) < _FLAT), crossing("Baseline", job, faults)
    notes = (told, small, f"the baseline on {SIZE} GPUs {baseline:.2f} %", _USED, _RACK)
    return Answer("flat" if flat else "not flat", notes, holds=flat and max(found) < baseline / 2)


_CLUSTERS = tuple(2**power for power in range(14, 22))


def _work(paper: Any, target: Target) -> Answer:
    """Return how the number of nodes that Algorithm 5 looks at grows with the cluster."""
    looked = []
    for size in _CLUSTERS:
        of = plan(size)
        sound = np.random.default_rng(0).random(of.nodes) >= 0.05
        looked.append(of.nodes * search(of, sound, int(0.9 * size) // of.tp)[1])
    exponent = float(np.polyfit(np.log(_CLUSTERS), np.log(looked), 1)[0])
    told = f"nodes that Algorithm 5 looks at, {_CLUSTERS[0]} to {_CLUSTERS[-1]} GPUs: {', '.join(map(str, looked))}"
    return Answer(exponent, (told, "the exponent of a fit; n log n has 1.0 to 1.2"), holds=1.0 <= exponent <= 1.2)


ANSWERS: Mapping[str, AnswerFunction] = {
    "o-172": _best,
    "o-base": _baseline,
    "o-7pct": _knee,
    "o-lin": _grows,
    "o-size": _flat,
    "o-time": _work,
}
