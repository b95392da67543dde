"""The parts of a model on one rank, by stage of the pipeline and microbatch."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from emu.model.generate.part import Part
from emu.model.memory.layer_memory import LayerMemory
from emu.model.memory.step_memory import RankMemory
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.plan.plan import Plan
from emu.model.plan.stage_layers import stage_layers
from emu.model.routed_rows import RoutedOf, RoutedRows
from emu.model.stack.stack import Stack


@dataclass(frozen=True)
class RankParts:
    """The parts of a model (embedding, layers, head) on a rank of a plan; equal parts are one object."""

    model: Model
    plan: Plan
    stack: Stack
    routed: RoutedOf
    place: int = 0  # of the rank in its pipeline
    at: int = 0  # ... and in its group of context parallelism
    made: dict[tuple[str, RoutedRows | None], Part] = field(default_factory=dict)

    @cached_property
    def stages(self) -> dict[int, tuple[tuple[Part, ...], ...]]:
        """The parts of each stage for each microbatch."""
        return {n: tuple(self.of_pass(n, pass_) for pass_ in range(self.plan.passes)) for n in self.memory.stages}

    @cached_property
    def first(self) -> tuple[Part, ...]:
        """The parts of the first microbatch, stage after stage."""
        return tuple(part for stage in self.memory.stages for part in self.of_pass(stage, 0))

    @cached_property
    def memory(self) -> RankMemory:
        """The memory that the rank stores during the whole step."""
        own = self.plan.stages_of(self.place * self.plan.stage_ranks)
        return RankMemory(self.plan, self.stack, {n: memory_of(self.of_pass(n, 0)) for n in own})

    def of_pass(self, stage: int, pass_: int) -> tuple[Part, ...]:
        """Return the parts of a stage for microbatch `pass_`, in the order of the model; only routed rows differ by it."""
        sizes, kinds = stage_layers(self.plan, self.model), self.model.kinds
        first = sum(sizes[:stage])
        return (
            *([self._part(EMBEDDING)] if stage == 0 else []),
            *(self._part(kinds[layer], self.routed(layer, pass_)) for layer in range(first, first + sizes[stage])),
            *([self._part(HEAD)] if stage == self.plan.stages - 1 else []),
        )

    def _part(self, name: str, routed: RoutedRows | None = None) -> Part:
        if (name, routed) not in self.made:
            self.made[name, routed] = Part(self.model, self.plan, self.stack, name, routed, self.at)
        return self.made[name, routed]


def memory_of(parts: Iterable[Part]) -> tuple[LayerMemory, ...]:
    """Return the memory of each part."""
    return tuple(part.memory for part in parts)
