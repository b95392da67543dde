"""The waste by faults on the systems that the InfiniteHBD paper compares: 6.2, appendices A, C and E."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from emu.arrays import F64
from emu.study.faults.source import LoggedFaults, MachineStates, independent_states, states_of_log
from emu.study.faults.waste import Waste, machine_of, waste_of
from emu.topology.catalogue import build_topology
from launch.data.presets import GPUS, SOURCE, production_log
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer, Target
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan, OcstrxRates
from topologies.infinitehbd.orchestration import components

NPUS, NODE = 2880, 4  # GPUs of the cluster, and of a node (6.1, 7)
TPS = (8, 16, 32, 64)
SYSTEMS: Mapping[str, str] = {
    "Big-Switch": f"big-switch:n={NPUS}",
    "InfiniteHBD (K=3)": "infinitehbd:k=3",
    "InfiniteHBD (K=2)": "infinitehbd:k=2",
    "NVL-36": "nvl:36",
    "NVL-72": "nvl:72",
    "NVL-576": "nvl:576",
    "TPUv4": "tpuv4:cubes=5x3x3",
    "SiP-Ring": "sip-ring:size={tp},rings={rings}",
}
_WORDS = {**SYSTEMS, "InfiniteHBD (K=4)": "infinitehbd:k=4"}
IDEAL, BEST, FEWER = "Big-Switch", "InfiniteHBD (K=3)", "InfiniteHBD (K=2)"
RACKS = ("NVL-36", "NVL-72")
RATES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.10)  # shares of faulty nodes in figures 14 and 22
ORDERS = 8  # orders of the trace's servers; the paper does not print its own
_DRAWS = 200


def holds(system: str, tp: int) -> bool:
    """Return whether one unit of a system, such as a rack, can hold a group of `tp` GPUs."""
    return not (system == "NVL-36" and tp > 36)


def word_of(system: str, tp: int, node: int = NODE) -> str:
    """Return the text of a system's topology for `--topology`; the rings of SiP-Ring have the size of TP (6.1).

    Args:
        system: The name of the system.
        tp: The size of groups.
        node: The GPUs of a node.
    """
    word = _WORDS[system].format(tp=tp, rings=NPUS // tp)
    return f"{word},dims=1x{NPUS // (2 * node)}x2x{node}" if node != NODE and word.startswith("infinitehbd:") else word


@cache
def on_trace(system: str, tp: int, seed: int = 0, repair_days: float = 0.0, node: int = NODE) -> Waste:
    """Return the waste of 2,880 GPUs over the production trace.

    Args:
        system: The name of the system.
        tp: The size of groups.
        seed: The seed of the order of servers.
        repair_days: The time of every repair; 0.0: as logged.
        node: The GPUs of a node.
    """
    return waste_of(machine_of(build_topology(word_of(system, tp, node)), NPUS), tp, trace(seed, repair_days, node))


@cache
def side_by_side(k: int, tp: int, seed: int) -> float:
    """Return the mean waste of InfiniteHBD on the trace if the nodes of a server are neighbours on the line.

    Appendix A maps the trace linearly; section 4.3 joins nodes of different ToRs instead, if a ToR has several nodes.
    """
    word = f"infinitehbd:dims=1x{NPUS // NODE}x1x{NODE},k={k}"
    return waste_of(machine_of(build_topology(word), NPUS), tp, trace(seed)).mean


@cache
def trace(seed: int, repair_days: float = 0.0, node: int = NODE) -> MachineStates:
    """Return the states of a machine's nodes over the paper's production trace of faults; see `on_trace`."""
    log = production_log().lasting(repair_days) if repair_days else production_log()
    return LoggedFaults(node, seed, log, SOURCE, GPUS).for_machine(NPUS).states


@cache
def at_rate(system: str, tp: int, rate: float, node: int = NODE) -> Waste:
    """Return the waste if each node, of `node` GPUs, is faulty with the same probability."""
    drawn = independent_states(rate, NPUS // node, _DRAWS, 0)
    return waste_of(machine_of(build_topology(word_of(system, tp, node)), NPUS), tp, drawn)


@cache
def servers() -> MachineStates:
    """Return the states of the servers over the production trace."""
    return states_of_log(production_log())


def faulty_quantile(quantile: float) -> float:
    """Return the share of faulty servers that is not exceeded for a given share of the time."""
    found = servers()
    rate = found.faulty.mean(axis=1)
    order = np.argsort(rate, kind="stable")
    return float(rate[order][np.searchsorted(found.share[order].cumsum(), quantile)])


@cache
def mean_on_trace(system: str, tp: int, node: int = NODE) -> F64:
    """Return [8] the waste of a system, a mean over the time of the fault trace, for each of 8 random orders of the servers."""
    return np.array([on_trace(system, tp, seed, node=node).mean for seed in range(ORDERS)])


def _mean(paper: Any, target: Target) -> Answer:
    """Return the waste of a system, as the mean over the time of the fault trace."""
    system, tp = target.given["of"], target.number("tp")
    found = 100 * mean_on_trace(system, tp)
    drawn = f"the mean of {ORDERS} orders of the servers, from {found.min():.2f} to {found.max():.2f}"
    rate = float(target.given["rate"]) / 100
    by_itself = f"{100 * at_rate(system, tp, rate).mean:.2f} where each node is faulty with {target.given['rate']} % by itself"
    return Answer(float(found.mean()), (f"{word_of(system, tp)} on the 348-day trace: {drawn}", by_itself))


def _waste_of_units(paper: Any, target: Target) -> Answer:
    """Return the waste of units that have the same number of faulty GPUs."""
    word, units, faults = target.given["of"], target.number("units"), target.number("faults")
    topology = build_topology(word)
    faulty = np.zeros((1, units * topology.n_npus), np.bool_)
    faulty.reshape(units, -1)[:, :faults] = True
    found = waste_of(machine_of(topology, faulty.size), target.number("tp"), MachineStates(np.ones(1), faulty, np.zeros(1)))
    scale = {"%": 100.0, "GPUs": float(found.npus)}[target.unit]
    return Answer(scale * found.mean, (f"{units} x {word}",))


def _ninth(paper: Any, target: Target) -> Answer:
    """Return whether NVL racks waste 1/9 of their GPUs without faults."""
    whole = {(system, tp): at_rate(system, tp, 0.0).mean for system in RACKS for tp in TPS[1:] if holds(system, tp)}
    told = ", ".join(f"{system} TP-{tp} {100 * share:.2f} %" for (system, tp), share in whole.items())
    same = all(abs(share - 1 / 9) < 1e-12 for share in whole.values())
    return Answer("1/9" if same else "not alike", (told,))


def _faulty_mean(paper: Any, target: Target) -> Answer:
    """Return the mean share of faulty servers of the trace."""
    return Answer(100 * servers().mean_faulty, (SOURCE,))


def _faulty_most(paper: Any, target: Target) -> Answer:
    """Return the share of faulty servers that is not exceeded for 99 % of the time."""
    return Answer(100 * faulty_quantile(0.99), (SOURCE, "7.22 % are 26 of 360 servers, those that 2,880 GPUs take"))


def _waste_of_k2(paper: Any, target: Target) -> Answer:
    """Return the waste of the K-hop line with K=2 if all nodes are faulty with one probability.

    Breaks of the line cost some NPUs; the waste must not be above the paper's bound.
    """
    rate = float(target.given["rate"]) / 100
    found = 100 * at_rate(FEWER, target.number("tp"), rate).mean
    rest = 100 * at_rate(IDEAL, target.number("tp"), rate).mean
    told = f"{_DRAWS} draws of 720 nodes; {rest:.2f} of it are what is left over of TP-32, as of Big-Switch"
    return Answer(found, (told,), holds=rest < found <= float(target.value))


def _below_bounds(paper: Any, target: Target) -> Answer:
    """Return the waste that breaks of the line add for K of 2, 3 and 4, in per cent, beside the paper's bounds.

    What an ideal switch wastes with the same faults is subtracted.
    """
    rate, node, tp = float(target.given["rate"]) / 100, target.number("node"), target.number("tp")
    ideal = at_rate(IDEAL, tp, rate, node).mean
    found = [100 * (at_rate(f"InfiniteHBD (K={k})", tp, rate, node).mean - ideal) for k in (2, 3, 4)]
    bounds = [float(bound) for bound in target.given["bounds"].split("+")]
    fine = found[0] > found[1] > found[2] - 1e-12 and all(0 <= of <= most for of, most in zip(found, bounds, strict=True))
    told = f"{_DRAWS} draws of {NPUS // node} nodes; an ideal switch wastes {100 * ideal:.2f} %, which is subtracted"
    return Answer(", ".join(f"{each:.4f}" for each in found), (told,), holds=fine)


_LINES = 2000


def _breakpoints(paper: Any, target: Target) -> Answer:
    """Return the breaks of a line of 720 nodes for each working node, and whether they stay below 2 (Ps^K + Ps^2K)."""
    rate, k = float(target.given["rate"]) / 100, target.number("k")
    line = OcstrxPlan("infinitehbd", (1, NPUS // NODE, 1, NODE), k, NODE, OcstrxRates(), closed=False)
    sound = np.random.default_rng(0).random((_LINES, line.nodes)) >= rate
    found = sum(int(components(line, each)[1].max(initial=0)) for each in sound) / int(sound.sum())
    bound = 2 * (rate**k + rate ** (2 * k))
    told = f"K={k}, Ps={target.given['rate']} %: {found:.6f} breaks for each node that works, the bound is {bound:.6f}"
    return Answer(found, (told, f"{_LINES} lines of {line.nodes} nodes"), holds=0 < found <= bound)


ANSWERS: Mapping[str, AnswerFunction] = {
    "tr-mean": _faulty_mean,
    "tr-p99": _faulty_most,
    "w-inf": _mean,
    "w-nvl72": _mean,
    "w-tpu": _mean,
    "w-formula": _waste_of_units,
    "w-ex": _waste_of_units,
    "w-ninth": _ninth,
    "c-eb": _breakpoints,
    "c-loose": _waste_of_k2,
    "c-below": _below_bounds,
}
