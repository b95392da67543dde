"""A bound that is quickly known: what the layers take that a model has most of, if nothing were worked out again.

Of Megatron-LM's lists only. It is not above that of `emu.study.planning.bound.bound`, which counts all parts, and each setting.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from emu.arrays import F64
from emu.errors import InputError
from emu.model.plan.plan import Plan
from emu.study.planning.bound.bound import Outlines
from emu.study.planning.bound.rates import Anywhere, Rates


class _Layers(NamedTuple):
    """Of one kind at each place of a pipeline."""

    own: F64  # [P] that it has
    before: F64  # [P] of the first stages of the places before it
    after: F64  # [P] of the smallest


@dataclass(eq=False)
class Works:
    """Of the plans of one search."""

    outlines: Outlines
    rates: Sequence[Rates]  # of each topology
    _layers: dict[Hashable, _Layers] = field(default_factory=dict)
    _passes: dict[Hashable, tuple[float, float]] = field(default_factory=dict)

    def seconds(self, plan: Plan) -> float:
        """No step takes less on any of the topologies."""
        if not self.outlines.ways.is_megatron:
            return 0.0
        key = (plan.pass_batch, plan.tp, plan.cp, plan.cp_comm, plan.sp, plan.ep, plan.etp, plan.capacity)
        if key not in self._passes:
            self._passes[key] = self._pass_s(plan)
        forward, backward = self._passes[key]
        layers = self._of_places(plan)
        takes = plan.passes * (forward + backward) * layers.own + forward * layers.before + backward * layers.after
        return float(takes.max())

    @cached_property
    def _kind(self) -> str:
        kinds = self.outlines.ways.model.kinds
        return max(dict.fromkeys(kinds), key=kinds.count)

    def _pass_s(self, plan: Plan) -> tuple[float, float]:
        """A forward and a backward of a layer."""
        try:
            turns = self.outlines.ways.of_layer(replace(plan, recompute="none"), self._kind)
        except InputError:  # it is told when the plan is looked at
            return 0.0, 0.0
        found = [turns.seconds(Anywhere(rates, plan), 0) for rates in self.rates]
        return min(forward for forward, _, _ in found), min(later for _, _, later in found)

    def _of_places(self, plan: Plan) -> _Layers:
        key = (plan.layers, plan.pp, plan.vp, plan.pipeline)
        if key not in self._layers:
            counts = self.outlines.cut(plan).counts[..., self.outlines.names.index(self._kind)]
            self._layers[key] = _Layers(counts.sum(axis=1), _before(counts[:, 0]), _before(counts.min(axis=1)))
        return self._layers[key]


def _before(counts: F64) -> F64:
    return np.concatenate(([0.0], np.cumsum(counts)[:-1]))
