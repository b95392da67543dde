"""The rows of the UB-Mesh paper: counted on built topologies, or computed from its tables, and the paper with all its rows."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any

from emu.errors import InputError
from launch.papers.networks import build_once
from launch.papers.paper import AnswerFunction, Paper, from_nothing, register
from launch.papers.targets import Answer, Target
from launch.papers.ub_mesh.costs import COSTS
from launch.papers.ub_mesh.counts import CLOS, COUNTS, POD, RACK, SUPERPOD
from launch.papers.ub_mesh.figures import FIGURES
from launch.papers.ub_mesh.setting import NOTES as STEPS
from launch.papers.ub_mesh.setting import UBMeshSteps
from launch.papers.ub_mesh.times import TIMES
from launch.papers.ub_mesh.training import TRAINING

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
