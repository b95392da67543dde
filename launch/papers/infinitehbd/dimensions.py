"""Rows of the InfiniteHBD paper about a high-bandwidth domain of two dimensions: 7, multi-dimension parallelism.

TP has the ring of a node, CP the lines of nodes, on `infinitehbd:lines`: with OCSTrx that are split between both (independent
interconnects), or that all turn (time division).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from emu.model.model import MODELS
from emu.model.plan.plan import Plan
from emu.model.stack.stack import parse_stack
from emu.study.faults.waste import machine_of, waste_of
from emu.study.training.estimate import EstimateRequest, prepare
from emu.topology.catalogue import build_topology
from launch.data.presets import STACKS
from launch.papers.infinitehbd.setting import DENSE, unlimited_device
from launch.papers.infinitehbd.waste import BEST, FEWER, NODE, NPUS, on_trace, trace
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer, Target
from topologies.infinitehbd.ocstrx_plan import OCSTRX

_SIDE, _LAYERS, _TOKENS = 8, 2, 2**16
_PLAN = Plan(tp=_SIDE, sp=True, cp=_SIDE, cp_comm="p2p", global_batch=2, seq=_TOKENS, microbatch=1, clip=0.0)
_ALGORITHMS = tuple(f"{name}=bidirectional-ring" for name in ("all_reduce", "all_gather", "reduce_scatter"))
_JOB = (
    f"405B with MHA as in table 2, of {_LAYERS} layers, by TP={_SIDE} x CP={_SIDE} with sequences of {_TOKENS} tokens, on "
    f"{_SIDE} nodes of {_SIDE} GPUs; no plan is printed"
)


@cache
def step_s(setting: str) -> float:
    """Return the seconds of a step on nodes of two dimensions with a setting, such as `looped=4`."""
    found = MODELS.find(DENSE.model)
    model = replace(found, name=f"{found.name} of {_LAYERS} layers", kinds=found.kinds[:_LAYERS])
    request = EstimateRequest(model, _PLAN, parse_stack("software=megatron", STACKS), _ALGORITHMS)
    word = f"infinitehbd:lines:nodes={_SIDE},line={_SIDE},gpus={_SIDE},latency=0ns,{setting}"
    device = unlimited_device()
    return prepare(request, build_topology(word), device).estimate(device, briefly=True)[0].step_time_s


def _fixed(paper: Any, target: Target) -> Answer:
    """Return how much longer a step takes on the best split of OCSTrx than where they turn; it must be longer on each split."""
    took = target.given["turn"]
    turned = step_s(f"reconfiguration={took}")
    split = {looped: step_s(f"looped={looped}") for looped in range(1, OCSTRX)}
    best = min(split, key=lambda looped: split[looped])
    told = ", ".join(f"{looped} of {OCSTRX} looped {seconds:.4f} s" for looped, seconds in split.items())
    slower = 100 * (split[best] / turned - 1)
    ours = f"{slower:.1f} % longer on the best split"
    return Answer(ours, (_JOB, told, f"all turn, in {took}: {turned:.4f} s"), holds=min(split.values()) > turned)


def _tolerance(paper: Any, target: Target) -> Answer:
    """Return the waste of groups of two dimensions over the trace, beside that of rings of as many GPUs, in per cent."""
    group = target.number("group")
    word = f"infinitehbd:lines:nodes={NPUS // NODE},line={group // NODE},gpus={NODE}"
    two = 100 * waste_of(machine_of(build_topology(word), NPUS), group, trace(0)).mean
    rings = {system: 100 * on_trace(system, group).mean for system in (FEWER, BEST)}
    told = ", ".join(f"{system} {wasted:.2f} %" for system, wasted in rings.items())
    return Answer(two, (f"{word}; rings of {group} GPUs: {told}",), holds=two > max(rings.values()))


DIMENSIONS: Mapping[str, AnswerFunction] = {"7-fixed": _fixed, "7-faults": _tolerance}
