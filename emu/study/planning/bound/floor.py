"""Bytes that a rank of a plan holds at least, without counting through its turns.

On place 0: weights, the optimizer's states, and what is kept of the forwards before the first backward, or all gradients as the
optimizer begins. `emu.model.generate.peak` has these at two of its moments, with more beside.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from emu.dtypes import item_bytes
from emu.model.memory.layer_memory import LayerMemory
from emu.model.model import Model
from emu.model.pipeline.turn import FORWARD
from emu.model.pipeline.turns import turns
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import part_names
from emu.model.stack.stack import Stack


class _Held(NamedTuple):
    """Of one part of the model on a rank."""

    kept: int  # bytes of a forward
    parameters: int
    largest: int  # elements of its largest tensor


class _Part(NamedTuple):
    """A part of the model on place 0."""

    name: str
    times: int
    forwards: int  # before the first backward, of all of them


@dataclass(eq=False)
class Floors:
    """Of the plans of one model by one software."""

    model: Model
    stack: Stack
    _pieces: dict[object, _Held] = field(default_factory=dict)
    _parts: dict[object, Sequence[_Part]] = field(default_factory=dict)

    def bytes(self, plan: Plan) -> int:
        """No rank that holds most holds less."""
        own = [(part, self._piece(plan, part.name)) for part in self._of_place(plan)]
        elements, precision = sum(part.times * piece.parameters for part, piece in own), self.stack.precision
        shards = plan.stage_ranks if plan.exchanges else plan.holders  # those of experts are shared by others
        whole = elements // shards if plan.sharding == "fsdp" else elements
        # PyTorch shares out whole parameters, Megatron-LM elements.
        shared = max(piece.largest for _, piece in own) if self.stack.software == "pytorch" else elements // shards
        states = {"ddp": elements, "zero1": shared, "fsdp": elements // shards}[plan.sharding]
        kept = sum(part.forwards * piece.kept for part, piece in own)
        beside = max(kept, item_bytes(precision.gradient) * whole)
        return item_bytes(precision.weight) * whole + precision.kept_bytes * states + beside

    def _of_place(self, plan: Plan) -> Sequence[_Part]:
        """What place 0 has."""
        key = (plan.layers, plan.pp, plan.vp, plan.pipeline, plan.passes)
        if key not in self._parts:
            stages = [Counter(part_names(plan, self.model, stage)) for stage in plan.stages_of(0)]
            ahead, every = _ahead(plan), sum(stages, Counter())
            forwards = {name: sum(n * own[name] for n, own in zip(ahead, stages, strict=True)) for name in every}
            self._parts[key] = [_Part(name, times, forwards[name]) for name, times in every.items()]
        return self._parts[key]

    def _piece(self, plan: Plan, name: str) -> _Held:
        key = (name, plan.pass_batch, plan.cut, plan.cp, plan.recompute, plan.cp_comm, plan.capacity, plan.pp == 1)
        if key not in self._pieces:
            piece = LayerMemory(self.model, plan, self.stack, name)
            largest = max((size for operator in piece.operators for size in operator.sizes), default=0)
            self._pieces[key] = _Held(piece.kept, piece.parameters, largest)
        return self._pieces[key]


def _ahead(plan: Plan) -> Sequence[int]:
    """Forwards of each stage of place 0 before the first backward."""
    if plan.pp == 1:
        return (1,)
    every = (turn for together in turns(plan.pipeline, 0, plan.pp, plan.vp, plan.passes) for turn in together)
    begun = Counter(turn.stage for turn in takewhile(lambda turn: turn.what == FORWARD, every))
    return [begun[stage] for stage in plan.stages_of(0)]
