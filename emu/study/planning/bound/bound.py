"""A time that no step of a plan beats, computed without generating the step.

A step is a graph: tasks begin after others ended. Here times are left out or made shorter, never longer, and waits are left
out. So the longest path through the rest ends no later than the step, even if other tasks share links or wait. The proof is by
induction in the order of time: each task ends no earlier than the longest path to it. The bound counts:

- The passes of a stage take the passes of its layers (`tape_paths`, beside this file), one after another. Their requests take
  the least time of any NPU for the bytes that it sends and receives (`rates`), or of a rank of theirs (`emu.fabric.floor`).
- A step may contain the messages of every rank of a stage. Then each time here is that of the first rank of the stage to come
  so far: all ranks do the same, each enters a request no sooner than the first, and leaves it no sooner than the least after.
- The rank at place p of a pipeline begins when the stages before it have passed one microbatch on. Then it takes all its
  passes, and ends its step. Where backwards are whole, its last one is followed by those of the stages before it, too.

P places, V stages of each, S stages, K kinds of parts of the model, H kinds of places by their parts.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from emu.arrays import F64
from emu.dtypes import item_bytes
from emu.model.plan.plan import Plan
from emu.model.stack.megatron import MEGATRON
from emu.model.stack.pytorch import PYTORCH
from emu.model.stack.software import Software
from emu.study.planning.bound.megatron_paths import MegatronPaths
from emu.study.planning.bound.pytorch_paths import PytorchPaths
from emu.study.planning.bound.requests import Requests
from emu.study.planning.bound.tape_paths import EndPaths, LayerPaths, StageCut, TapePath, TapePaths, times_s

T = TypeVar("T")
PATHS: Mapping[Software, type[TapePaths]] = {PYTORCH: PytorchPaths, MEGATRON: MegatronPaths}
_NOTHING = (0.0, 0.0, 0.0)  # times of the passes of a part that is not there
ROUNDED = 1e-9  # share of a bound that is more than the rounding of all its ticks


@dataclass(frozen=True, eq=False, slots=True)
class Outline:
    """The parts of a plan's bound that do not depend on its placement."""

    plan: Plan
    cut: StageCut
    turns: tuple[LayerPaths, ...]  # [K]
    ends: tuple[EndPaths, ...]  # [H]
    message_bytes: int
    waits: bool  # a rank waits until a message has left it
    reduces: tuple[TapePath, ...] = ()  # [P] what gradients take that are reduced after the last backward; (): `ends` has it

    @staticmethod
    def of(paths: TapePaths, plan: Plan) -> "Outline":
        """Return the outline of a plan.

        Raises:
            InputError: the plan cannot be generated.
        """
        cut, share = paths.cut(plan), paths.stack.boundary_share(plan.tp, sp=plan.sp)
        size = plan.pass_batch * plan.rank_seq * paths.model.hidden // share * item_bytes(paths.dtype)
        turns = tuple(paths.of_layer(plan, name) for name in paths.names)
        held = [paths.held(plan, dict(zip(paths.names, parts, strict=True))) for parts in cut.held.tolist()]
        ends = tuple(paths.of_ends(plan, of_place) for of_place in held)
        return Outline(plan, cut, turns, ends, size, paths.waits(plan), paths.reductions(plan, last=True))

    def seconds(self, requests: Requests) -> float:
        """Return the bound of the plan's step in seconds, by the least times of its requests."""
        plan = self.plan
        spans = self.spans(requests)
        works = spans.sum(axis=1) @ np.array([plan.passes, 1, plan.passes - 1])
        before, after, _ = np.array(self.ends_s(requests)).T
        reduced = after + self._reduced_s(requests, spans)
        if plan.pp > 1:
            sent, back = self.messages(requests)
            before = np.maximum(before, before[0] + _passed(spans[:-1, 0, 0] + sent[:-1, 1]))
            if not plan.splits:
                after = np.maximum(after, _passed(spans[:-1, 0, 1:].min(axis=1) + back[1:, 1]) + after[0])
            works += self._sent_s(sent[:, 0], back[:, 0])
        return float((before + works + np.maximum(after, reduced)).max()) * (1 - ROUNDED)

    def _reduced_s(self, requests: Requests, spans: F64) -> F64:
        """Return [P] the times of reductions less the last backward, as no gradient is there before this begins."""
        took = [path.seconds(requests, place) for place, path in enumerate(self.reduces)]
        last = spans[..., 1 if self.plan.passes == 1 else 2].sum(axis=1)
        return np.array(took) - last if took else np.zeros(self.plan.pp)

    def spans(self, requests: Requests) -> F64:
        """Return [P, V, 3] the times of the forward, the first backward and a later backward of each stage."""
        return np.asarray(self.cut.counts @ np.array(self._of_places(requests, self._parts_s)))

    def _of_places(self, requests: Requests, of_place: Callable[[Requests, int, int], T]) -> list[T]:
        """Return [P] a value for each place, computed once for places with equal parts and equal times of requests."""
        known = dict[Hashable, T]()
        keys = [(requests.place_key(place), held) for place, held in enumerate(self.cut.holds)]
        for place, key in enumerate(keys):
            if key not in known:
                known[key] = of_place(requests, place, key[1])
        return [known[key] for key in keys]

    def _parts_s(self, requests: Requests, place: int, held: int) -> list[Sequence[float]]:
        """Return [K, 3] the times of the passes of each part at a place."""
        has = self.cut.held[held] > 0
        return [times_s(turns, requests, place) if own else _NOTHING for turns, own in zip(self.turns, has, strict=True)]

    def ends_s(self, requests: Requests) -> list[list[float]]:
        """Return [P, 3] the times of each place before its passes, after them, and after them without overlap with passes."""
        return self._of_places(requests, lambda requests, place, held: times_s(self.ends[held], requests, place))

    def _sent_s(self, onward_s: F64, back_s: F64) -> F64:
        """Return [P] the time that a rank waits until its messages have left, without the last one."""
        if not self.waits:
            return np.zeros(self.plan.pp)
        stages = self.cut.stages
        sends_on, sends_back = (stages < stages.size - 1).sum(axis=1), (stages > 0).sum(axis=1)  # [P] stages that do
        most = np.maximum(onward_s * (sends_on > 0), back_s * (sends_back > 0))
        return np.asarray(self.plan.passes * (sends_on * onward_s + sends_back * back_s) - most)

    def messages(self, requests: Requests) -> F64:
        """Return [2, P, 2] the times until a message to the next place, or to the one before, has left and is delivered."""
        found = [requests.messages(to, self.message_bytes) for to in (1, -1)]
        return np.array([[(each.left_s, each.there_s) for each in way] for way in found])


def _passed(steps: F64) -> F64:
    """Return [P] the time at which something that goes from place to place, in steps of these times, reaches each place."""
    return np.concatenate(([0.0], np.cumsum(steps)))
