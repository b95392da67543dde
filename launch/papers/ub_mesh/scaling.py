"""Figure 22 of the UB-Mesh paper: the performance of an NPU as the cluster grows, relative to the smallest size (6.5)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from emu.model.plan.plan import Plan
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer
from launch.papers.ub_mesh.setting import Fabric, UBMeshSteps, model_of, plan_of, split_plan, stages

SEQ = 2**18  # tokens of a sequence
BASES: Mapping[str, int] = MappingProxyType({"LLAMA-70B": 128, "GPT3-175B": 512, "Dense-1T": 1024, "GPT4-2T": 1024})  # NPUs
DRAWN = (1, 2, 4, 8)  # multiples of the smallest size, up to a SuperPod
_RACK, _POD, _PODS, _ROW = 64, 16, 8, 4  # NPUs, racks of a pod, pods of a SuperPod, racks of a row
_HOW = (
    f"13 sequences of {SEQ} tokens for each replica, so that the batch grows with it; a rank has as many tokens as at the "
    "smallest size, and stages are as few as hold the model there: no plan is searched for (6.5 says that theirs is)"
)


def machine(npus: int) -> str:
    """Return the part of a SuperPod, or the several SuperPods, with this number of NPUs."""
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
    """Answer whether linearity is above 100 % at all sizes; the first size that is not ends the search."""
    found = {}
    for name, times in ((name, times) for times in (2, 4, 8, 16, 32) for name in BASES):
        found[f"{name} at {times}x"] = linearity(paper.steps, name, times)
        if found[f"{name} at {times}x"] <= 100:
            break
    worst, least = min(found.items(), key=lambda each: each[1])
    return Answer(f"{least:.2f} of {worst}", (_HOW, "up to the first size that is not above 100 %"), holds=least > 100)


SCALING: Mapping[str, AnswerFunction] = MappingProxyType({"ub-lin1": _above})
