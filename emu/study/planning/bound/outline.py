"""A time that no step of a plan beats, computed without generating the step.

A step is a graph: tasks begin after others ended. Here times are left out or made shorter, never longer, and waits are left
out. So the longest path through the rest ends no later than the step, even if other tasks share links or wait. The proof is by
induction in the order of time: each task ends no earlier than the longest path to it. The bound counts:

- The passes of a stage take the passes of its layers (`software_paths`), one after another. Their requests take
  the least time of any NPU for the bytes that it sends and receives (`least_times`), or of one of their ranks
  (`emu.fabric.floor`).
- A step may contain the messages of every rank of a stage. Then each time here is that of the first rank of the stage to come
  so far: all ranks do the same, each enters a request no sooner than the first, and leaves it no sooner than the least after.
- The rank at place p of a pipeline begins when the stages before it have passed one microbatch on. Then it takes all its
  passes, and ends its step. Where backwards are whole, its last one is followed by those of the stages before it, too.

`pipeline_chart` counts more.

P places, V stages of each, S stages, K kinds of parts of the model, H kinds of places by their parts.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from emu.arrays import F64
from emu.dtypes import item_bytes
from emu.model.plan.plan import Plan
from emu.model.stack.software import MEGATRON, PYTORCH, Software
from emu.study.planning.request_times.least_times import LeastTimes
from emu.study.planning.step_paths.megatron_paths import MegatronPaths
from emu.study.planning.step_paths.pytorch_paths import PytorchPaths
from emu.study.planning.step_paths.software_paths import EndPaths, LayerPaths, SoftwarePaths, StageCut
from emu.study.planning.step_paths.tape_path import TapePath, times_s

T = TypeVar("T")
PATHS: Mapping[Software, type[SoftwarePaths]] = {PYTORCH: PytorchPaths, MEGATRON: MegatronPaths}
_NOTHING = (0.0, 0.0, 0.0)  # times of the passes of a part that a place does not have
ROUNDED = 1e-9  # share by which a bound is lowered, as times are rounded to ticks


@dataclass(frozen=True, eq=False, slots=True)
class Outline:
    """The facts of a plan's lower bound that its placement does not change: the paths through each stage and its messages."""

    plan: Plan
    cut: StageCut
    pass_paths: tuple[LayerPaths, ...]  # [K] the paths of the passes of each kind of part
    ends: tuple[EndPaths, ...]  # [H] the paths before and after all passes, of each kind of place
    message_bytes: int  # bytes of a message between two stages
    waits: bool  # whether a rank waits until a message has left it
    reductions: tuple[TapePath, ...] = ()  # [P] the reductions of gradients in the last backward; (): `ends` has them

    @staticmethod
    def of(paths: SoftwarePaths, plan: Plan) -> "Outline":
        """Return the outline of a plan, with the paths of the plan's software.

        Raises:
            InputError: the plan cannot be generated.
        """
        cut, share = paths.cut(plan), paths.stack.boundary_share(plan.tp, sp=plan.sp)
        size = plan.pass_batch * plan.rank_seq * paths.model.hidden // share * item_bytes(paths.dtype)
        pass_paths = tuple(paths.of_layer(plan, name) for name in paths.names)
        parameters = [paths.held(plan, dict(zip(paths.names, counts, strict=True))) for counts in cut.held.tolist()]
        ends = tuple(paths.of_ends(plan, of_kind) for of_kind in parameters)
        return Outline(plan, cut, pass_paths, ends, size, paths.waits(plan), paths.reductions(plan, last=True))

    def seconds(self, least: LeastTimes) -> float:
        """Return the lower bound of the plan's step in seconds, by the least times of its requests.

        Args:
            least: Those of any placement, or of the placement that is bounded.
        """
        plan = self.plan
        spans = self.spans(least)
        works = spans.sum(axis=1) @ np.array([plan.passes, 1, plan.passes - 1])
        before, after, _ = np.array(self.ends_s(least)).T
        reduced = after + self._reduced_s(least, spans)
        if plan.pp > 1:
            sent, back = self.messages(least)
            before = np.maximum(before, before[0] + _arrival_times(spans[:-1, 0, 0] + sent[:-1, 1]))
            if not plan.splits:
                after = np.maximum(after, _arrival_times(spans[:-1, 0, 1:].min(axis=1) + back[1:, 1]) + after[0])
            works += self._sent_s(sent[:, 0], back[:, 0])
        return float((before + works + np.maximum(after, reduced)).max()) * (1 - ROUNDED)

    def _reduced_s(self, least: LeastTimes, spans: F64) -> F64:
        """Return [P] the seconds by which the reductions of gradients end after the last backward, at each place."""
        took = [path.seconds(least, place) for place, path in enumerate(self.reductions)]
        last = spans[..., 1 if self.plan.passes == 1 else 2].sum(axis=1)
        return np.array(took) - last if took else np.zeros(self.plan.pp)

    def spans(self, least: LeastTimes) -> F64:
        """Return [P, V, 3] the seconds of the forward, the first backward and a later backward of each stage."""
        return np.asarray(self.cut.counts @ np.array(self._of_places(least, self._parts_s)))

    def _of_places(self, least: LeastTimes, of_place: Callable[[LeastTimes, int, int], T]) -> list[T]:
        """Return [P] a value for each place of the pipeline.

        It is computed once for places with equal layers and equal times of requests.

        Args:
            least: The least times of requests.
            of_place: A function of these times, a place and its kind (a row of `StageCut.held`), which computes the value.
        """
        known = dict[Hashable, T]()
        keys = [(least.place_key(place), kind) for place, kind in enumerate(self.cut.holds)]
        for place, key in enumerate(keys):
            if key not in known:
                known[key] = of_place(least, place, key[1])
        return [known[key] for key in keys]

    def _parts_s(self, least: LeastTimes, place: int, kind: int) -> list[Sequence[float]]:
        """Return [K, 3] the seconds of the passes of each kind of part of the model, at one place of the pipeline."""
        has = self.cut.held[kind] > 0
        return [times_s(paths, least, place) if own else _NOTHING for paths, own in zip(self.pass_paths, has, strict=True)]

    def ends_s(self, least: LeastTimes) -> list[list[float]]:
        """Return [P, 3] the seconds that each place needs before its passes, after them, and after them without overlap."""
        return self._of_places(least, lambda least, place, kind: times_s(self.ends[kind], least, place))

    def _sent_s(self, onward_s: F64, back_s: F64) -> F64:
        """Return [P] the seconds that a rank waits for its messages to leave, without the last message.

        Args:
            onward_s: [P] the seconds until a message to the next place has left.
            back_s: [P] the same for a message to the place before.
        """
        if not self.waits:
            return np.zeros(self.plan.pp)
        stages = self.cut.stages
        sends_on, sends_back = (stages < stages.size - 1).sum(axis=1), (stages > 0).sum(axis=1)  # [P] stages that do
        most = np.maximum(onward_s * (sends_on > 0), back_s * (sends_back > 0))
        return np.asarray(self.plan.passes * (sends_on * onward_s + sends_back * back_s) - most)

    def messages(self, least: LeastTimes) -> F64:
        """Return [2, P, 2] the least seconds of a message between neighbouring places of a pipeline of P places.

        The first axis is the direction: to the next place, or to the previous one. The second is the sender. The third is the
        seconds until the message has left, and until it is delivered.
        """
        found = [least.messages(to, self.message_bytes) for to in (1, -1)]
        return np.array([[(each.left_s, each.delivered_s) for each in way] for way in found])


def _arrival_times(steps: F64) -> F64:
    """Return [P] the time at which a value that is passed along the pipeline reaches each place.

    Args:
        steps: [P - 1] the seconds of each hop.
    """
    return np.concatenate(([0.0], np.cumsum(steps)))
