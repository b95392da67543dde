"""The rows of the InfiniteHBD paper's tables about training, and the paper with all its rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from emu.model.plan.plan import Plan
from emu.study.planning.search.row import PlanRow
from launch.papers.infinitehbd import costs, counts, fault_waste, orderings, placements
from launch.papers.infinitehbd.figures import FIGURES
from launch.papers.infinitehbd.search import BestPlan, best_plan
from launch.papers.infinitehbd.setting import DENSE, HERE, MOE, InfiniteHBDSteps, Training, plan_of, printed_name, step_notes
from launch.papers.paper import AnswerFunction, Paper
from launch.papers.targets import Answer, Target, read_targets

_TARGETS = HERE / "targets.csv"
_EPS = (2, 4, 8)  # sizes of expert parallelism (6.3)
_TP = 64  # the TP of table 4's plans
_PRACTICAL = 20  # imbalance of table 5 in % (6.3)
_AT_ZERO, _AT_TEN = 0, 10  # imbalances in % between which expert parallelism becomes slower


def _product(paper: Any, target: Target) -> Answer:
    """Answer the number of GPUs of a plan."""
    return Answer(float(target.number("tp") * target.number("pp") * target.number("dp")))


def _improvement(paper: Any, target: Target) -> Answer:
    """Answer the ratio of two MFUs that the paper prints."""
    ours = float(target.given["mfu"]) / float(target.given["mfu8"])
    return Answer(ours, (f"from the printed {target.given['mfu']} and {target.given['mfu8']}",))


def _percent(paper: Any, target: Target) -> Answer:
    """Answer an MFU that the paper prints, in per cent."""
    return Answer(round(100 * float(target.given["mfu"]), target.digits), ("from the printed value of table 5",))


def _plan(of: Training, target: Target) -> Plan:
    """Return the plan of a row."""
    return plan_of(of, target.number("tp"), target.number("pp"), target.number("dp"))


def _mfu(of: Training, scale: float, paper: Any, target: Target) -> Answer:
    """Answer the MFU of a row's plan.

    Args:
        of: The model and what all its plans share.
        scale: A factor of the MFU: 100 for per cent.
        paper: The paper.
        target: The row.
    """
    step = paper.steps.of(of, _plan(of, target))
    return Answer(scale * step.mfu, step_notes(of, step))


def _mfu_of_tp(paper: Any, target: Target) -> Answer:
    """Answer the MFU of the best plan with the TP of the row."""
    found = paper.best(target.number("gpus"), target.number("tp"))
    return Answer(found.step.mfu, (*step_notes(DENSE, found.step), found.told))


def _config(paper: Any, target: Target) -> Answer:
    """Answer the best plan for a number of GPUs, and how much better it is than the printed one."""
    found = paper.best(target.number("gpus"))
    tp, pp, dp = map(int, target.value.split("/"))
    printed = paper.steps.of(DENSE, plan_of(DENSE, tp, pp, dp))
    ours, theirs = found.step.mfu, printed.mfu
    return Answer(
        printed_name(found.plan),
        (*step_notes(DENSE, found.step), found.told, f"MFU {ours:.4f}, and {theirs:.4f} by the printed plan"),
        max(0.0, ours / theirs - 1),
    )


def _trend(paper: Any, target: Target) -> Answer:
    """Answer whether the TP of the best plan grows with the number of GPUs."""
    tps = [paper.best(gpus).plan.tp for gpus in paper.sizes()]
    told_of = f"the best TP of {', '.join(map(str, paper.sizes()))} GPUs: {', '.join(map(str, tps))}"
    return Answer(f"{tps[0]}->{tps[-1]}", (told_of,), holds=all(a <= b for a, b in pairwise(tps)))


def _gap(paper: Any, target: Target) -> Answer:
    """Answer whether the gain over TP=8 grows with the number of GPUs."""
    gains = [paper.best(gpus).step.mfu / paper.best(gpus, 8).step.mfu for gpus in paper.sizes()]
    told_of = f"gains of {', '.join(map(str, paper.sizes()))} GPUs: {', '.join(f'{gain:.3f}' for gain in gains)}"
    return Answer(f"{gains[0]:.2f}->{gains[-1]:.2f}", (told_of,), holds=all(a < b for a, b in pairwise(gains)))


def _best_expert_step(paper: Any, gpus: int, tp: int, pp: int, imbalance: int, eps: Sequence[int]) -> tuple[int, PlanRow]:
    """Return the expert parallelism with the shortest step, and that step.

    Args:
        paper: The paper.
        gpus: The number of GPUs.
        tp: The size of tensor parallelism.
        pp: The number of stages.
        imbalance: The imbalance of experts in per cent.
        eps: The sizes of expert parallelism that are tried.
    """
    found = []
    for ep in eps:
        more = {"ep": ep, "etp": max(1, tp // ep), "imbalance": imbalance / 100}
        found.append((ep, paper.steps.of(MOE, plan_of(MOE, tp, pp, gpus // (tp * pp), **more))))
    return min(found, key=lambda each: each[1].step_time_s)


_STRAGGLER = (
    "the coefficient is (max - min) / max of the tokens of an expert (footnote 4); between them nothing is printed: one expert "
    "is taken to have max, each other min, and the step is that of the GPU with the fullest"
)
_UNPRINTED = (
    "the plan with EP is not printed: EP=8 is taken, as an expert is on one GPU of its group (footnote 3), with TP=64 and "
    "PP=16 as in table 5, and TP / EP ranks share an expert, so that they hold as much as by TP alone"
)
_SWITCHED = "where rows travel to experts, TP GPUs are round a switch at the same 6.4 Tb/s: a ring joins neighbours alone (2.1)"


def _mfu_with_imbalance(paper: Any, target: Target) -> Answer:
    """Answer the MFU with expert parallelism at an imbalance."""
    step = _step_with_imbalance(paper, target.number("gpus"), target.number("imbalance"))
    even = _step_with_imbalance(paper, target.number("gpus"), 0).mfu
    falls = f"{step.mfu / even:.4f} of that at 0 %"
    return Answer(100 * step.mfu, (*step_notes(MOE, step), falls, _STRAGGLER, _UNPRINTED, _SWITCHED))


def _step_with_imbalance(paper: Any, gpus: int, imbalance: int) -> PlanRow:
    """Return the step with expert parallelism at an imbalance in per cent."""
    return _best_expert_step(paper, gpus, _TP, 16, imbalance, _EPS[-1:])[1]


def _crossing(paper: Any, target: Target) -> Answer:
    """Answer whether expert parallelism becomes slower than tensor parallelism between 0 % and 10 % of imbalance."""
    own = next(each for each in paper.of("4") if each.id == "hbd-t4-tp")
    tp = paper.steps.of(MOE, _plan(MOE, own)).mfu
    at = [_step_with_imbalance(paper, own.number("gpus"), c).mfu for c in (_AT_ZERO, _AT_TEN)]
    words = f"MFU by TP {tp:.4f}, by EP {at[0]:.4f} at {_AT_ZERO} % and {at[1]:.4f} at {_AT_TEN} %"
    holds = at[0] > tp > at[1]
    return Answer("crossover in (0,10)" if holds else "none in (0,10)", (words, _STRAGGLER, _UNPRINTED, _SWITCHED), holds=holds)


def _best_ep(paper: Any, target: Target) -> Answer:
    """Answer whether tensor parallelism alone is best at a practical imbalance."""
    sizes = [each for each in paper.of("5") if "mfu" in each.id]
    won, words = True, []
    for each in sizes:
        gpus, tp, pp = each.number("gpus"), each.number("tp"), each.number("pp")
        ep, step = _best_expert_step(paper, gpus, tp, pp, _PRACTICAL, _EPS)
        alone, shared = paper.steps.of(MOE, _plan(MOE, each)).mfu, step.mfu
        won &= alone >= shared
        words.append(f"{gpus} GPUs: MFU {alone:.4f} by EP=1, {shared:.4f} by EP={ep}")
    return Answer("EP=1" if won else "EP>1 somewhere", (*words, _STRAGGLER, "TP and PP as printed", _SWITCHED), holds=won)


_ANSWERS: dict[str, AnswerFunction] = {
    "abs-mfu": _improvement,
    "t2-prod": _product,
    "t2-imp": _improvement,
    "t2-mfu-": partial(_mfu, DENSE, 1.0),
    "t2-mfu8": _mfu_of_tp,
    "t2-cfg": _config,
    "t2-trend": _trend,
    "t2-gap": _gap,
    "t4-ep": _mfu_with_imbalance,
    "t4-tp": partial(_mfu, MOE, 100.0),
    "t4-x-t5": _percent,
    "t4-cross": _crossing,
    "t5-prod": _product,
    "t5-mfu": partial(_mfu, MOE, 1.0),
    "t5-ep1": _best_ep,
}
_ALL = (_ANSWERS, costs.ANSWERS, fault_waste.ANSWERS, orderings.ANSWERS, placements.ANSWERS, counts.ANSWERS)


@dataclass(eq=False)
class InfiniteHBDPaper(Paper):
    """The InfiniteHBD paper; a step or a search is computed for the first row that needs it."""

    targets: list[Target] = field(default_factory=lambda: read_targets(_TARGETS))
    steps: InfiniteHBDSteps = field(default_factory=InfiniteHBDSteps)
    searched: dict[tuple[int, int], BestPlan] = field(default_factory=dict)
    figures = FIGURES
    answers = MappingProxyType({f"hbd-{start}": answer for group in _ALL for start, answer in group.items()})

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
