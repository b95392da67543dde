"""The longest paths through the tapes of plans by PyTorch's own pieces."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from emu.memo import kept_by
from emu.model.generate.gradients import ExpertGradients, WholeGradients, run
from emu.model.generate.item import PARAMETER, Ask, Computation, Gradient, is_later
from emu.model.generate.part import Part
from emu.model.generate.rank_parts import RankParts
from emu.model.generate.rank_step import reduced_by
from emu.model.generate.stage_passes import StagePasses
from emu.model.generate.tape import Tape
from emu.model.memory.pass_memory import StageMemory
from emu.model.plan.plan import Plan
from emu.model.plan.stage_layers import part_names
from emu.model.routed_rows import classes
from emu.study.planning.step_paths.software_paths import EndPaths, HeldElements, LayerPaths, SoftwarePaths
from emu.study.planning.step_paths.tape_path import TapePath

_LATER = 2  # the number of a pass that is neither the first nor the last


@dataclass(eq=False)
class PytorchPaths(SoftwarePaths):
    """The paths of plans whose software is PyTorch: the longest chains of computations and requests in each pass."""

    reduces: ClassVar[bool] = True

    def pass_settings(self, plan: Plan) -> tuple[bool, ...]:
        """Return settings on which the passes of a layer depend, too: sharded weights, split backwards, and only one pass."""
        return plan.shards_weights, plan.splits, plan.passes == 1

    def _layer_paths(self, plan: Plan, name: str) -> LayerPaths:
        """Return the paths through the passes of one part of the model."""
        [(_, routed), *_] = classes(plan, self.model, 0, None)
        rows = routed(self.model.kinds.index(name), 0) if name in self.model.kinds else None
        part, tapes = Part(self.model, plan, self.stack, name, rows), [Tape(self.dtype) for _ in range(3)]
        for tape, pass_ in zip(tapes, (0, 0, 1), strict=True):
            experts = ExpertGradients(tape, plan, 0)
            experts.last = _LATER
            gradients, n = _UncountedGradients() if plan.shards_weights else WholeGradients(), _LATER + 1
            passes = StagePasses(tape, 0, ((part,),) * n, (StageMemory((part.memory,)),) * n, gradients, experts)
            if tape is tapes[0]:
                passes.write_forward(0)
            elif plan.splits:  # gradients of weights come later, each by itself
                items = [item for item in part.backward if not isinstance(item, Gradient)]
                run(tape, (item for item in items if not is_later(item)))
                run(tape, (item for item in items if isinstance(item, Computation) and item.later == PARAMETER))
            else:
                passes.write_backward(pass_ if not plan.shards_weights else 0)
        forward, first, later = map(self.path_of, tapes)
        return forward, first, later

    def reductions(self, plan: Plan, *, last: bool) -> tuple[TapePath, ...]:
        """Return [P] the paths of the requests beside the passes of each place; arguments as in `SoftwarePaths.reductions`."""
        return tuple(self._overlapped_at(plan, place, last=last) for place in range(plan.pp))

    def _overlapped_at(self, plan: Plan, place: int, *, last: bool) -> TapePath:
        """Return the path of the requests beside the passes of one place; arguments as in `reductions`."""
        numbers = plan.stages_of(place * plan.stage_ranks)
        asks = tuple(self._reduced_by(plan, place, number, part_names(plan, self.model, number)) for number in numbers)
        return self._joined(tuple(tuple(ask for ask in own if not last or ask.operation != "all_gather") for own in asks))

    @kept_by(lambda _, asks: asks)
    def _joined(self, asks: Sequence[Sequence[Ask]]) -> TapePath:
        """Return the path to the last of the requests of each stage, one stage after another."""
        tape = Tape(self.dtype)
        for own in asks:
            tape.join(*map(tape.ask, own))
        return self.path_of(tape)

    @kept_by(
        lambda _, plan, __, number, names: (
            names,
            number == 0,
            plan.layer_settings,
            plan.sharding,
            plan.holders,
            plan.shard_ranks < plan.dp,
            plan.copies > 1,
            plan.sizes["edp"],
            plan.splits,
            plan.ends_meet,
            plan.pp > 1,
        )
    )
    def _reduced_by(self, plan: Plan, place: int, number: int, names: Sequence[str]) -> Sequence[Ask]:
        """Return the requests beside the passes of a stage at a place, with parts of these names."""
        [(_, routed), *_] = classes(plan, self.model, place, None)
        return tuple(reduced_by(RankParts(self.model, plan, self.stack, routed, place), number))

    def _elements(self, plan: Plan, name: str) -> Mapping[str, int]:
        """Return the number of a part's parameters on a rank; all are copied over dp."""
        return Counter(dp=sum(operator.parameters for operator in Part(self.model, plan, self.stack, name).operators))

    def _end_paths(self, plan: Plan, held: Sequence[HeldElements]) -> EndPaths:
        """Return the longest paths of a rank before its first pass and after its last; the optimizer updates an even share."""
        tape, own = Tape(self.dtype), sum(size for _, _, size in held) // plan.shard_ranks
        self.update(tape, plan, own * (plan.clip > 0 and plan.shards_weights), own)
        before, after = (self.path_of(each, beside=self.stack.overlaps_gradients) for each in (Tape(self.dtype), tape))
        return before, after, after


class _UncountedGradients(WholeGradients):
    """Gradients of FSDP without the time of their reduction, because it overlaps with the computation."""

    def handle(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """Do nothing: the reduction of a gradient overlaps with the passes, and their paths leave it out."""
