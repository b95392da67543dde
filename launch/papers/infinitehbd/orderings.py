"""Orderings of the systems that the InfiniteHBD paper compares under faults: figures 13 to 16, table 1."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from emu.study.faults.source import independent_states
from emu.study.faults.waste import machine_of, waste_of
from emu.topology.catalogue import build_topology
from launch.data.presets import production_log
from launch.papers.infinitehbd.waste import (
    BEST,
    FEWER,
    IDEAL,
    NODE,
    NPUS,
    ORDERS,
    RACKS,
    SYSTEMS,
    TPS,
    at_rate,
    holds,
    mean_on_trace,
    on_trace,
    side_by_side,
    trace,
)
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer, Target

_NEAR = 0.001  # difference that counts as equal: a tenth of a point
_ELEVEN = (0.085, 0.125)  # shares that count as "around 11 %"


def _waste_by_tp(system: str, node: int = NODE) -> dict[int, float]:
    """Return the mean waste of a system with nodes of `node` GPUs for each TP that it can hold."""
    return {tp: mean_on_trace(system, tp, node).mean() for tp in TPS if holds(system, tp)}


def _percents(by_tp: Mapping[int, float]) -> str:
    """Return the waste for each TP, a share of all NPUs, as a text in per cent such as `TP-8 1.20 %`."""
    return ", ".join(f"TP-{tp} {100 * wasted:.2f} %" for tp, wasted in by_tp.items())


def _waste_texts(systems: Iterable[str]) -> tuple[str, ...]:
    """Return, for each system, a text on its waste over the fault trace at each TP."""
    return tuple(f"{system}: {_percents(_waste_by_tp(system))}" for system in systems)


def _lowest(paper: Any, target: Target) -> Answer:
    """Return whether InfiniteHBD wastes less than other architectures, and as little as an ideal switch, to 0.1 % of NPUs."""
    best, ideal = _waste_by_tp(BEST), _waste_by_tp(IDEAL)
    others = [_waste_by_tp(system) for system in SYSTEMS if system not in (IDEAL, BEST, FEWER)]
    lowest = all(best[tp] < other[tp] for other in others for tp in other) and all(
        best[tp] <= wasted + 1e-12 for tp, wasted in _waste_by_tp(FEWER).items()
    )
    equal = all(abs(best[tp] - ideal[tp]) <= _NEAR for tp in TPS)
    return Answer("lowest" if lowest and equal else "not lowest", _waste_texts(SYSTEMS), holds=lowest and equal)


def _distance_of_k2_and_k3(paper: Any, target: Target) -> Answer:
    """Return how far the wastes of K=2 and K=3 are apart, for both positions of a server's two nodes on the line.

    They count as almost identical if each is nearer to the other than any other architecture is.
    """
    of_tors = {k: _waste_by_tp(system) for k, system in ((2, FEWER), (3, BEST))}
    in_a_row = {k: {tp: float(np.mean([side_by_side(k, tp, seed) for seed in range(ORDERS)])) for tp in TPS} for k in (2, 3)}
    ways = {"in different sub-lines, as 4.3 joins nodes of different ToRs": of_tors, "neighbours on the line": in_a_row}
    told = [f"the nodes of a server are {where}: K={k} {_percents(of[k])}" for where, of in ways.items() for k in (2, 3)]
    apart = max(abs(of[2][tp] - of[3][tp]) for of in ways.values() for tp in TPS)
    others = [_waste_by_tp(system) for system in SYSTEMS if system not in (IDEAL, BEST, FEWER)]
    nearest = min(abs(other[tp] - of_tors[3][tp]) for other in others for tp in other)
    return Answer(f"within {100 * apart:.2f} points", tuple(told), holds=apart <= _NEAR < nearest)


def _nvl_wastes_eleven(paper: Any, target: Target) -> Answer:
    """Return whether racks of NVL waste around 11 % of their GPUs."""
    found = {(s, tp): _waste_by_tp(s)[tp] for s in RACKS for tp in TPS[1:] if holds(s, tp)}
    low, high = _ELEVEN
    told = f"{100 * min(found.values()):.2f} to {100 * max(found.values()):.2f} %"
    around = f"taken for around 11 %: {100 * low:g} to {100 * high:g}"
    return Answer(told, (*_waste_texts(RACKS), around), holds=all(low <= w <= high for w in found.values()))


def _between(paper: Any, target: Target) -> Answer:
    """Return whether NVL-576 wastes more than InfiniteHBD and less than NVL-72."""
    low, middle, high = (_waste_by_tp(s) for s in (BEST, "NVL-576", "NVL-72"))
    between = all(low[tp] < middle[tp] < high[tp] for tp in TPS)
    return Answer("between" if between else "not between", _waste_texts((BEST, "NVL-576", "NVL-72")), holds=between)


_SERVER = 8  # GPUs of the larger nodes of 6.1
_OF_SERVERS = ("NVL-72", "NVL-576", "TPUv4", "SiP-Ring")  # systems whose units are whole nodes of 8 GPUs


def _lowest_with_servers(paper: Any, target: Target) -> Answer:
    """Return whether K=3 wastes the least with nodes of 8 GPUs, and as little as an ideal switch, to 0.1 % of NPUs.

    At TP-8, where a group is a node, others may waste as little.
    """
    best, ideal = (_waste_by_tp(system, _SERVER) for system in (BEST, IDEAL))
    others = {system: _waste_by_tp(system, _SERVER) for system in _OF_SERVERS}
    lowest = all(best[tp] < other[tp] for other in others.values() for tp in TPS if tp > _SERVER) and all(
        best[_SERVER] <= other[_SERVER] for other in others.values()
    )
    near = max(best[tp] - ideal[tp] for tp in TPS)
    told = tuple(f"{system}: {_percents(of)}" for system, of in {BEST: best, IDEAL: ideal, **others}.items())
    ours = f"{'lowest' if lowest else 'not lowest'}, within {100 * near:.2f} points of an ideal switch"
    return Answer(ours, told, holds=lowest and near <= _NEAR)


def _distance_with_servers(paper: Any, target: Target) -> Answer:
    """Return how far the wastes of K=2 and K=3 are apart with nodes of 8 GPUs; others must be farther above TP-8."""
    few, more = (_waste_by_tp(system, _SERVER) for system in (FEWER, BEST))
    others = [_waste_by_tp(system, _SERVER) for system in _OF_SERVERS]
    apart = max(few[tp] - more[tp] for tp in TPS)
    nearest = min(abs(other[tp] - more[tp]) for other in others for tp in TPS if tp > _SERVER)
    told = f"{FEWER}: {_percents(few)}", f"{BEST}: {_percents(more)}"
    return Answer(f"within {100 * apart:.2f} points", told, holds=apart <= _NEAR < nearest)


def _cubes(paper: Any, target: Target) -> Answer:
    """Return whether TPUv4 wastes little with few faults and a small TP, and most at TP-64."""
    few, worst = at_rate("TPUv4", 8, 0.01).mean, {s: at_rate(s, 64, 0.03).mean for s in SYSTEMS if holds(s, 64)}
    at_64 = ", ".join(f"{system} {100 * share:.1f} %" for system, share in worst.items())
    good = few < at_rate("NVL-36", 8, 0.01).mean and few < 0.02
    most = worst["TPUv4"] >= max(worst.values()) - 0.01  # a ring of 64 GPUs loses as much as a cube
    told = (f"TP-8 at 1 % of faulty nodes: {100 * few:.2f} %", f"TP-64 at 3 %: {at_64}")
    return Answer("good, then worst" if good and most else "otherwise", told, holds=good and most)


def _rings_waste_grows(paper: Any, target: Target) -> Answer:
    """Return the waste of SiP-Ring, of fixed rings, at the least and the largest TP, and whether it grows with each TP."""
    found = [*_waste_by_tp("SiP-Ring").values()]
    told = f"{100 * found[0]:.1f}->{100 * found[-1]:.1f} %"
    return Answer(told, _waste_texts(("SiP-Ring",)), holds=all(a < b for a, b in pairwise(found)))


def largest(system: str, tp: int) -> int:
    """Return the GPUs of the largest job that fits at all times of the trace (InfiniteHBD figure 15)."""
    return on_trace(system, tp).largest_job(1.0)


def _scale(paper: Any, target: Target) -> Answer:
    """Return whether InfiniteHBD and NVL-576 hold the largest jobs at every TP, while those of SiP-Ring shrink with TP."""
    real = [s for s in SYSTEMS if s != IDEAL]
    lead = ("InfiniteHBD (K=2)", BEST, "NVL-576")
    first = all(
        min(largest(s, tp) for s in lead) >= max(largest(s, tp) for s in real if s not in lead and holds(s, tp)) for tp in TPS
    )
    rings = [largest("SiP-Ring", tp) for tp in TPS]
    told = tuple(f"{s}: {', '.join(str(largest(s, tp)) for tp in TPS if holds(s, tp))} GPUs" for s in SYSTEMS)
    fine = first and all(a > b for a, b in pairwise(rings))
    return Answer("InfiniteHBD and NVL-576 lead" if fine else "otherwise", told, holds=fine)


def waiting(system: str, tp: int, job: int) -> float:
    """Return the share of the time in which a job waits, if all repairs take the mean time (InfiniteHBD figure 16)."""
    if system in RACKS:
        return _waiting_with_reserve(system, tp, job)
    return on_trace(system, tp, 0, production_log().mean_repair_days).waiting(job)


def _waiting_with_reserve(system: str, tp: int, job: int) -> float:
    """Return the share of the time in which a job waits, if 1/9 of each rack is a reserve at any TP (InfiniteHBD 6.2)."""
    of, size = trace(0, production_log().mean_repair_days), int(system.removeprefix("NVL-"))
    left = size - np.repeat(of.faulty, NODE, axis=1).reshape(len(of.share), -1, size).sum(axis=2)
    room = np.minimum(left, size * 8 // 9) // tp * tp
    return float(of.share @ (room.sum(axis=1) < job))


SCALES = (0.70, 0.75, 0.80, 0.85, 0.875, 0.90, 0.925, 0.95)  # sizes of a job as shares of all GPUs (figures 16 and 23)
_WORST: Mapping[int, Sequence[str]] = {tp: RACKS if tp <= 16 else ("SiP-Ring", "TPUv4") for tp in TPS}


def waiting_of_all(tp: int, scale: float) -> dict[str, float]:
    """Return the share of the time in which a job waits, for each system that can hold groups of this TP."""
    job = int(scale * NPUS) // tp * tp
    return {system: waiting(system, tp, job) for system in SYSTEMS if holds(system, tp)}


def wait_longest(found: Mapping[str, float], worst: Iterable[str]) -> bool:
    """Return whether each of the systems `worst` waits longer than every other system."""
    named = {system for system in worst if system in found}
    return min(found[system] for system in named) > max(share for system, share in found.items() if system not in named)


def _waits(paper: Any, target: Target) -> Answer:
    """Return whether, for some size of job, the systems that the paper names wait longest at every TP."""
    told, found = [f"all repairs take {production_log().mean_repair_days:.2f} days, the mean of the trace", _ABOVE], {}
    for tp, worst in _WORST.items():
        of = {scale: waiting_of_all(tp, scale) for scale in SCALES}
        found[tp] = {scale for scale in SCALES if wait_longest(of[scale], worst)}
        jobs = ", ".join(f"{100 * scale:g}" for scale in sorted(found[tp])) or "none"
        told.append(f"TP-{tp}: {' and '.join(worst)} wait longest for jobs of {jobs} % of the GPUs; {_waits_text(of)}")
    every = sorted(set.intersection(*found.values()))
    ours = f"as printed for jobs of {', '.join(f'{100 * scale:g}' for scale in every)} %" if every else "at no one job size"
    return Answer(ours, tuple(told), holds=bool(every))


def _waits_text(of: Mapping[float, Mapping[str, float]]) -> str:
    """Return a text on the share of time in which jobs of three sizes wait; a system on which a job never waits is left out.

    Args:
        of: The waits of each system as shares of the time, by the size of the job as a share of all GPUs.
    """
    told = []
    for scale in (0.85, 0.875, 0.90):
        waits = ", ".join(f"{system} {100 * share:.1f} %" for system, share in of[scale].items() if share)
        told.append(f"at {100 * scale:g} % {waits or 'none waits'}")
    return "; ".join(told)


_ABOVE = "a job of more than 8/9 of the GPUs never finds room on NVL-36 and NVL-72, at any TP"
_RADIUS: Mapping[str, str] = {"node": "infinitehbd:k=3", "cube": "tpuv4:cubes=5x3x3", "HBD": "sip-ring:size=576,rings=5"}
_SELDOM = 0.001  # share of faulty nodes at which faults rarely meet


def _explosion(paper: Any, target: Target) -> Answer:
    """Return how many GPUs one failed node takes out of groups of 64; rings of 576 GPUs stand for a GPU-centric HBD."""
    drawn, found = independent_states(_SELDOM, NPUS // NODE, 2000, 0), {}
    for name, word in _RADIUS.items():
        of = waste_of(machine_of(build_topology(word), NPUS), NODE if name == "node" else 64, drawn)
        found[name] = float(NPUS - of.share @ of.usable) / float(of.share @ of.faulty * NPUS / NODE)
    told = ", ".join(f"{_RADIUS[name]} {gpus:.0f}" for name, gpus in found.items())
    rising = all(a < b for a, b in pairwise(found.values()))
    ranked = " < ".join(sorted(found, key=lambda name: found[name]))
    return Answer(ranked, (f"GPUs for each faulty node: {told}",), holds=rising)


ANSWERS: Mapping[str, AnswerFunction] = {
    "s-1": _lowest,
    "s-2": _distance_of_k2_and_k3,
    "s-3": _nvl_wastes_eleven,
    "s-4": _between,
    "s-5": _cubes,
    "s-6": _rings_waste_grows,
    "s-7": _scale,
    "s-8": _waits,
    "t1": _explosion,
    "8-near": _lowest_with_servers,
    "8-k2": _distance_with_servers,
}
