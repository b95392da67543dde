"""Bytes that a rank of a plan holds at least, without counting through its turns.

On place 0: weights, the optimizer's states, and what is kept of the forwards before the first backward, or all gradients as the
optimizer begins. `emu.model.peak` has these at two of its moments, with more beside.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from typing import NamedTuple

from emu.dtypes import item_bytes
from emu.model.fits import part_names
from emu.model.model import Model
from emu.model.piece import Piece
from emu.model.plan import Plan
from emu.model.stack import Stack
from emu.model.turn import FORWARD
from emu.model.turns import turns


class _Held(NamedTuple):
    """Of one part of the model on a rank."""

    kept: int  # bytes of a forward
    parameters: int
    largest: int  # elements of its largest tensor


@dataclass(eq=False)
class Floors:
    """Of the plans of one model by one software."""

    model: Model
    stack: Stack
    _pieces: dict[object, _Held] = field(default_factory=dict)

    def bytes(self, plan: Plan) -> int:
        """No rank that holds most holds less."""
        names = [part_names(plan, self.model, stage) for stage in plan.stages_of(0)]
        stages = [[self._piece(plan, name) for name in of_stage] for of_stage in names]
        pieces = [piece for stage in stages for piece in stage]
        elements, precision = sum(piece.parameters for piece in pieces), self.stack.precision
        shards = plan.stage_ranks if plan.exchanges else plan.holders  # those of experts are shared by others
        whole = elements // shards if plan.sharding == "fsdp" else elements
        # PyTorch shares out whole parameters, Megatron-LM elements.
        shared = max(piece.largest for piece in pieces) if self.stack.software == "pytorch" else elements // shards
        states = {"ddp": elements, "zero1": shared, "fsdp": elements // shards}[plan.sharding]
        kept = sum(times * sum(p.kept for p in stage) for times, stage in zip(_ahead(plan), stages, strict=True))
        beside = max(kept, item_bytes(precision.gradient) * whole)
        return item_bytes(precision.weight) * whole + precision.kept_bytes * states + beside

    def _piece(self, plan: Plan, name: str) -> _Held:
        key = (name, plan.pass_batch, plan.cut, plan.cp, plan.recompute, plan.cp_comm, plan.capacity, plan.pp == 1)
        if key not in self._pieces:
            piece = Piece(self.model, plan, self.stack, name)
            largest = max((size for operator in piece.operators for size in operator.sizes), default=0)
            self._pieces[key] = _Held(piece.kept, piece.parameters, largest)
        return self._pieces[key]


def _ahead(plan: Plan) -> Sequence[int]:
    """Forwards of each stage of place 0 before the first backward."""
    return _forwards(plan.pipeline, plan.pp, plan.vp, plan.passes) if plan.pp > 1 else (1,)


@cache
def _forwards(order: str, places: int, virtual: int, microbatches: int) -> tuple[int, ...]:
    every = (turn for together in turns(order, 0, places, virtual, microbatches) for turn in together)
    begun = [turn.stage for turn in takewhile(lambda turn: turn.what == FORWARD, every)]
    stages = sorted({turn.stage for together in turns(order, 0, places, virtual, microbatches) for turn in together})
    return tuple(begun.count(stage) for stage in stages)
