"""The longest paths through the tapes of plans by Megatron-LM."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from emu.memo import kept_by
from emu.model.generate.item import Ask
from emu.model.generate.megatron.chunk import Buffer, Tensor, buffers_of, layers_of, leave_gradient, parts_of
from emu.model.generate.megatron.megatron_layer import MegatronLayer
from emu.model.generate.megatron.megatron_step import overlaps_messages
from emu.model.generate.tape import Tape
from emu.model.model import HEAD
from emu.model.plan.plan import Plan
from emu.model.plan.stage_layers import part_names
from emu.study.planning.step_paths.software_paths import EndPaths, HeldElements, LayerPaths, SoftwarePaths
from emu.study.planning.step_paths.tape_path import TapePath


class OverlappedRequests(NamedTuple):
    """Gradient and weight communication of one group of ranks with copies of a stage's parameters, beside the passes."""

    axis: str
    cleared_s: float  # seconds to set gradients to 0
    gather: Ask | None  # the request for the weights that are used first
    reduce: Ask | None  # the request that reduces the gradients that come last
    moved_s: float  # seconds to scale all of its gradients
    names: tuple[str, ...]  # parts of the stage, from the one on whose gradients come last


@dataclass(eq=False)
class MegatronPaths(SoftwarePaths):
    """The paths of plans whose software is Megatron-LM: the longest chains of computations and requests in each pass."""

    def _layer_paths(self, plan: Plan, name: str) -> LayerPaths:
        """Return the paths through the passes of one part of the model; all its backwards are alike."""
        layer = MegatronLayer(self.model, plan, self.stack, name)
        forward, backward = Tape(self.dtype), Tape(self.dtype)
        layer.forward(forward)
        layer.backward(backward, leave_gradient)
        later = self.path_of(backward)
        return self.path_of(forward), later, later

    @kept_by(lambda self, plan, name: (*self.key(plan, name), plan.copy_axes))
    def of_arrivals(self, plan: Plan, name: str) -> Mapping[str, TapePath]:
        """Return, for each axis, the path of a part's last backward until all gradients of that axis exist."""
        layer, tape, came = MegatronLayer(self.model, plan, self.stack, name), Tape(self.dtype), dict[str, Tape]()
        layer.backward(tape, lambda kernel: came.update({layer.axis(kernel): tape.copy()}))
        return {axis: self.path_of(each) for axis, each in came.items()}

    def waits(self, plan: Plan) -> bool:
        """Return whether the bound of a plan's step counts that a rank waits until its message to another place has left."""
        return not overlaps_messages(plan, self.stack)

    def _elements(self, plan: Plan, name: str) -> Mapping[str, int]:
        """Return the number of a part's parameters on a rank, by the axis of the ranks that have copies."""
        layer, found = MegatronLayer(self.model, plan, self.stack, name), Counter[str]()
        for kernel, size in layer.parameters():
            found[layer.axis(kernel)] += size
        return found or Counter(dp=sum(operator.parameters for operator in layer.operators))

    def _end_paths(self, plan: Plan, held: Sequence[HeldElements]) -> EndPaths:
        """Return the paths of a rank that first sets gradients to 0, and at the end reduces, scales, updates and gathers."""
        begun, tape, update = (Tape(self.dtype) for _ in range(3))
        buffers = self._buffers(tape, plan, held)
        owned = sum(buffer.owned for buffer in buffers)
        for buffer in buffers:
            replace(buffer, tape=begun).cleared()
            buffer.reduce()
        for each in (tape, update):
            self.update(each, plan, owned * (plan.clip > 0), owned)
        for buffer in buffers:
            buffer.gather()
        beside = self.stack.overlaps_gradients
        before, after = (self.path_of(each, beside=beside) for each in (begun, tape))
        return before, after, self.path_of(update) if beside else after

    def _buffers(self, tape: Tape, plan: Plan, held: Sequence[tuple[str, int, int]]) -> list[Buffer]:
        """Return one gradient buffer for each axis, with its ranks and its number of parameters, as a single bucket."""
        scattered = plan.shards_only_optimizer
        precision, narrow = self.stack.precision, self.stack.narrow_gather  # as if all were, where some weights are
        return [Buffer(tape, precision, axis, n, scattered, (Tensor(size),), gathers=narrow) for axis, n, size in held]

    def buffers_of_stage(self, plan: Plan, stage: int) -> Sequence[Buffer]:
        """Return the gradient buffers of a stage; after the first stage of the pipeline each buffer is one bucket.

        An exception is the stage of a tied head, whose weight has a bucket of its own.
        """
        model, tape = self.model, Tape(self.dtype)
        names = part_names(plan, model, stage)
        shares = HEAD in names and model.tied and plan.pp > 1  # a bucket of their own
        if stage and not shares:
            return self._buffers(tape, plan, self.held(plan, Counter(names)))
        return [*buffers_of(tape, layers_of(parts_of(model, plan, self.stack), stage), stage).values()]

    def overlapped(self, plan: Plan, number: int) -> tuple[OverlappedRequests, ...]:
        """Return the overlapped requests of a stage."""
        return self._overlapped(plan, part_names(plan, self.model, number), number)

    @kept_by(lambda _, plan, names, n: (*plan.layer_settings, *plan.sizes.values(), plan.sharding, plan.pp > 1, names, n == 0))
    def _overlapped(self, plan: Plan, names: tuple[str, ...], number: int) -> tuple[OverlappedRequests, ...]:
        """Return the overlapped requests of a stage with parts of these names."""
        return tuple(self._overlapped_of_buffer(plan, buffer, names) for buffer in self.buffers_of_stage(plan, number))

    def _overlapped_of_buffer(self, plan: Plan, buffer: Buffer, names: tuple[str, ...]) -> OverlappedRequests:
        """Return the overlapped requests of a buffer."""
        first = next(i for i, name in enumerate(names) if self.elements(plan, name).get(buffer.axis))
        asks, scattered, precision = buffer.ranks > 1, buffer.scattered, buffer.precision
        last = Ask(buffer.axis, "reduce_scatter" if scattered else "all_reduce", buffer.buckets[-1], precision.gradient)
        gather = buffer.weights(buffer.buckets[-1])
        moved_s = self.moved_s(2 * buffer.elements) if asks else 0.0
        cleared_s = self.moved_s(buffer.elements)
        return OverlappedRequests(
            buffer.axis, cleared_s, gather if asks and scattered else None, last if asks else None, moved_s, names[first:]
        )
