"""A time that no step of a plan beats, without generating the step.

A step is a graph: what begins after others ended. Here times are left out or made shorter, never longer, and waits are left
out. So the longest way through what is left ends no later than the step does, whatever else shares links or waits: by induction
in the order of time, each task ends no earlier than the longest way to it. Kept are:

- The passes of a stage take those of its layers (`ways`, beside this file), one after another, and their requests what any NPU
  needs at least for what it sends and receives of them (`rates`), or what a rank of theirs needs at least (`emu.fabric.floor`).
- A step may be laid with every rank of a stage. Then each time here is that of the first rank of the stage that comes so far:
  all ranks do the same, each enters a request no sooner than the first, and leaves it no sooner than the least after that.
- The rank at place p of a pipeline begins when the stages before it have passed one microbatch on; then it takes all its
  passes, and ends its step. Where backwards are whole, its last one is followed by those of the stages before it, too.

P places, V stages of each, S stages, K kinds of parts of the model, H kinds of places by what they hold.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from emu.arrays import F64, I64
from emu.dtypes import item_bytes
from emu.model.generate.megatron.megatron_step import overlaps_messages
from emu.model.model import EMBEDDING, HEAD
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import part_names
from emu.study.planning.bound.rates import Requests
from emu.study.planning.bound.ways import Ends, Turns, Way, Ways

T = TypeVar("T")
_NOTHING = (0.0, 0.0, 0.0)  # what passes take of a part that is not there
ROUNDED = 1e-9  # of a bound, more than all its ticks are rounded by


class Cut(NamedTuple):
    """How a model is cut into stages."""

    stages: I64  # [P, V]
    counts: F64  # [P, V, K] parts of each
    held: I64  # [H, K] parts of a place, of places that differ in them
    holds: tuple[int, ...]  # [P] which of these

    @property
    def after(self) -> I64:
        """[P] stages of each place that another follows."""
        return np.asarray((self.stages < self.stages.size - 1).sum(axis=1), np.int64)

    @property
    def before(self) -> I64:
        """[P] stages of each place that follow another."""
        return np.asarray((self.stages > 0).sum(axis=1), np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Outline:
    """What of the bound of a plan does not depend on its placement."""

    plan: Plan
    cut: Cut
    turns: tuple[Turns, ...]  # [K]
    ends: tuple[Ends, ...]  # [H]
    message_bytes: int
    waits: bool  # whether a rank waits until a message has left it
    reduces: tuple[Way, ...] = ()  # [P] what gradients take that are reduced after the last backward began; (): `ends` has it

    def seconds(self, requests: Requests) -> float:
        """No step of the plan takes less, whose requests take at least so much."""
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
        """[P] what gradients take, more than the backward in which they come: none is there before that begins."""
        took = [way.seconds(requests, place) for place, way in enumerate(self.reduces)]
        last = spans[..., 1 if self.plan.passes == 1 else 2].sum(axis=1)
        return np.array(took) - last if took else np.zeros(self.plan.pp)

    def spans(self, requests: Requests) -> F64:
        """[P, V, 3] what the forward, the first backward and a later one of each stage take."""
        return np.asarray(self.cut.counts @ np.array(self._of_places(requests, self._parts_s)))

    def _of_places(self, requests: Requests, of_place: Callable[[Requests, int, int], T]) -> list[T]:
        """[P] what each place takes; once for those that hold the same and whose requests take as long."""
        known = dict[Hashable, T]()
        keys = [(requests.alike(place), held) for place, held in enumerate(self.cut.holds)]
        for place, key in enumerate(keys):
            if key not in known:
                known[key] = of_place(requests, place, key[1])
        return [known[key] for key in keys]

    def _parts_s(self, requests: Requests, place: int, held: int) -> list[tuple[float, ...]]:
        """[K, 3] what the passes of each part take at a place."""
        has = self.cut.held[held] > 0
        return [turns.seconds(requests, place) if own else _NOTHING for turns, own in zip(self.turns, has, strict=True)]

    def ends_s(self, requests: Requests) -> list[list[float]]:
        """[P, 3] what each place takes before its passes, after, and of that beside nothing of its passes."""
        return self._of_places(
            requests, lambda requests, place, held: [way.seconds(requests, place) for way in self.ends[held]]
        )

    def _sent_s(self, onward_s: F64, back_s: F64) -> F64:
        """[P] what a rank waits for until its messages have left, but the last."""
        if not self.waits:
            return np.zeros(self.plan.pp)
        most = np.maximum(onward_s * (self.cut.after > 0), back_s * (self.cut.before > 0))
        return np.asarray(self.plan.passes * (self.cut.after * onward_s + self.cut.before * back_s) - most)

    def messages(self, requests: Requests) -> F64:
        """[2, P, 2] until a message from each place to the next, or to the one before, has left it, and is there."""
        found = [requests.messages(to, self.message_bytes) for to in (1, -1)]
        return np.array([[(each.left_s, each.there_s) for each in way] for way in found])


def _passed(steps: F64) -> F64:
    """[P] when what passes from place to place, in so long steps, has come to each."""
    return np.concatenate(([0.0], np.cumsum(steps)))


@dataclass(eq=False)
class Outlines:
    """Of the plans of one model by one software."""

    ways: Ways
    _cuts: dict[Hashable, Cut] = field(default_factory=dict)

    def of(self, plan: Plan) -> Outline:
        """Of a plan.

        Raises:
            InputError: it cannot be generated.
        """
        cut, share = self.cut(plan), self.ways.stack.boundary_share(plan.tp, sp=plan.sp)
        size = plan.pass_batch * plan.rank_seq * self.ways.model.hidden // share * item_bytes(self.ways.dtype)
        turns = tuple(self.ways.of_layer(plan, name) for name in self.names)
        ends = tuple(self.ways.of_ends(plan, dict(zip(self.names, held, strict=True))) for held in cut.held.tolist())
        waits = self.ways.is_megatron and not overlaps_messages(plan, self.ways.stack)
        places = range(0 if self.ways.is_megatron else plan.pp)
        reduces = tuple(self.ways.of_reductions(plan, place, last=True) for place in places)
        return Outline(plan, cut, turns, ends, size, waits, reduces)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """[K] of the parts."""
        return tuple(dict.fromkeys((EMBEDDING, *self.ways.model.kinds, HEAD)))

    def cut(self, plan: Plan) -> Cut:
        """Into its stages."""
        key = (plan.layers, plan.pp, plan.vp, plan.pipeline)
        if key not in self._cuts:
            stages = np.array([plan.stages_of(place * plan.stage_ranks) for place in range(plan.pp)])
            parts = [part_names(plan, self.ways.model, number) for number in range(plan.stages)]
            counts = np.array([[own.count(name) for name in self.names] for own in parts])[stages]
            held, holds = np.unique(counts.sum(axis=1), axis=0, return_inverse=True)
            self._cuts[key] = Cut(stages, counts.astype(np.float64), held, tuple(holds.tolist()))
        return self._cuts[key]
