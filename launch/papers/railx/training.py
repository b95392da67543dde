"""Rows of the RailX paper about a training step: table 4, counted in generated steps, and equation 10, on a timed one.

The paper trains with Megatron-LM (A.4), so that steps are those that Emu generates for it. Letters are those of table 4: B
sequences of S tokens in a microbatch, N_B microbatches, hidden size H, L layers, K experts of a token, feed-forward width I,
vocabulary V; T, C, E, D and P ranks of tensor, context, expert, data and pipeline parallelism. An expert is on each of E ranks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial

import numpy as np

from emu.collective.choice import Choice
from emu.model.generate.generate import generate
from emu.model.generate.item import Ask, Computation
from emu.model.generate.tape import Tape
from emu.model.model import describe_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import parse_stack
from emu.study.training.step.step import time_trace
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import Group, Kind, Trace
from launch.data.devices import find_device
from launch.data.presets import STACKS
from launch.papers.networks import build_once
from launch.papers.paper import FormulaCase, check_formula
from launch.papers.targets import Answer

_H, _I, _V, _L, _K, _HEADS, _KV_HEADS = 1024, 3584, 32000, 8, 2, 16, 4
_T, _C, _E, _D, _P, _B, _S, _BATCHES = 2, 4, 4, 8, 4, 2, 4096, 4
_PLAN = Plan(
    tp=_T, sp=True, cp=_C, ep=_E, dp=_D, pp=_P, global_batch=_B * _BATCHES * _D, seq=_S, microbatch=_B, clip=0.0
)  # fmt: skip
_KV = _KV_HEADS / _HEADS
_FIRST, _MIDDLE, _LAST = 0, 1, _P - 1  # places of a pipeline; no vocabulary is in the middle
_STACK = "software=megatron"


@cache
def _sent(place: int, tp: int = _T) -> dict[tuple[str, str], list[int]]:
    """Return the elements of each request and send of a rank at a place of the pipeline, by axis and dtype."""
    plan = replace(_PLAN, tp=tp)
    trace = _generated(tp)
    rank = place * plan.stage_ranks
    events, found = trace.events_of(rank), dict[tuple[str, str], list[int]]()
    for at in np.flatnonzero(np.isin(events.kind, (Kind.COLLECTIVE, Kind.SEND))).tolist():
        axis = trace.groups[trace.group_of[rank][events.group[at]]].axis
        found.setdefault((axis, events.dtype[at]), []).append(int(events.count[at]))
    return found


@cache
def _generated(tp: int) -> Trace:
    """Return the generated step with a number of ranks of tensor parallelism."""
    sizes = {"layers": _L, "hidden": _H, "heads": _HEADS, "kv_heads": _KV_HEADS, "ffn": _I, "vocab": _V, "max_seq": _S}
    table = {"architecture": "mixtral", **sizes, "experts": _E, "top_k": _K, "source": "letters of RailX, table 4"}
    return generate(describe_model(table, "railx"), replace(_PLAN, tp=tp), parse_stack(_STACK, STACKS))


def _activations(axis: str, volume: float, often: float, parts: int = 1) -> Iterator[FormulaCase]:
    """Yield, as cases of a formula, the volume that an axis sends in a pass, and the number of times in a step.

    Args:
        axis: The axis.
        volume: The elements by the formula.
        often: The times in a step by the formula.
        parts: The number of messages in which a volume is sent.
    """
    sizes = _sent(_MIDDLE)[axis, "bfloat16"]
    (size,) = set(sizes)
    yield "elements", size * parts, volume
    yield "times in a step", len(sizes) / parts, often


def _gradients(axis: str, place: int) -> float:
    """Return the elements of gradients that an axis reduces in a step, of weights that tensor parallelism cuts.

    Others, such as norms, are as many with twice the ranks, and cancel out.
    """
    once, twice = (sum(_sent(place, tp)[axis, "float32"]) for tp in (_T, 2 * _T))
    return 2.0 * (once - twice)


def _layers(axis: str, volume: float) -> Iterator[FormulaCase]:
    """Yield the elements of the gradients that an axis reduces for a layer."""
    yield "elements of a layer", _gradients(axis, _MIDDLE) / (_L / _P), volume


def _vocabulary() -> Iterator[FormulaCase]:
    """Yield the elements of the gradients of both tables of the vocabulary."""
    ends = sum(_gradients("cp+dp", place) for place in (_FIRST, _LAST)) - 2 * _gradients("cp+dp", _MIDDLE)
    yield "elements", ends, 2 * _H * _V / (_T * _C)


_PASSES = _BATCHES * _L / _P  # of a layer forward in a step
_VOLUMES: Mapping[str, Callable[[], Iterator[FormulaCase]]] = {
    "rx-t4-1": partial(_activations, "tp", _B * _S * _H, 4 * _PASSES),
    "rx-t4-2": partial(_activations, "etp", _B * _S * _H * _K, 4 * _PASSES),
    "rx-t4-3": partial(_activations, "cp", _B * _S * _H * 2 * _KV / _T, 2 * _PASSES, _C),
    "rx-t4-4": partial(_activations, "ep", _B * _S * _H * _K / (_T * _C), 4 * _PASSES),
    "rx-t4-5": _vocabulary,
    "rx-t4-6": partial(_layers, "cp+dp", (2 + 2 * _KV) * _H**2 / _T),
    "rx-t4-7": partial(_layers, "edp", 3 * _H * _I / _T),
    "rx-t4-8": partial(_activations, "pp", _B * _S * _H / (_T * _C), 2 * _BATCHES),
}
_OF_4 = (
    f"a step that Emu generates for Megatron-LM: H={_H}, I={_I}, V={_V}, L={_L}, K={_K}, hKV/hA={_KV:g}, B={_B}, S={_S}, "
    f"NB={_BATCHES}, T={_T}, C={_C}, E={_E}, D={_D}, P={_P}, an expert on each of E ranks; requests of a rank of a middle stage"
)


def _volume(cases: Callable[[], Iterator[FormulaCase]]) -> Answer:
    """Return Emu's value in the first case, and whether the step sends the volume of a row of table 4 as often as it says."""
    return check_formula(cases(), _OF_4)


_WORD, _DEVICE = "railx:torus:m=2,n=1,nodes=2x2", "h100"
_FLOPS, _ELEMENTS = 10**12, 2**25


def _step_s(*work: str) -> float:
    """Return the seconds of a step on all chips of a small RailX.

    Args:
        *work: The work of each chip in order: `comp` computes, `comm` is an all_reduce that is waited for, `beside N` N
            computations beside an all_reduce, `alone N` the same without it.
    """
    tape, n = Tape("bfloat16"), build_once(_WORD).n_npus
    for each in work:
        kind, _, number = each.partition(" ")
        asked = [tape.ask(Ask("dp", "all_reduce", _ELEMENTS, "bfloat16"))] if kind in ("comm", "beside") else []
        for _ in range(int(number or kind == "comp")):
            tape.compute(Computation("mm", _FLOPS, 0, 0))
        tape.join(*asked)
    group = Group("dp", tuple(range(n)))
    trace = Trace((tape.events(),), np.zeros(n, np.int32), (group,), ((0,),) * n, np.zeros((1, 4), np.int64))
    choice, device = Choice({"all_reduce": "ring"}), find_device(_DEVICE, "bfloat16")
    return time_trace(TraceLayout(trace, choice, build_once(_WORD), device, "bfloat16")).report.step_time_s


def _overlap() -> Iterator[FormulaCase]:
    """Yield the timed steps of equation 10, each with the formula's value from the times of its parts."""
    comp, comm = _step_s("comp"), _step_s("comm")
    for number in (1, 4, 16):
        beside = _step_s(f"alone {number}")
        whole = _step_s("comp", f"beside {number}", "comm")
        yield f"s, comp* {beside:.3g}, comm* {comm:.3g}", whole, comp + max(beside, comm) + comm


TRAINING: Mapping[str, Callable[[], Answer]] = {
    **{row: partial(_volume, cases) for row, cases in _VOLUMES.items()},
    "rx-eq10": lambda: check_formula(
        _overlap(), f"a computation, an all_reduce beside computations, and one that is waited for, on {_WORD}; parts alone"
    ),
}
