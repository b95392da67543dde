"""The traffic between ToRs with the placement of the InfiniteHBD paper and with others: 6.4 and appendix D."""

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from emu.arrays import I64
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer, Target
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan, OcstrxRates
from topologies.infinitehbd.orchestration import cross_tor, groups, orchestrate, search

SHARE = 0.10  # share of all traffic that CP sends between nodes
GPUS, TOR, TORS, K, TP = 8, 2, 128, 3, 32
SIZE = 8192
_DRAWS, _FEW = 200, 40
_SETTING = (
    f"not printed: {GPUS} GPUs a node, {TOR} nodes a ToR, {TOR * TORS} nodes a domain, K={K}, and that rings between TP groups "
    f"have {100 * SHARE:g} % of all bytes"
)
_BASELINES = "random: any nodes; greedy: Algorithm 2, the first groups of the line without a constraint, by ToR"


@cache
def plan(size: int = SIZE) -> OcstrxPlan:
    """Return the wiring of a cluster with this number of GPUs."""
    return OcstrxPlan("infinitehbd", (size // (GPUS * TOR * TORS), TORS, TOR, GPUS), K, TP, OcstrxRates())


PLACEMENTS = ("Optimized", "Greedy", "Random")


def _placement(way: str, of: OcstrxPlan, faulty: I64, job: int, random: np.random.Generator) -> I64:
    """Return [groups, nodes] a placement.

    Args:
        way: Optimized, as the paper's Algorithm 5; Greedy, the first groups that find room, without regard to ToRs; or Random,
            working nodes whether fibres join them or not.
        of: The wiring of the cluster.
        faulty: The nodes that are faulty.
        job: The number of GPUs that are placed.
        random: The source of random numbers.
    """
    if way == "Random":
        sound = np.setdiff1d(np.arange(of.nodes), faulty)
        return random.permutation(sound)[: job // of.gpus].reshape(-1, of.m)
    return orchestrate(of, faulty, job) if way == "Optimized" else orchestrate(of, faulty, 0)[: job // of.tp]


@cache
def crossing(way: str, job: float, faults: float, draws: int = _FEW, size: int = SIZE) -> float:
    """Return the share of all traffic that leaves a ToR, in per cent, as a mean over random faults that leave room for the job.

    Args:
        way: The placement, one of `PLACEMENTS`.
        job: The share of GPUs that the job takes.
        faults: The share of nodes that are faulty.
        draws: The number of random faults.
        size: The number of GPUs.
    """
    of, random, found = plan(size), np.random.default_rng(0), []
    wanted = int(job * size) // of.tp * of.tp
    for _ in range(draws):
        faulty = random.choice(of.nodes, round(faults * of.nodes), replace=False)
        if len(groups(of, ~np.isin(np.arange(of.nodes), faulty), 0)) * of.tp >= wanted:
            found.append(cross_tor(of, _placement(way, of, faulty, wanted, random)))
    return 100 * SHARE * float(np.mean(found)) if found else float("nan")


def _beside(job: float, faults: float) -> str:
    """Return the traffic of the other placements in words."""
    found = ", ".join(f"{way.lower()} {crossing(way, job, faults):.2f} %" for way in ("Greedy", "Random"))
    return f"beside it: {found} ({_BASELINES})"


def _job_and_faults(target: Target) -> tuple[float, float]:
    """Return the size of the job and the rate of faults of a row, as shares."""
    return float(target.given["job"]) / 100, float(target.given["faults"]) / 100


def _best(paper: Any, target: Target) -> Answer:
    """Answer the traffic that leaves ToRs with the paper's placement."""
    at = _job_and_faults(target)
    return Answer(crossing("Optimized", *at, _DRAWS), (f"the mean of {_DRAWS} draws", _beside(*at), _SETTING))


_JOBS = (0.7, 0.75, 0.8, 0.85, 0.9)


def _baseline(paper: Any, target: Target) -> Answer:
    """Answer the traffic that leaves ToRs with random nodes, as a mean over sizes of jobs."""
    faults = float(target.given["faults"]) / 100
    found = [crossing("Random", job, faults) for job in _JOBS]
    told = f"random nodes, jobs of {100 * _JOBS[0]:g} to {100 * _JOBS[-1]:g} %: {min(found):.2f} to {max(found):.2f} %"
    first = [f"{crossing('Greedy', job, faults):.2f} %" for job in _JOBS]
    return Answer(float(np.mean(found)), (told, f"greedy: {', '.join(first)}", _BASELINES, _SETTING))


RATIOS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.065, 0.07, 0.075, 0.08, 0.09)
_NEAR_ZERO, _KNEE = 0.5, (0.065, 0.08)


def _knee(paper: Any, target: Target) -> Answer:
    """Answer up to which share of faulty nodes the paper's placement has hardly any traffic between ToRs."""
    job = float(target.given["job"]) / 100
    found = {rate: crossing("Optimized", job, rate) for rate in RATIOS}
    under = [rate for rate, percent in found.items() if percent < _NEAR_ZERO]
    knee = max(under) + (min(set(RATIOS) - set(under)) - max(under)) / 2
    told = ", ".join(f"{100 * rate:g} %: {percent:.2f}" for rate, percent in found.items())
    fine = under == [*RATIOS[: len(under)]] and _KNEE[0] <= knee <= _KNEE[1]
    return Answer(f"<{_NEAR_ZERO:g} up to {100 * max(under):g}% faults", (told, _SETTING), holds=fine)


def _grows(paper: Any, target: Target) -> Answer:
    """Answer whether the traffic of the greedy placement grows with faults."""
    job = float(target.given["job"]) / 100
    rates = RATIOS[::2]
    found = [crossing("Greedy", job, rate) for rate in rates]
    told = ", ".join(f"{100 * rate:g} %: {percent:.2f}" for rate, percent in zip(rates, found, strict=True))
    flat = f"random nodes: {crossing('Random', job, rates[0]):.2f} at {100 * rates[0]:g} %, and no more with more faults"
    rising = all(a < b for a, b in pairwise(found))
    return Answer("monotone" if rising else "not monotone", (f"greedy: {told}", flat, _BASELINES), holds=rising)


SIZES = (8192, 16384, 32768, 65536)
_SMALL = 4096
_FLAT = 0.4  # percentage points


def _flat(paper: Any, target: Target) -> Answer:
    """Answer whether the traffic is the same for all sizes of clusters."""
    job, faults = _job_and_faults(target)
    found = [crossing("Optimized", job, faults, _FEW, size) for size in SIZES]
    told = ", ".join(f"{size} GPUs {percent:.2f} %" for size, percent in zip(SIZES, found, strict=True))
    small = f"{_SMALL} GPUs, which are two domains, {crossing('Optimized', job, faults, _FEW, _SMALL):.2f} %"
    return Answer("flat" if np.ptp(found) < _FLAT else "not flat", (told, small, _SETTING), holds=bool(np.ptp(found) < _FLAT))


_CLUSTERS = tuple(2**power for power in range(14, 22))


def _work(paper: Any, target: Target) -> Answer:
    """Answer how the number of nodes that Algorithm 5 looks at grows with the cluster."""
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
