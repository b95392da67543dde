"""The longest paths through the tapes of a plan's layers, and through the beginning and end of its step, on one rank.

The passes of a layer are generated like those of the step, and take at least the longest path. Computations follow one another
on a rank, and each takes the time of the device. Events that may overlap are left out: gradients of FSDP, and the requests of
a stack that overlaps them.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.collective.operation import ROOTED
from emu.memo import kept_by
from emu.model.generate.gradients import gradient_work
from emu.model.generate.item import Ask
from emu.model.generate.part import Part
from emu.model.generate.states import adamw
from emu.model.generate.tape import Tape
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.plan.plan import Plan
from emu.model.plan.stage_layers import part_names
from emu.model.stack.stack import Stack
from emu.study.planning.request_times.rates import ranks_of
from emu.study.planning.step_paths.tape_path import TapePath
from emu.trace.device.device import Device
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.steps import computes, queue_order
from emu.trace.trace import Events, Kind

# The paths through a layer's forward, its first backward, and that of another microbatch, which adds to the gradients.
LayerPaths = tuple[TapePath, TapePath, TapePath]
# The paths through the events of a step before a rank's passes, through those after them, and through those of the latter that
# cannot overlap with its passes.
EndPaths = tuple[TapePath, TapePath, TapePath]
HeldElements = tuple[str, int, int]  # an axis, the ranks of its groups, and the parameters of which they have copies


class StageCut(NamedTuple):
    """The cut of a model into stages: P places, V stages of each, K kinds of parts, H kinds of places by their parts."""

    stages: I64  # [P, V] the numbers of the stages of each place
    counts: F64  # [P, V, K] how many parts of each kind each stage has
    held: I64  # [H, K] how many parts of each kind a place has, for each kind of place
    holds: tuple[int, ...]  # [P] the kind of each place, a row of `held`


@dataclass(eq=False)
class SoftwarePaths(ABC):
    """The longest paths of all plans of one model, software and device; a subclass has the tapes of one software."""

    reduces: ClassVar[bool] = False  # whether gradients are reduced beside passes, as `reductions` says
    model: Model
    stack: Stack
    device: Device

    @cached_property
    def names(self) -> tuple[str, ...]:
        """[K] names of the kinds of parts: the embedding, each kind of layer once, and the head."""
        return tuple(dict.fromkeys((EMBEDDING, *self.model.kinds, HEAD)))

    @kept_by(lambda _, plan: (plan.layers, plan.pp, plan.vp, plan.pipeline))
    def cut(self, plan: Plan) -> StageCut:
        """Return the cut of the model into a plan's stages."""
        stages = np.array([plan.stages_of(place * plan.stage_ranks) for place in range(plan.pp)])
        parts = [part_names(plan, self.model, number) for number in range(plan.stages)]
        counts = np.array([[own.count(name) for name in self.names] for own in parts])[stages]
        held, holds = np.unique(counts.sum(axis=1), axis=0, return_inverse=True)
        return StageCut(stages, counts.astype(np.float64), held, tuple(holds.tolist()))

    @kept_by(lambda self, plan, name: self.key(plan, name))
    def of_layer(self, plan: Plan, name: str) -> LayerPaths:
        """Return the paths of the passes of a part of the model, one of `names`."""
        return self._layer_paths(plan, name)

    @kept_by(lambda _, plan, held: (held, plan.sharding, plan.shard_ranks, plan.clip > 0, plan.tp))
    def of_ends(self, plan: Plan, held: Sequence[HeldElements]) -> EndPaths:
        """Return the paths before the first pass and after the last, for a rank that holds the given parameters."""
        return self._end_paths(plan, held)

    def held(self, plan: Plan, parts: Mapping[str, int]) -> tuple[HeldElements, ...]:
        """Return the numbers of parameters of a rank with these parts of the model, by the axis of the ranks with copies."""
        found, sizes = Counter[str](), plan.sizes
        for name, n in parts.items():
            found.update({axis: n * size for axis, size in self.elements(plan, name).items()})
        return tuple((axis, ranks_of(sizes, axis), size) for axis, size in found.items())

    def key(self, plan: Plan, name: str) -> tuple[object, ...]:
        """Return a key that is equal for plans in which the passes of the named part are equal."""
        again = "none" if name in (EMBEDDING, HEAD) else plan.recompute
        ends = (plan.pp == 1, plan.ends_meet) if self.model.tied else ()
        return (name, plan.pass_batch, *plan.layer_settings, again, *ends, *self.pass_settings(plan))

    @kept_by(lambda _, plan, name: (name, *plan.layer_settings, plan.copy_axes, plan.pp > 1, plan.ends_meet))
    def elements(self, plan: Plan, name: str) -> Mapping[str, int]:
        """Return the number of a part's parameters on a rank, by the axis of the ranks with copies of them."""
        return self._elements(plan, name)

    def pass_settings(self, plan: Plan) -> tuple[bool, ...]:
        """Return further settings on which the passes of a layer depend.

        The tuple is empty if there are none. Then the time of one pass serves plans of all microbatches
        (`QuickBounds.by_sequence_s`).
        """
        return ()

    def waits(self, plan: Plan) -> bool:
        """Return whether the bound of a plan's step counts that a rank waits until its message to another place has left."""
        return False

    def reductions(self, plan: Plan, *, last: bool) -> tuple[TapePath, ...]:
        """Return [P] the paths of the requests that overlap with the passes of each place; empty if there are none.

        Args:
            plan: The plan of the ranks.
            last: Only reductions of gradients, which need the last backward; else also the gathering of weights.

        Raises:
            InputError: the plan cannot be generated.
        """
        return ()

    @abstractmethod
    def _layer_paths(self, plan: Plan, name: str) -> LayerPaths:
        """Return the paths through the passes of one part of the model."""

    @abstractmethod
    def _end_paths(self, plan: Plan, held: Sequence[HeldElements]) -> EndPaths:
        """Return the paths of a rank before and after its passes."""

    @abstractmethod
    def _elements(self, plan: Plan, name: str) -> Mapping[str, int]:
        """Return the number of parameters that a layer has on a rank, by the axis of the ranks with copies."""

    def moved_s(self, elements: int) -> float:
        """Return the seconds of the memory traffic of this number of gradients."""
        tape = Tape(self.dtype)
        tape.compute(gradient_work(self.stack.precision, elements))
        return float(self.device.seconds(tape.events(), "float32").sum())

    @property
    def dtype(self) -> str:
        """The dtype of computations."""
        return self.stack.precision.activation

    def path_of(self, tape: Tape, *, beside: bool = False) -> TapePath:
        """Return the longest path of a tape; with `beside`, requests take no time, because they overlap."""
        events, axes = tape.events(), list(tape.axes)
        asked = [] if beside else np.flatnonzero(np.isin(events.kind, [Kind.COLLECTIVE, Kind.SEND, Kind.RECV])).tolist()
        asks = [
            Ask(
                axes[events.group[i]],
                events.name[i] if events.kind[i] == Kind.COLLECTIVE else MESSAGE,
                int(events.count[i]),
                events.dtype[i],
                splits=tuple(events.split[events.split_start[i] : events.split_start[i + 1]].tolist()),
            )
            for i in asked
        ]
        return TapePath(
            self.device.seconds(events, "float32").tolist(),
            list(zip(asked, asks, strict=True)),
            {i for i in asked if events.kind[i] == Kind.SEND},
            computes(events).tolist(),
            events.stream.tolist(),
            _waits(events),
        )

    def update(self, tape: Tape, plan: Plan, scaled: int, owned: int) -> None:
        """Add the scaling of gradients and the optimizer to a tape.

        Args:
            tape: The tape.
            plan: The plan.
            scaled: The number of gradients that the rank scales.
            owned: The number of parameters that the rank updates.
        """
        tape.compute(gradient_work(self.stack.precision, 2 * scaled))
        tape.compute(adamw(tape, Part(self.model, plan, self.stack, HEAD), owned))


def _waits(events: Events) -> list[list[int]]:
    """Return, for each event, the events it waits for: those of the tape, and the previous request of its queue."""
    found = [own.tolist() for own in np.split(events.wait, events.wait_start[1:-1])]
    for event, before in zip(*(each.tolist() for each in queue_order(events)), strict=True):
        found[event] += [before] * (events.name[before] not in ROOTED)
    return found
