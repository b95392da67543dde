"""The fast lower bounds of plans, which are valid in any placement.

A quick bound counts the most frequent kind of layer. It is not above the bound of `emu.study.planning.bound.outline`, which
counts all parts. `by_sequence_s` takes one pass for all microbatches, `by_own_passes_s` the passes of the plan. Where tiles
fill all cores, a sequence takes no longer in a pass of more sequences than in a pass of fewer, as more sequences share the
fixed time of a pass (weights read, messages begun).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from emu.arrays import F64
from emu.errors import InputError
from emu.memo import kept_by
from emu.model.plan.plan import Plan
from emu.study.planning.request_times.least_times import LeastTimes
from emu.study.planning.request_times.rates import Rates
from emu.study.planning.step_paths.software_paths import SoftwarePaths
from emu.study.planning.step_paths.tape_path import times_s

_CUT = 1e-3  # share by which the time of a sequence is lowered, as operators are rounded


@dataclass(eq=False)
class QuickBounds:
    """The fast lower bounds of plans, valid in any placement and on all topologies of a search."""

    paths: SoftwarePaths  # the paths of the model's parts on the device
    rates: Sequence[Rates]  # of each topology

    def by_sequence_s(self, plan: Plan) -> float:
        """Return a bound of a plan's step, in seconds, by the least time of a sequence in a pass of any number of sequences."""
        forward, backward = self._sequence_s(plan)
        return self._step_s(plan, plan.pass_batch * forward, plan.pass_batch * backward)

    def by_own_passes_s(self, plan: Plan) -> float:
        """Return a lower bound of a plan's step in seconds, from the time of a forward and a backward of its microbatches."""
        return self._step_s(plan, *self._own_pass_s(plan))

    @kept_by(lambda self, plan: (*plan.layer_settings, plan.recompute, *self.paths.pass_settings(plan)))
    def _sequence_s(self, plan: Plan) -> tuple[float, float]:
        """Return the least seconds of one sequence in a layer's forward and in its backward, at the largest pass size."""
        batch = plan.global_batch  # no pass has more
        largest = replace(plan, microbatch=batch, global_batch=plan.dp * plan.passes * batch)
        forward, backward = self._pass_s(self._filled, largest)
        return forward / batch * (1 - _CUT), backward / batch * (1 - _CUT)

    @kept_by(
        lambda self, plan: (
            plan.pass_batch,
            *plan.layer_settings,
            plan.recompute,
            plan.pp == 1,
            plan.ends_meet,
            *self.paths.pass_settings(plan),
        )
    )
    def _own_pass_s(self, plan: Plan) -> tuple[float, float]:
        """Return the least seconds of a forward and of a backward of a layer in the plan's own passes."""
        return self._pass_s(self.paths, plan)

    def _step_s(self, plan: Plan, forward: float, backward: float) -> float:
        """Return the bound of a step in seconds, by the seconds of a forward and of a backward of a layer."""
        own, before, smallest = self._layers_by_place(plan)
        after = 0.0 * smallest if plan.splits else smallest
        takes = plan.passes * (forward + backward) * own + forward * before + backward * after
        return float(takes.max())

    @cached_property
    def _filled(self) -> SoftwarePaths:
        """The paths on an ideal device whose cores are always all busy, so that no partial waves of tiles are left."""
        return type(self.paths)(self.paths.model, self.paths.stack, replace(self.paths.device, cores=0))

    @cached_property
    def _kind(self) -> str:
        """The most frequent kind of layer."""
        kinds = self.paths.model.kinds
        return max(dict.fromkeys(kinds), key=kinds.count)

    def _pass_s(self, paths: SoftwarePaths, plan: Plan) -> tuple[float, float]:
        """Return the least seconds of a forward and of a backward of a layer on any topology; 0 if it cannot be generated."""
        try:
            path = paths.of_layer(plan, self._kind)
        except InputError:  # `anywhere_s` refuses the plan later
            return 0.0, 0.0
        found = [times_s(path, LeastTimes(rates, plan), 0) for rates in self.rates]
        return min(forward for forward, _, _ in found), min(min(backwards) for _, *backwards in found)

    @kept_by(lambda _, plan: (plan.layers, plan.pp, plan.vp, plan.pipeline))
    def _layers_by_place(self, plan: Plan) -> tuple[F64, F64, F64]:
        """Return numbers of layers for each place, each [P].

        Returns:
            The layers of the place; those of the first stages of all places before it; and those of the smallest stages of all
            places before it.
        """
        counts = self.paths.cut(plan).counts[..., self.paths.names.index(self._kind)]
        return counts.sum(axis=1), _sums_before(counts[:, 0]), _sums_before(counts.min(axis=1))


def _sums_before(counts: F64) -> F64:
    """Return [P] for each place of a pipeline the sum of the values of all places before it."""
    return np.concatenate(([0.0], np.cumsum(counts)[:-1]))
