"""The rows of the UB-Mesh paper: counted on built topologies, or computed from its tables, and the paper with all its rows.

Rows about collectives and routes are computed on built topologies.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from emu.collective.algorithm import algorithm
from emu.errors import InputError
from emu.topology.paths.deadlock import cycle
from launch.papers.networks import build_once, collective_s
from launch.papers.paper import AnswerFunction, FormulaCase, Paper, check_formula, from_nothing, register
from launch.papers.targets import Answer, Target
from launch.papers.ub_mesh.counts import CLOS, COSTS, COUNTS, POD, RACK, SUPERPOD
from launch.papers.ub_mesh.figures import FIGURES
from launch.papers.ub_mesh.setting import NOTES as STEPS
from launch.papers.ub_mesh.setting import UBMeshSteps
from launch.papers.ub_mesh.training import TRAINING

_FAILED = 3


def _rings() -> Answer:
    """Answer which share of the block the busiest link carries in a multi-ring all_reduce."""
    cases = []
    for n in (5, 7, 8, 9, 16):
        plan = algorithm("all_reduce", "multi-ring").schedule(n).expand()
        _, slots = np.unique(plan.src.astype(np.int64) * n + plan.dst, return_counts=True)
        cases.append(FormulaCase(f"V on the busiest link, n={n}", float(slots.max()) / plan.n_slots, 2 / n))
    return check_formula(cases)


def _paths() -> float:
    """Return the time of an all_to_all by single paths as a multiple of that by several paths, limited by bandwidth alone."""
    word = "ub-mesh:rack:lane_rate=0.5GB/s,latency=0s"
    single, several = (collective_s(word, "all_to_all", name, (8, 8), 64 * 64 * 2**16) for name in ("single-path", "multipath"))
    return single / several


def _backup() -> Answer:
    """Answer how many more links a neighbour of a failed NPU has to the backup NPU."""
    rack = build_once("ub-mesh:rack-full")
    near = rack.links.dst[(rack.links.src == _FAILED) & (rack.links.dst < 64)].astype(np.int64)
    backup = np.full(len(near), int(rack.place(64, [_FAILED])[_FAILED]))
    more = set((rack.routes(near, backup, np.zeros_like(near)).hops - 1).tolist())
    words = "no LRS of table 3 has ports for all boards and for the backup NPU, so two LRS of a back-plane stand for one"
    return Answer(" or ".join(f"+{hops} hop" for hops in sorted(more)), (words,))


def _lanes() -> Answer:
    """Answer whether two virtual lanes keep all pairs of a rack free of deadlock with detours."""
    rack = build_once("ub-mesh:rack:routing=detour")
    pairs = np.stack(np.meshgrid(np.arange(64), np.arange(64)), -1).reshape(-1, 2)
    src, dst = pairs[pairs[:, 0] != pairs[:, 1]].T
    routes = rack.routes(np.repeat(src, 16), np.repeat(dst, 16), np.tile(np.arange(16), len(src)))
    assert routes.virtual is not None
    lanes = int(routes.virtual.max()) + 1
    words = "a rule of Emu's own, as TFC is not published; all pairs of a rack, 16 ways each, wait in no circle"
    return Answer(float(lanes), (words,), holds=lanes == 2 and cycle(routes, routes.virtual) == [])


TIMES: Mapping[str, Callable[[], Answer | float | str]] = MappingProxyType(
    {"ub-mr-opt": _rings, "ub-mp-a2a": _paths, "ub-backup": _backup, "ub-vl": _lanes}
)


_HOURS = 8760  # hours of a year
_DIGITS = 4  # decimals in which the rates of switches are equal
_NOTES = (
    "rows of table 3 are counted on the built topologies `ub-mesh:rack-full`, `pod`, `superpod` and `clos`",
    "other rows are computed from inputs that the paper's tables print, never from the value of the row",
)


def _volume(target: Target) -> float:
    """Return the bytes of an axis in table 1, in GB."""
    return sum(prod(map(float, transfer.split("x"))) for transfer in target.given["transfers"].split("+")) / 1024


def _share(paper: Any, target: Target) -> float:
    """Return the share of some axes in all bytes of table 1, in per cent."""
    volume = {each.id.split("-")[2]: _volume(each) for each in paper.targets if each.id.endswith("-vol")}
    return 100 * sum(volume[axis] for axis in target.given["axis"].split("+")) / sum(volume.values())


def _shares_of_dp_and_tp(paper: Any, _: Target) -> str:
    """Return the shares of DP and TP as the paper prints them."""
    dp, tp = (_share(paper, next(each for each in paper.targets if each.id == f"ub-t1-{axis}-pct")) for axis in ("DP", "TP"))
    return f"{dp:.2f};{tp:.1f}"


def _near(paper: Any, _: Target) -> Answer:
    """Answer which share of bytes stays in a rack: that of TP and SP. Two NPUs of a rack are 2 hops apart at most."""
    share = _share(paper, next(each for each in paper.targets if each.id == "ub-t1-97"))
    return Answer(f"{share:.1f} % of the bytes", ("of TP and SP (table 1), which are in a rack",), holds=share > 50)


def _given_number(target: Target, name: str) -> float:
    """Return a given number of a row."""
    return float(target.given[name])


def _hidden(paper: Any, target: Target) -> float:
    """Return the hidden size from the number and the size of heads."""
    return _given_number(target, "heads") * _given_number(target, "head")


def _parameters(paper: Any, target: Target) -> float:
    """Return the number of parameters in 1e12, from layers, hidden size and experts."""
    return _given_number(target, "layers") * _hidden(paper, target) ** 2 * (4 + 8 * _given_number(target, "experts")) / 1e12


def _failures(paper: Any, target: Target) -> float:
    """Return the failures in a year, as the sum of those of the parts."""
    return sum(map(float, target.given["afrs"].split("+")))


def _mtbf(paper: Any, target: Target) -> float:
    """Return the mean time between failures in hours."""
    return _HOURS / _failures(paper, target)


def _availability(paper: Any, target: Target) -> float:
    """Return the availability in per cent."""
    mtbf = _given_number(target, "mtbf")
    return 100 * mtbf / (mtbf + _given_number(target, "minutes") / 60)


def _failures_of_a_switch(paper: Any, target: Target) -> float:
    """Return the failures of a switch in a year, which are equal for LRS and HRS of both systems to four digits.

    Raises:
        InputError: the rates differ.
    """
    rates = []
    for name, word in (("ub", SUPERPOD), ("clos", CLOS)):
        failures = map(float, target.given[name].split("/"))
        rates += [each / build_once(word).bill[part] for each, part in zip(failures, ("LRS", "HRS"), strict=True)]
    if len({round(rate, _DIGITS) for rate in rates}) > 1:
        raise InputError(f"the rates differ: {', '.join(map(str, rates))}")
    return sum(rates) / len(rates)


def _efficiency(paper: Any, target: Target) -> float:
    """Return the performance for each dollar, relative to the other system."""
    share = _given_number(target, "share")
    return _given_number(target, "performance") / (
        (1 - share) / _given_number(target, "capex") + share * _given_number(target, "opex")
    )


_WORKED: dict[str, AnswerFunction] = {
    "ub-64k": lambda _, target: _given_number(target, "times") * build_once(POD).n_npus,
    **{f"ub-t1-{axis}-vol": lambda _, target: _volume(target) for axis in ("TP", "SP", "EP", "PP", "DP")},
    "ub-t1-": _share,
    "ub-t1-dp2": _shares_of_dp_and_tp,
    "ub-hops": _near,
    **{f"ub-t5-{name}-h": _hidden for name in ("LLAMA-70B", "GPT3-175B", "Dense-1T", "GPT4-2T", "MoE-10T")},
    "ub-t5-": _parameters,
    "ub-afr-sw": _failures_of_a_switch,
    "ub-av-diff": lambda _, target: _given_number(target, "more") - _given_number(target, "less"),
    "ub-t6-ub-sum": _failures,
    "ub-t6-clos-sum": _failures,
    "ub-t6-ub-mtbf": _mtbf,
    "ub-t6-clos-mtbf": _mtbf,
    "ub-t6-x": lambda _, target: _given_number(target, "mtbf") / _given_number(target, "other"),
    "ub-av-": _availability,
    "ub-capex-net": lambda _, target: (1 - _given_number(target, "after")) / (1 - _given_number(target, "before")),
    "ub-2.04": _efficiency,
}


@register
@dataclass(eq=False)
class UBMeshPaper(Paper):
    """The UB-Mesh paper; a topology is built once."""

    title = "UB-Mesh"
    source = "Liao et al., UB-Mesh (arXiv:2503.20377)."
    figures = FIGURES
    answers = MappingProxyType(
        {**COUNTS, **_WORKED, **TRAINING, **COSTS, **{name: from_nothing(way) for name, way in TIMES.items()}}
    )

    @cached_property
    def steps(self) -> UBMeshSteps:
        """The estimates of the paper's steps."""
        return UBMeshSteps(self.cache)

    def assumptions(self) -> tuple[str, ...]:
        """Return the assumptions of all rows."""
        return tuple(
            dict.fromkeys(
                [*_NOTES, *STEPS, *(told for word in (RACK, POD, SUPERPOD, CLOS) for told in build_once(word).assumptions)]
            )
        )
