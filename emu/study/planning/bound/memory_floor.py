"""A lower bound of the memory of a plan's ranks, computed without its turns.

The bound counts place 0: weights, states of the optimizer, and the larger of two: what the forwards before the first backward
keep, or all gradients at the optimizer. A silent tape counts more at these two moments.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from emu.dtypes import item_bytes
from emu.model.memory.layer_memory import LayerMemory
from emu.model.model import Model
from emu.model.pipeline.pipeline_order import FORWARD
from emu.model.pipeline.turns import turns
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import part_names
from emu.model.stack.stack import Stack

# Of a part of the model on a rank: the bytes that a forward keeps, the parameters, and the elements of its largest tensor.
_PartMemory = tuple[int, int, int]
_PartCount = tuple[str, int, int]  # of a part on place 0: its name, how often it is there, forwards before the first backward


@dataclass(eq=False)
class MemoryFloors:
    """The lower bounds of memory of the plans of one model by one software."""

    model: Model
    stack: Stack
    _pieces: dict[object, _PartMemory] = field(default_factory=dict)
    _parts: dict[object, Sequence[_PartCount]] = field(default_factory=dict)

    def bytes(self, plan: Plan) -> int:
        """Return the lower bound of the memory of the fullest rank of a plan, in bytes."""
        own = [(times, forwards, *self._piece(plan, name)) for name, times, forwards in self._of_place(plan)]
        elements, precision = sum(times * parameters for times, _, _, parameters, _ in own), self.stack.precision
        shards = plan.stage_ranks if plan.exchanges else plan.holders  # those of experts are shared by others
        whole = elements // shards if plan.shards_weights else elements
        shared = max(largest for *_, largest in own) if self.stack.software.updates_tensors else elements // shards
        states = shared if plan.shards_only_optimizer else elements // shards if plan.shards_weights else elements
        kept = sum(forwards * bytes_kept for _, forwards, bytes_kept, *_ in own)
        beside = max(kept, item_bytes(precision.gradient) * whole)
        return item_bytes(precision.weight) * whole + precision.kept_bytes * states + beside

    def _of_place(self, plan: Plan) -> Sequence[_PartCount]:
        """Return the parts of place 0."""
        key = (plan.layers, plan.pp, plan.vp, plan.pipeline, plan.passes)
        if key not in self._parts:
            stages = [Counter(part_names(plan, self.model, stage)) for stage in plan.stages_of(0)]
            ahead, every = _ahead(plan), sum(stages, Counter())
            forwards = {name: sum(n * own[name] for n, own in zip(ahead, stages, strict=True)) for name in every}
            self._parts[key] = [(name, times, forwards[name]) for name, times in every.items()]
        return self._parts[key]

    def _piece(self, plan: Plan, name: str) -> _PartMemory:
        """Return the memory of a part."""
        key = (name, plan.pass_batch, *plan.layer_settings, plan.recompute, plan.pp == 1)
        if key not in self._pieces:
            piece = LayerMemory(self.model, plan, self.stack, name)
            largest = max((size for operator in piece.operators for size in operator.sizes), default=0)
            self._pieces[key] = piece.kept, piece.parameters, largest
        return self._pieces[key]


def _ahead(plan: Plan) -> Sequence[int]:
    """Return the number of forwards of each stage of place 0 before the first backward."""
    if plan.pp == 1:
        return (1,)
    every = (turn for together in turns(plan.pipeline, 0, plan.pp, plan.vp, plan.passes) for turn in together)
    begun = Counter(turn.stage for turn in takewhile(lambda turn: turn.what == FORWARD, every))
    return [begun[stage] for stage in plan.stages_of(0)]
