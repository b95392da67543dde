"""The requests of a block of experts: token rows to their experts and back, and through the ranks that share an expert.

Each rank has 1 / tp of the tokens. Their rows go to the ranks of `ep` that have their experts, and are gathered over `etp`;
the experts' outputs are scattered over `etp` and go back. The backward does the same in the other order. Before, all ranks
learn the number of rows of each expert, unless every expert is filled up to its capacity. Rows come by rank: where a rank has
several experts they are sorted by expert, and sorted back. Source: Megatron-LM, core_v0.10.0,
megatron/core/transformer/moe/token_dispatcher.py (alltoall).

Without sequence parallelism (which Megatron-LM requires to train experts under tp) the ranks of tp have the same tokens: the
rows that each got back are gathered there. Where they share every expert no row travels, and the outputs are added up.
"""

from dataclasses import dataclass
from functools import cached_property

from emu.model.generate.item import Ask, Computation
from emu.model.generate.part import Part
from emu.model.operator import PERMUTATION
from emu.model.stack.stack import Precision

_COUNT = "int64"  # of rows


@dataclass(frozen=True)
class Exchange:
    """The requests of one part; with uneven rows, those of the rank with the fullest expert."""

    part: Part

    @cached_property
    def elements(self) -> int:
        """The elements of the rows that a rank gives or takes, whichever are more: those of the first permutation."""
        if self.part.routed is not None:
            return self.part.routed.most * self.part.model.hidden
        return next(o.outputs.whole for o in self.part.operators if o.kind == PERMUTATION)

    def counted(self) -> list[Ask]:
        """Return the request for the number of rows of each expert on each rank; with a capacity all know it."""
        told = self._stays or self.part.plan.capacity
        axis = "" if told else "+".join(name for name in ("etp", "ep") if self.part.plan.sizes[name] > 1)
        ranks = self.part.plan.expert_tp * self.part.plan.ep
        return [Ask(axis, "all_gather", ranks * self.part.model.experts, _COUNT)] if axis else []

    def sorted(self) -> list[Computation]:
        """Return the copy of the rows that are here from the order of ranks to that of experts, or back, if any is needed."""
        several = self.part.model.experts > self.part.plan.ep
        elements = self.part.plan.expert_tp * self.elements if self.part.plan.exchanges and several else 0
        return [self.part.copied("sorted", elements)] if elements else []

    def there(self) -> list[Ask]:
        """Return the requests that bring rows to the experts, or the gradient of their outputs."""
        dtype = self._precision.dispatch or self._precision.activation
        return [*self._travel(dtype), *self._shared("all_gather", dtype)]

    def back(self) -> list[Ask]:
        """Return the requests that bring rows back from the experts, or the gradient of their inputs."""
        dtype = self._precision.activation
        return [*self._shared("reduce_scatter", dtype), *self._travel(dtype)]

    def _travel(self, dtype: str) -> list[Ask]:
        return [Ask("ep", "all_to_all", self.elements, dtype)] if self.part.plan.ep > 1 else []

    def _shared(self, operation: str, dtype: str) -> list[Ask]:
        etp = self.part.plan.expert_tp
        return [Ask("etp", operation, etp * self.elements, dtype)] if etp > 1 and not self._stays else []

    @property
    def _stays(self) -> bool:
        """True if rows stay where they are: the ranks of tp have the same tokens, and a share of every expert."""
        return not self.part.plan.sp and not self.part.plan.exchanges

    @property
    def _precision(self) -> Precision:
        return self.part.stack.precision
