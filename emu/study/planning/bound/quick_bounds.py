"""Bounds of plans that are computed quickly: the time of the most frequent kind of layer, without recomputation.

A quick bound is not above the bound of `emu.study.planning.bound.bound`, which counts all parts and each setting. The quicker
of two is for software where one pass stands for plans of all microbatches. Where tiles fill all cores, a sequence takes no
longer in a pass of more sequences than in a pass of fewer: more share the fixed time of a pass (weights read, messages begun).
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
from emu.study.planning.bound.rates import Rates, UnplacedRequests
from emu.study.planning.bound.tape_paths import TapePaths

_CUT = 1e-3  # of a pass, more than what is rounded where its operators are shared out


class _Layers(NamedTuple):
    """The layers of one kind at each place of a pipeline."""

    own: F64  # [P] that it has
    before: F64  # [P] of the first stages of the places before it
    after: F64  # [P] of the smallest


@dataclass(eq=False)
class QuickBounds:
    """The quick bounds of the plans of one search."""

    outlines: Outlines
    rates: Sequence[Rates]  # of each topology
    _layers: dict[Hashable, _Layers] = field(default_factory=dict)
    _passes: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    _sequences: dict[Hashable, tuple[float, float]] = field(default_factory=dict)

    def quickly_s(self, plan: Plan) -> float:
        """Return a bound of a plan's step on all topologies, in seconds, by the time of a sequence in the largest passes.

        The bound is 0 where one pass does not stand for plans of all microbatches.
        """
        if self._ways.pass_settings(plan):
            return 0.0
        key = plan.layer_settings
        if key not in self._sequences:
            batch = plan.global_batch  # no pass has more
            largest = replace(plan, microbatch=batch, global_batch=plan.dp * plan.passes * batch)
            forward, backward = self._pass_s(self._filled, largest)
            self._sequences[key] = forward / batch * (1 - _CUT), backward / batch * (1 - _CUT)
        forward, backward = self._sequences[key]
        return self._step_s(plan, plan.pass_batch * forward, plan.pass_batch * backward)

    def seconds(self, plan: Plan) -> float:
        """Return a bound of a plan's step on all topologies, in seconds, by the time of its own passes."""
        key = self._ways.key(replace(plan, recompute="none"), self._kind)
        if key not in self._passes:
            self._passes[key] = self._pass_s(self._ways, plan)
        return self._step_s(plan, *self._passes[key])

    def _step_s(self, plan: Plan, forward: float, backward: float) -> float:
        """Return the bound of a step by the times of a forward and of a backward of a layer."""
        layers = self._of_places(plan)
        after = 0.0 * layers.after if plan.splits else layers.after
        takes = plan.passes * (forward + backward) * layers.own + forward * layers.before + backward * after
        return float(takes.max())

    @property
    def _ways(self) -> TapePaths:
        """The paths through tapes of the device."""
        return self.outlines.ways

    @cached_property
    def _filled(self) -> TapePaths:
        """The paths through tapes of a device whose cores are all busy to the end."""
        return type(self._ways)(self._ways.model, self._ways.stack, replace(self._ways.device, cores=0))

    @cached_property
    def _kind(self) -> str:
        """The most frequent kind of layer."""
        kinds = self._ways.model.kinds
        return max(dict.fromkeys(kinds), key=kinds.count)

    def _pass_s(self, ways: TapePaths, plan: Plan) -> tuple[float, float]:
        """Return the least times of a forward and of a backward of a layer; 0 if it cannot be generated."""
        try:
            turns = ways.of_layer(replace(plan, recompute="none"), self._kind)
        except InputError:  # it is told when the plan is looked at
            return 0.0, 0.0
        found = [turns.seconds(UnplacedRequests(rates, plan), 0) for rates in self.rates]
        return min(forward for forward, _, _ in found), min(min(backwards) for _, *backwards in found)

    def _of_places(self, plan: Plan) -> _Layers:
        """Return the layers at each place of a plan."""
        key = (plan.layers, plan.pp, plan.vp, plan.pipeline)
        if key not in self._layers:
            counts = self.outlines.cut(plan).counts[..., self.outlines.names.index(self._kind)]
            self._layers[key] = _Layers(counts.sum(axis=1), _before(counts[:, 0]), _before(counts.min(axis=1)))
        return self._layers[key]


def _before(counts: F64) -> F64:
    """Return [P] the sums of the values before each place."""
    return np.concatenate(([0.0], np.cumsum(counts)[:-1]))
