"""Tables 6 and 8 of the InfiniteHBD paper: parts and prices of built topologies, and the cost of networks with lost GPUs."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from emu.study.cost.network_cost import Cost, cost
from emu.topology.catalogue import build_topology
from launch.data.presets import find_book
from launch.papers.infinitehbd.waste import BEST, FEWER, SYSTEMS, at_rate
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer, Target

BOOK = "infinitehbd"
NETWORKS: Mapping[str, str] = {
    "TPUv4": "tpuv4:cubes=4x4x4",
    "NVL-36": "nvl:36",
    "NVL-72": "nvl:72",
    "NVL-36x2": "nvl:36x2",
    "NVL-576": "nvl:576",
    "InfHBD-K2": "infinitehbd:k=2",
    "InfHBD-K3": "infinitehbd:k=3",
    "HPN": "hpn:pod:backup=8",
}
# The systems of figure 17d whose parts table 8 has.
PRICED: Mapping[str, str] = {
    FEWER: "InfHBD-K2",
    BEST: "InfHBD-K3",
    **{name: name for name in ("NVL-36", "NVL-72", "NVL-576", "TPUv4")},
}
TP = 32  # the TP of figure 17d (6.5)
GPU_DOLLARS = 29_500.0
_UNPRINTED = f"the price of a GPU is not printed: {GPU_DOLLARS:,.0f} $ is that by which K=2 and K=3 cross where the paper says"
_SAME = (
    "the figure's costs are normalised: those of networks are brought to the 800 GB/s of InfiniteHBD's GPUs, as Table 6 has "
    "them for each GB/s; without that TPUv4, of 300 GB/s, costs less where less than 1 % of nodes are faulty"
)


@cache
def network_cost(name: str) -> Cost:
    """Return the cost of a network of table 6, or of HPN in table 8."""
    return cost(build_topology(NETWORKS[name]), find_book(BOOK))


def _value(name: str, what: str) -> float:
    """Return the dollars or the watts of a network for each GPU.

    Args:
        name: The network, a key of `NETWORKS`.
        what: `cost` for dollars or `watts`; `costgb` and `wattsgb` are divided by the GB/s of a GPU, too.
    """
    of = network_cost(name)
    each = of.watts_per_npu if what.startswith("watts") else of.dollars_per_npu
    return each / of.injection_GBps if what.endswith("gb") else each


def _row(paper: Any, target: Target) -> Answer:
    """Return Emu's answer to a row of table 6: a price, a power, or one of them for each GPU or GB/s."""
    name = target.given["of"]
    return Answer(_value(name, target.given["what"]), (f"{NETWORKS[name]} at the prices of Table 8",))


def _counts(paper: Any, target: Target) -> Answer:
    """Return the number of parts of some kinds in the bill of a network."""
    bill = build_topology(NETWORKS[target.given["of"]]).bill
    counts = [sum(bill[part] for part in parts.split("+")) for parts in target.given["parts"].split("/")]
    told = (f"{NETWORKS[target.given['of']]}: {target.given['parts']}",)
    return Answer(float(counts[0]) if len(counts) == 1 else "/".join(map(str, counts)), told)


def _quotient(paper: Any, target: Target) -> Answer:
    """Return the ratio of two networks' costs for each GB/s, both rounded as table 6 prints them."""
    one, other = (round(_value(target.given[name], "costgb"), 2) for name in ("one", "other"))
    scale = 100 if target.unit == "%" else 1
    return Answer(scale * one / other, (f"{one} / {other} $ a GPU and GB/s, rounded as in Table 6",))


def aggregate(system: str, rate: float) -> float:
    """Return the dollars for each GPU of the network, and of GPUs that are faulty or wasted on average (InfiniteHBD 6.5).

    The network is scaled to the bandwidth of InfiniteHBD.

    Args:
        system: The name of the system.
        rate: The share of nodes that are faulty.
    """
    network = _value(PRICED[system], "costgb") * network_cost("InfHBD-K2").injection_GBps
    return network + GPU_DOLLARS * (1 - at_rate(system, TP, rate).availability)


_CROSSING = np.linspace(0.09, 0.15, 7)


def _cross(paper: Any, target: Target) -> Answer:
    """Return at which rate of faults the costs of K=2 and K=3 are equal."""
    ahead = np.array([aggregate(FEWER, rate) - aggregate(BEST, rate) for rate in _CROSSING.tolist()])
    return Answer(100 * float(np.interp(0.0, ahead, _CROSSING)), (_UNPRINTED,))


_RATES = (0.0, 0.01, 0.03, 0.05, 0.10, 0.15)


def _best(paper: Any, target: Target) -> Answer:
    """Return whether InfiniteHBD has the lowest aggregate cost at all rates of faults."""
    told, fine = [], True
    for rate in _RATES:
        found = {system: aggregate(system, rate) for system in PRICED}
        fine &= min(found[FEWER], found[BEST]) < min(found[system] for system in PRICED if system not in (FEWER, BEST))
        told.append(f"{100 * rate:g} %: {', '.join(f'{system} {dollars:,.0f} $' for system, dollars in found.items())}")
    left_out = ", ".join(system for system in SYSTEMS if system not in PRICED)
    notes = (*told, _UNPRINTED, _SAME, f"Table 8 has no parts of {left_out}")
    return Answer("lowest" if fine else "not lowest", notes, holds=fine)


ANSWERS: Mapping[str, AnswerFunction] = {
    "t6-": _row,
    "t8-hpn-cost": _row,
    "t8-hpn-watts": _row,
    "t8-": _counts,
    "cost-": _quotient,
    "agg-cross": _cross,
    "agg-best": _best,
}
