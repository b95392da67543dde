"""Rows of the UB-Mesh paper that are training steps: figures 17, 19, 20 and 22."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np

from emu.model.plan.plan import Plan
from emu.study.planning.plan_row import PlanRow
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer
from launch.papers.ub_mesh.setting import (
    CLOS,
    LONG,
    MODELS,
    RACKS,
    SEARCHED,
    SHORT,
    UB,
    A,
    B,
    Fabric,
    UBMeshSteps,
    model_of,
    plan_of,
    split_plan,
    stages,
)

_ALL = (*SHORT, *LONG)
_LLAMA, _GPT3, _GPT4 = "LLAMA-70B", "GPT3-175B", "GPT4-2T"
_STRATEGIES: Mapping[str, Fabric] = {
    "shortest": Fabric(RACKS[UB]),
    **{each: Fabric(f"{RACKS[UB]}:route={each}") for each in ("detour", "borrow")},
}
_BETWEEN = Fabric("ub-mesh:superpod-clos")  # racks that are joined by HRS alone (figure 18)
_LANES = 16  # lanes of an NPU out of its rack
_SAME = 1e-9
_WITHIN = 7.0  # per cent of the Clos's performance that no model loses on 2D-FM (6.2)
SENSITIVE = (_GPT4, _GPT3)  # the models of figure 19


def relative(steps: UBMeshSteps, rack: str, model: str, seqs: Iterable[int] = _ALL) -> float:
    """Return the performance of a rack in per cent of the Clos's, as a mean over lengths of sequences."""
    return _against(steps, Fabric(RACKS[CLOS]), Fabric(RACKS[rack]), model, seqs)


def _against(steps: UBMeshSteps, of: Fabric, fabric: Fabric, model: str, seqs: Iterable[int]) -> float:
    """Return a model's performance on `fabric` in per cent of that on `of`, as a mean over sequence lengths.

    Args:
        steps: The times of training steps.
        of: The fabric whose performance is 100 per cent.
        fabric: The fabric whose performance is returned.
        model: The name of the model.
        seqs: The lengths of sequences in tokens.
    """
    shares = [steps.of(model, seq, of).step_time_s / steps.of(model, seq, fabric).step_time_s for seq in seqs]
    return 100 * float(np.mean(shares))


def mean_relative(steps: UBMeshSteps, rack: str, seqs: Sequence[int]) -> float:
    """Return the performance of a rack in per cent of the Clos's, as a mean over all models and the lengths of sequences."""
    return float(np.mean([relative(steps, rack, model, seqs) for model in MODELS]))


def _values_text(values: Mapping[str, float]) -> str:
    """Return named values in words."""
    return ", ".join(f"{name} {value:.2f}" for name, value in values.items())


def _extreme_over_models(choose: Callable[..., float], paper: Any, _: object) -> Answer:
    """Return the least or the largest performance over all models."""
    found = {model: relative(paper.steps, UB, model) for model in MODELS}
    return Answer(choose(found.values()), (f"per cent of the Clos's: {_values_text(found)}",))


def _gains(paper: Any, rack: str) -> dict[str, float]:
    """Return the gain of a rack over 2D-FM in per cent, by model."""
    return {model: 100 * (relative(paper.steps, rack, model) / relative(paper.steps, UB, model) - 1) for model in MODELS}


def _gain_others(paper: Any, _: object) -> Answer:
    """Return the largest gain of 1D-FM-A for the models but LLAMA-70B."""
    found = {model: gain for model, gain in _gains(paper, A).items() if model != _LLAMA}
    return Answer(max(found.values()), (f"the largest of {_values_text(found)}",))


def _gain_b(paper: Any, _: object) -> Answer:
    """Return the mean gain of the rack design 1D-FM-B, in per cent."""
    found = _gains(paper, B)
    return Answer(float(np.mean([*found.values()])), (f"the mean of {_values_text(found)}",))


def _rack_performance(rack: str, seqs: Sequence[int], paper: Any, _: object) -> Answer:
    """Return the performance of one design of a rack relative to that of a Clos network."""
    return Answer(mean_relative(paper.steps, rack, seqs), ("the mean of all models",))


def _gap(paper: Any, _: object) -> Answer:
    """Return by how many per cent the model that loses most is slower on a 2D full mesh than on the Clos."""
    found = {model: 100 - relative(paper.steps, UB, model) for model in MODELS}
    words, worst = f"per cent less than the Clos: {_values_text(found)}", max(found.values())
    return Answer(worst, (words, "100 less ub-f17-lo"), holds=min(found.values()) < worst < _WITHIN)


def _order(paper: Any, _: object) -> Answer:
    """Return the designs of a rack in the order of their performance, the lowest first."""
    found = {rack: mean_relative(paper.steps, rack, _ALL) for rack in (UB, A, B)} | {CLOS: 100.0}
    ranked, rises = sorted(found, key=lambda rack: found[rack]), all(a < b for a, b in pairwise(found.values()))
    return Answer(" < ".join(ranked), (f"per cent of the Clos's: {_values_text(found)}",), holds=rises)


def losses(steps: UBMeshSteps, model: str, strategies: Iterable[str] = _STRATEGIES) -> dict[str, float]:
    """Return how much performance each strategy of routing loses against racks that HRS join, in % (UB-Mesh figure 19)."""
    return {name: 100 - _against(steps, _BETWEEN, _STRATEGIES[name], model, _ALL) for name in strategies}


def _loss(strategy: str, paper: Any, _: object) -> Answer:
    """Return by how many per cent a step is slower with one strategy of routing than on a Clos network."""
    return Answer(losses(paper.steps, _GPT4, [strategy])[strategy], ("the mean of all sequences",))


def _losses_in_order(paper: Any, _: object) -> Answer:
    """Return the losses of the strategies, and whether they rank as the paper says."""
    found, dense = losses(paper.steps, _GPT4), losses(paper.steps, _GPT3, ["shortest"])
    shortest, detour, borrow = found.values()
    fine = shortest >= detour - _SAME and detour >= borrow - _SAME and borrow >= -_SAME
    words = f"{_GPT4}: {_values_text(found)}; {_GPT3}: {_values_text(dense)}; insensitive is less than half as sensitive"
    return Answer(f"{shortest:.2f}, {detour:.2f}, {borrow:.2f} %", (words,), holds=fine and dense["shortest"] < shortest / 2)


def lanes(count: int) -> Fabric:
    """Return a SuperPod with this number of lanes out of a rack for each NPU (UB-Mesh figure 20)."""
    return Fabric(RACKS[UB], count / _LANES)


def gains_of_lanes(steps: UBMeshSteps, less: int, more: int, seqs: Sequence[int]) -> dict[str, float]:
    """Return the gain of performance in per cent from more lanes, by model (UB-Mesh figure 20).

    Args:
        steps: The times of training steps.
        less: The smaller number of UB lanes out of a rack for each of its NPUs.
        more: The larger number of such lanes.
        seqs: The lengths of sequences in tokens; the gain is the mean over them.
    """
    return {model: _against(steps, lanes(less), lanes(more), model, seqs) - 100 for model in MODELS}


def _wider(less: int, more: int, seqs: Sequence[int], paper: Any, _: object) -> Answer:
    """Return the gain of performance in per cent from more lanes of cables out of a rack, as a mean over models.

    Args:
        less: The smaller number of such lanes for each NPU of the rack.
        more: The larger number.
        seqs: The lengths of sequences in tokens; the gain of a model is the mean over them.
        paper: The paper, which has the times of training steps.
    """
    found = gains_of_lanes(paper.steps, less, more, seqs)
    wide = "all links out of a rack are as many times as wide; x32 would take 88 lanes of an NPU, which has 72"
    return Answer(float(np.mean([*found.values()])), (f"the mean of {_values_text(found)}", wide))


SEQ = 2**18  # tokens of a sequence
BASES: Mapping[str, int] = {"LLAMA-70B": 128, "GPT3-175B": 512, "Dense-1T": 1024, "GPT4-2T": 1024}  # NPUs
DRAWN = (1, 2, 4, 8)  # multiples of the smallest size, up to a SuperPod
_RACK, _POD, _PODS, _ROW = 64, 16, 8, 4  # NPUs, racks of a pod, pods of a SuperPod, racks of a row
_SEQUENCES = 16  # of a step at the smallest size
_HOW = (
    f"{_SEQUENCES} sequences of {SEQ} tokens at the smallest size, and as many more in a larger cluster; at each size the "
    f"fastest plan is searched for (6.5) among all with {SEARCHED} that fit the 64 GB of an NPU"
)


def machine(npus: int) -> str:
    """Return, as text, the topology with this number of NPUs: a part of a SuperPod, or several SuperPods."""
    racks = npus // _RACK
    pods, in_pod = max(1, racks // _POD), min(racks, _POD)
    row = min(_ROW, in_pod)
    pod = f"{in_pod // row}x{row}x8x8"
    return f"ub-mesh:dcn:dims={pods // _PODS}x{_PODS}x{pod}" if pods > _PODS else f"ub-mesh:superpod:dims={pods}x{pod}"


def plan_at(name: str, npus: int) -> Plan:
    """Return the plan of a model on this number of NPUs."""
    return split_plan(model_of(name), stages(name, npus), SEQ, npus, plan_of(name, SEQ, BASES[name]).cp)


def linearity(steps: UBMeshSteps, name: str, times: int) -> float:
    """Return the performance of an NPU in per cent of that at the smallest size (equation 2)."""
    base = BASES[name]
    return 100 * _per_npu(steps, name, base * times) / _per_npu(steps, name, base)


def _per_npu(steps: UBMeshSteps, name: str, npus: int) -> float:
    """Return the tokens per second of an NPU."""
    plan = plan_at(name, npus)
    return plan.global_batch * SEQ / steps.by(name, plan, Fabric(machine(npus))).step_time_s / npus


def _above(paper: Any, _: object) -> Answer:
    """Return the lowest linearity of searched plans; the first size at which it is not above 100 % ends the search."""
    fastest: dict[str, PlanRow] = {}
    found: dict[str, float] = {}
    for times, name in product((2, 4, 8, 16, 32), BASES):
        base, at = (f"{name} at {size}x" for size in (1, times))
        for size, where in ((1, base), (times, at)):
            fastest[where] = fastest.get(where) or _fastest(paper.steps, name, size)
        found[at] = 100 * fastest[base].step_time_s / fastest[at].step_time_s  # the tokens of a step grow as the cluster does
        if found[at] <= 100:
            break
    worst, least = min(found.items(), key=lambda each: each[1])
    plans = "; ".join(f"{at}: {row.plan}" for at, row in fastest.items())
    words = (_HOW, "up to the first size that is not above 100 %", f"plans: {plans}")
    return Answer(f"{least:.2f} of {worst}", words, holds=least > 100)


def _fastest(steps: UBMeshSteps, name: str, times: int) -> PlanRow:
    """Return the step of the fastest plan on a cluster that is so many times as large as the smallest."""
    npus = BASES[name] * times
    return steps.fastest(name, npus, _SEQUENCES * times, SEQ, Fabric(machine(npus)))


TRAINING: Mapping[str, AnswerFunction] = {
    "ub-f17-lo": partial(_extreme_over_models, min),
    "ub-f17-hi": partial(_extreme_over_models, max),
    "ub-f17-1dfma": lambda paper, _: Answer(_gains(paper, A)[_LLAMA]),
    "ub-f17-1dfma-o": _gain_others,
    "ub-f17-1dfmb": _gain_b,
    "ub-f17-order": _order,
    "ub-7pct": _gap,
    "ub-f17b-2d": partial(_rack_performance, UB, SHORT),
    "ub-f17b-a": partial(_rack_performance, A, SHORT),
    "ub-f17b-b": partial(_rack_performance, B, SHORT),
    "ub-f17b-long": partial(_rack_performance, UB, LONG),
    "ub-f19-short": partial(_loss, "shortest"),
    "ub-f19-apr": partial(_loss, "borrow"),
    "ub-f19-order": _losses_in_order,
    "ub-f20-x8": partial(_wider, 8, 16, SHORT),
    "ub-f20-x16": partial(_wider, 16, 32, LONG),
    "ub-lin1": _above,
}
