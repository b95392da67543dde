"""The rows of the InfiniteHBD paper about training steps and the search for the best plan: tables 2, 4 and 5."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise, product
from typing import Any

from emu.dtypes import item_bytes
from emu.errors import InputError
from emu.model.generate.generate import memory_by_part
from emu.model.generate.item import Ask
from emu.model.model import MODELS
from emu.model.plan.plan import Plan
from emu.study.planning.bound.outline import Outline
from emu.study.planning.bound.pipeline_chart import chart_s
from emu.study.planning.plan_row import PlanRow
from emu.study.planning.request_times.least_times import LeastTimes
from emu.study.planning.request_times.rates import LeastTime, Rates
from emu.study.planning.step_paths.megatron_paths import MegatronPaths
from emu.study.training.composed.software_costs import costed_device, costed_topology
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.units import format_size
from launch.papers.infinitehbd.setting import (
    DENSE,
    GPUS,
    MOE,
    Training,
    device,
    fits,
    plan_of,
    stack_of,
    step_notes,
    topology_of,
    unlimited_device,
)
from launch.papers.paper import IS, AnswerFunction
from launch.papers.targets import Answer, Target

_TPS, _PPS, _MOST_DP = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8, 16), 1024


StepFunction = Callable[[Training, Plan], PlanRow]  # estimates a step


@cache
def best_plan(estimate: StepFunction, training: Training, gpus: int, tp: int = 0) -> tuple[Plan, PlanRow, str]:
    """Return the plan with the shortest step, its step, and a note on the search.

    Plans are estimated in the order of their lower bounds, until no bound is below the best step.

    Args:
        estimate: The function that estimates a step.
        training: The model and what all its plans share.
        gpus: The number of GPUs.
        tp: The size of tensor parallelism; 0: any.

    Raises:
        InputError: No plan has this number of GPUs and fits the memory.
    """
    plans = [plan for plan in _plans(training, gpus, tp) if _states(training, plan) <= device().memory_bytes]
    bounds = _least_s(training, plans)
    bounded = sorted(zip(bounds, range(len(plans)), plans, strict=True), key=lambda each: each[:2])
    if not bounded:
        raise InputError(f"repro: no plan within the limits of table 2 has {gpus} GPUs and fits their memory")
    found: dict[Plan, PlanRow] = {}
    for bound, _, plan in bounded:
        if found and bound >= min(step.step_time_s for step in found.values()):
            break
        found[plan] = estimate(training, plan)
    won = min(found, key=lambda plan: found[plan].step_time_s)
    room = format_size(device().memory_bytes)
    words = f"the best of {len(plans)} plans whose states take {room} or less; {len(found)} estimated: no other can be faster"
    return won, found[won], words


def _plans(training: Training, gpus: int, tp: int) -> Iterator[Plan]:
    """Yield the plans within the limits of table 2."""
    for own, pp in product([tp] if tp else _TPS, _PPS):
        dp, left = divmod(gpus, own * pp)
        if not left and 1 <= dp <= _MOST_DP:
            yield plan_of(training, own, pp, dp)


def _states(training: Training, plan: Plan) -> int:
    """Return the bytes that a GPU must have even with full recomputation: weights, gradients and the optimizer's states.

    They are computed with as few microbatches as fill the pipeline twice: more change nothing, and would take much longer.
    """
    short = replace(plan, global_batch=min(plan.global_batch, 2 * plan.pp * plan.dp))
    parts = memory_by_part(MODELS.find(training.model), short, stack_of(plan))
    return sum(size for part, size in parts.items() if part != "activations")


def _least_s(training: Training, plans: Sequence[Plan]) -> Iterator[float]:
    """Yield a lower bound of the step time of each plan in seconds; parts that several plans share are computed once."""
    known: dict[int, MegatronPaths] = {}
    for plan in plans:
        stack, model = stack_of(plan), MODELS.find(training.model)
        computes = costed_device(stack, unlimited_device()).for_ranks(plan.world)
        if plan.world not in known:
            known[plan.world] = MegatronPaths(model, stack, computes)
        ways = known[plan.world]
        outline, rings = Outline.of(ways, plan), _Rings.under(plan, costed_topology(stack, build_topology(topology_of(plan))))
        yield max(outline.seconds(rings), chart_s(ways, outline, rings))


@dataclass(frozen=True, eq=False)
class _Rings(LeastTimes):
    """The least times of requests if tp forms rings and each GPU has one cable of the data-centre network."""

    ring_Bps: float
    cable_Bps: float

    @staticmethod
    def under(plan: Plan, topology: Topology) -> "_Rings":
        """Return the least times of the requests of a plan on its rings.

        If tp is smaller than the number of GPUs of a node, other ranks are in the ring, too.
        """
        first = topology.links.bandwidth_Bps[topology.links.src == 0]
        cable = float(first.min()) if plan.tp >= GPUS else float(first.sum())
        return _Rings(Rates.of(topology), plan, float(first.sum() - first.min()), cable)

    def axes_key(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return a key for the times of the given axes; see `LeastTimes.axes_key`."""
        return self.ring_Bps, self.cable_Bps, LeastTimes.axes_key(self, place, axes)

    def collective(self, place: int, ask: Ask) -> LeastTime:
        """Return the least time of a collective; an all_reduce on a ring takes 2 (n - 1) parts of n (stack.toml)."""
        if ask.axis == "tp" and ask.operation == "all_reduce":
            ranks, size = self.sizes["tp"], ask.elements * item_bytes(ask.dtype)
            return LeastTime(0.0, 2 * (ranks - 1) / ranks * size / self.ring_Bps)
        return self._between.collective(place, ask) if ask.axis == "dp" else LeastTimes.collective(self, place, ask)

    def messages(self, to: int, size: int) -> Sequence[LeastTime]:
        """Return the least times of messages between places of a pipeline; see `LeastTimes.messages`."""
        return self._between.messages(to, size)

    @property
    def _between(self) -> LeastTimes:
        return LeastTimes(Rates(self.cable_Bps, self.cable_Bps), self.plan)


_EPS = (2, 4, 8)  # sizes of expert parallelism (6.3)
_TP = 64  # the TP of table 4's plans
_PRACTICAL = 20  # imbalance of table 5 in % (6.3)
_AT_ZERO, _AT_TEN = 0, 10  # imbalances in % between which expert parallelism becomes slower


def _plan(of: Training, target: Target) -> Plan:
    """Return the plan of a row."""
    return plan_of(of, target.number("tp"), target.number("pp"), target.number("dp"))


def _mfu(of: Training, scale: float, paper: Any, target: Target) -> Answer:
    """Return the MFU of a row's plan.

    Args:
        of: The model and what all its plans share.
        scale: A factor of the MFU: 100 for per cent.
        paper: The paper.
        target: The row.
    """
    step = paper.steps(of, _plan(of, target))
    return Answer(scale * step.mfu, step_notes(of, step))


def _best(paper: Any, gpus: int, tp: int = 0) -> tuple[Plan, PlanRow, str]:
    """Return the best plan within the limits of table 2, its step and a note; with a given TP if `tp` is above 0."""
    return best_plan(paper.steps, DENSE, gpus, tp)


def _sizes(paper: Any) -> list[int]:
    """Return the numbers of GPUs in table 2."""
    return sorted({target.number("gpus") for target in paper.of("2") if "gpus" in target.given})


def _mfu_of_tp(paper: Any, target: Target) -> Answer:
    """Return the MFU of the best plan with the TP of the row."""
    _, step, told = _best(paper, target.number("gpus"), target.number("tp"))
    return Answer(step.mfu, (*step_notes(DENSE, step), told))


def _config(paper: Any, target: Target) -> Answer:
    """Return the best plan for a number of GPUs, and how much better it is than the printed one."""
    plan, step, told = _best(paper, target.number("gpus"))
    tp, pp, dp = map(int, target.value.split("/"))
    printed = paper.steps(DENSE, plan_of(DENSE, tp, pp, dp))
    notes = (*step_notes(DENSE, step), told, f"MFU {step.mfu:.4f}, and {printed.mfu:.4f} by the printed plan")
    return Answer(f"{plan.tp}/{plan.pp}/{plan.dp}", notes, max(0.0, step.mfu / printed.mfu - 1))


def _trend(paper: Any, target: Target) -> Answer:
    """Return the TP of the best plan for each number of GPUs, as text."""
    tps = [_best(paper, gpus)[0].tp for gpus in _sizes(paper)]
    grows = "it never falls" if all(a <= b for a, b in pairwise(tps)) else "it falls"
    told = f"the best TP of {', '.join(map(str, _sizes(paper)))} GPUs; as they grow, {grows}"
    return Answer(",".join(map(str, tps)), (told, _too_large(paper)))


def _too_large(paper: Any) -> str:
    """Return a note on how many plans of table 2 do not fit a GPU's memory."""
    steps = [paper.steps(DENSE, _plan(DENSE, each)) for each in paper.of("2") if "dp" in each.given and IS not in each.given]
    steps += [_best(paper, gpus, 8)[1] for gpus in _sizes(paper)]
    room = format_size(device().memory_bytes)
    return f"{sum(not fits(step) for step in steps)} of the {len(steps)} plans of the table's MFU would take more than {room}"


def _gap(paper: Any, target: Target) -> Answer:
    """Return the gains over TP=8 of the fewest and of the most GPUs, and whether each larger number of GPUs gains more."""
    gains = [_best(paper, gpus)[1].mfu / _best(paper, gpus, 8)[1].mfu for gpus in _sizes(paper)]
    told_of = f"gains of {', '.join(map(str, _sizes(paper)))} GPUs: {', '.join(f'{gain:.3f}' for gain in gains)}"
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
        found.append((ep, paper.steps(MOE, plan_of(MOE, tp, pp, gpus // (tp * pp), **more))))
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
    """Return the MFU with expert parallelism if experts get unequal numbers of tokens, by the row's imbalance."""
    step = _step_with_imbalance(paper, target.number("gpus"), target.number("imbalance"))
    even = _step_with_imbalance(paper, target.number("gpus"), 0).mfu
    falls = f"{step.mfu / even:.4f} of that at 0 %"
    return Answer(100 * step.mfu, (*step_notes(MOE, step), falls, _STRAGGLER, _UNPRINTED, _SWITCHED))


def _step_with_imbalance(paper: Any, gpus: int, imbalance: int) -> PlanRow:
    """Return the step with expert parallelism at an imbalance in per cent."""
    return _best_expert_step(paper, gpus, _TP, 16, imbalance, _EPS[-1:])[1]


def _crossing(paper: Any, target: Target) -> Answer:
    """Return whether expert parallelism becomes slower than tensor parallelism between 0 % and 10 % of imbalance."""
    own = next(each for each in paper.of("4") if each.id == "hbd-t4-tp")
    tp = paper.steps(MOE, _plan(MOE, own)).mfu
    at = [_step_with_imbalance(paper, own.number("gpus"), c).mfu for c in (_AT_ZERO, _AT_TEN)]
    words = f"MFU by TP {tp:.4f}, by EP {at[0]:.4f} at {_AT_ZERO} % and {at[1]:.4f} at {_AT_TEN} %"
    holds = at[0] > tp > at[1]
    return Answer("crossover in (0,10)" if holds else "none in (0,10)", (words, _STRAGGLER, _UNPRINTED, _SWITCHED), holds=holds)


def _best_ep(paper: Any, target: Target) -> Answer:
    """Return whether EP=1 has a higher MFU than the best EP of 2, 4 and 8 for all numbers of GPUs of table 5.

    EP=1 is tensor parallelism alone. The imbalance of experts is 20 %, which 6.3 calls practical. The value is `EP=1` or
    `EP>1 somewhere`.
    """
    sizes = [each for each in paper.of("5") if "mfu" in each.id]
    won, words = True, []
    for each in sizes:
        gpus, tp, pp = each.number("gpus"), each.number("tp"), each.number("pp")
        ep, step = _best_expert_step(paper, gpus, tp, pp, _PRACTICAL, _EPS)
        alone, shared = paper.steps(MOE, _plan(MOE, each)).mfu, step.mfu
        won &= alone > shared
        words.append(f"{gpus} GPUs: MFU {alone:.4f} by EP=1, {shared:.4f} by EP={ep}")
    return Answer("EP=1" if won else "EP>1 somewhere", (*words, _STRAGGLER, "TP and PP as printed", _SWITCHED), holds=won)


TRAINING: Mapping[str, AnswerFunction] = {
    "t2-mfu-": partial(_mfu, DENSE, 1.0),
    "t2-mfu8": _mfu_of_tp,
    "t2-cfg": _config,
    "t2-trend": _trend,
    "t2-gap": _gap,
    "t4-ep": _mfu_with_imbalance,
    "t4-tp": partial(_mfu, MOE, 100.0),
    "t4-cross": _crossing,
    "t5-mfu": partial(_mfu, MOE, 1.0),
    "t5-ep1": _best_ep,
}
