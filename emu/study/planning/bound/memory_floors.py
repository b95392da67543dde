"""A lower bound of the memory of a plan's ranks, computed by a formula instead of a tape.

It counts place 0 of a pipeline: weights, states of the optimizer, and what lives at one of three moments. At the first backward
these are what the forwards before it keep; at the optimizer, all gradients; and in between, what the forwards of a later
microbatch keep beside the gradients that earlier backwards have left. A silent tape counts more at each of these moments.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from typing import NamedTuple

from emu.dtypes import item_bytes
from emu.memo import kept_by
from emu.model.memory.layer_memory import LayerMemory
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.pipeline_order import BACKWARD, FORWARD, WEIGHT, Turn, turns
from emu.model.plan.plan import Plan
from emu.model.plan.stage_layers import part_names
from emu.model.routed_rows import about_even
from emu.model.stack.stack import Stack

_WINDOW = 8  # turns of each stage of all places, after the first backward, among which the later moment is looked for


class _PartBytes(NamedTuple):
    """The bytes that one part of the model needs on a rank: what a forward keeps, and what a backward makes."""

    kept: int  # bytes that a forward keeps
    parameters: int
    largest: int  # elements of its largest tensor
    made: int  # bytes of the gradients that a backward makes


class _PartCount(NamedTuple):
    """The number of copies of a part of the model at place 0, and of their forwards that still wait for their backwards."""

    name: str
    number: int  # on place 0
    kept_first: int  # at the first backward
    kept_later: int  # at a later moment, when the gradients of all parts live; 0: there is no such moment


@dataclass(eq=False)
class MemoryFloors:
    """The lower bounds of the memory of plans, for one model and one software, on the rank that needs the most."""

    model: Model
    stack: Stack

    def bytes(self, plan: Plan) -> int:
        """Return the lower bound of the memory of the fullest rank of a plan, in bytes."""
        own = [(each, self._part_bytes(plan, each.name)) for each in self._parts_of_place_0(plan)]
        elements, precision = sum(of_place.number * part.parameters for of_place, part in own), self.stack.precision
        shards = plan.stage_ranks if plan.exchanges else plan.holders  # those of experts are shared by others
        whole = elements // shards if plan.shards_weights else elements
        shared = max(part.largest for _, part in own) if self.stack.software.updates_tensors else elements // shards
        states = shared if plan.shards_only_optimizer else elements // shards if plan.shards_weights else elements
        return item_bytes(precision.weight) * whole + precision.kept_bytes * states + self._live(own, whole)

    def _live(self, own: Sequence[tuple[_PartCount, _PartBytes]], whole: int) -> int:
        """Return a lower bound of the largest number of bytes of gradients and kept activations together.

        Args:
            own: The parts of place 0.
            whole: The number of parameters whose gradients live at the end of the step.
        """
        kept = sum(of_place.kept_first * part.kept for of_place, part in own)
        gradients = item_bytes(self.stack.precision.gradient) * whole
        if self.stack.software.adds_gradients:  # they always live
            return kept + gradients
        together = sum(
            of_place.kept_later * part.kept + of_place.number * part.made for of_place, part in own if of_place.kept_later
        )
        return max(kept, gradients, together)

    @kept_by(lambda _, plan: (plan.layers, plan.pp, plan.vp, plan.pipeline, plan.passes, plan.shards_weights))
    def _parts_of_place_0(self, plan: Plan) -> Sequence[_PartCount]:
        """Return the parts of the model that the ranks at place 0 have, with their numbers."""
        stages = [Counter(part_names(plan, self.model, stage)) for stage in plan.stages_of(0)]
        every = sum(stages, Counter())
        found = _forwards_ahead(plan)

        def forwards(name: str) -> list[int]:
            return [sum(n * own[name] for n, own in zip(of, stages, strict=True)) for of in found]

        return [_PartCount(name, times, *forwards(name)) for name, times in every.items()]

    @kept_by(
        lambda _, plan, name: (name, plan.pass_batch, *plan.layer_settings, plan.recompute, plan.pp == 1, plan.shards_weights)
    )
    def _part_bytes(self, plan: Plan, name: str) -> _PartBytes:
        """Return the bytes of a part of the model, one of the names of `part_names`."""
        routed = (
            about_even(plan, self.model, name) if name in self.model.kinds and not self.stack.software.adds_gradients else None
        )
        piece = LayerMemory(self.model, plan, self.stack, name, routed)
        largest = max((size for operator in piece.operators for size in operator.sizes), default=0)
        summed = self.model.tied and name in (EMBEDDING, HEAD)  # two gradients of one table may be one
        made = 0 if summed else sum(map(piece.made_bytes, piece.operators))
        return _PartBytes(piece.kept, piece.parameters, largest, made)


def _forwards_ahead(plan: Plan) -> tuple[Sequence[int], Sequence[int]]:
    """Return, at two moments, the forwards of each stage of place 0 that still wait for their backwards.

    The first is the first backward. The second is the moment with most of them after each stage has had a backward; there are
    none at that moment if it does not come soon.
    """
    stages = plan.stages_of(0)
    begun = Counter(turn.stage for turn in takewhile(lambda turn: turn.what == FORWARD, _turns(plan)))
    live, ended, most = Counter[int](), Counter[int](), Counter[int]()
    for turn in islice(_turns(plan), begun.total() + _WINDOW * plan.pp * plan.vp):
        ends = turn.what in (BACKWARD, WEIGHT)
        live[turn.stage] += int(turn.what == FORWARD) - ends
        ended[turn.stage] += ends
        if plan.shards_weights and ended[turn.stage] == plan.passes:  # FSDP scatters the stage's gradients, which live no more
            break
        if all(ended[stage] for stage in stages) and live.total() > most.total():
            most = live.copy()
    return [begun[stage] for stage in stages], [most[stage] for stage in stages]


def _turns(plan: Plan) -> Iterator[Turn]:
    """Yield the turns of place 0, in their order."""
    return chain.from_iterable(turns(plan.pipeline, 0, plan.pp, plan.vp, plan.passes))
