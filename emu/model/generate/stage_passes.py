"""The passes of one stage on one rank, the handling of its gradients, and its messages to neighbouring stages.

The orders of a pipeline are those of PyTorch's schedules, which also say where a send is awaited.
Source: torch/distributed/pipelining/schedules.py.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from operator import ne
from typing import Any, NamedTuple, TypeGuard

from emu.model.generate.gradients import ExpertGradients, WholeGradients, run
from emu.model.generate.item import Ask, Gradient, Item, held_last
from emu.model.generate.part import Part
from emu.model.generate.rank_parts import RankParts
from emu.model.generate.tape import Tape
from emu.model.memory.pass_memory import BackwardMemory, Moment, StageMemory
from emu.model.pipeline_order import BACKWARD, FORWARD, INPUT, RECEIVE, SEND, WEIGHT, Turn, all_turns, message_for
from emu.trace.trace import Kind


class StagePasses(NamedTuple):
    """The forwards and backwards of a stage on one rank, written on its tape."""

    tape: Tape
    stage: int
    parts: tuple[tuple[Part, ...], ...]  # by microbatch
    memory: tuple[StageMemory, ...]  # by microbatch
    gradients: WholeGradients
    experts: ExpertGradients

    def forward(self, pass_: int) -> None:
        """Write the forward of one microbatch."""
        self._copy_or_write(FORWARD, pass_, self.write_forward)

    def backward(self, pass_: int) -> None:
        """Write the backward of one microbatch: gradients are computed, accumulated and finally reduced."""
        self._copy_or_write(BACKWARD, pass_, self.write_backward)

    def backward_input(self, pass_: int) -> None:
        """Write the computation of one microbatch's input gradients, the first half of a split backward.

        On the first stage nothing is written, because tokens have no gradients; there `backward_weight` writes the whole
        backward.
        """
        if self.stage:
            self._copy_or_write(INPUT, pass_, self._backward_input)

    def backward_weight(self, pass_: int) -> None:
        """Write the rest of the backward of one microbatch, after `backward_input`."""
        if self.stage:
            self._copy_or_write(WEIGHT, pass_, self._backward_weight)
        else:
            self.backward(pass_)

    def _copy_or_write(self, what: str, pass_: int, write: Callable[[int], None]) -> None:
        """Write a pass on the tape, or copy an equal pass that was written before.

        The first and the last backward are never copied where events are written, because they treat gradients in ways of their
        own.

        Args:
            what: The kind of pass, such as FORWARD.
            pass_: The number of the microbatch.
            write: The function that writes the pass.
        """
        if what in (FORWARD, INPUT) or 0 < pass_ < self.last or self.tape.silent:
            self.tape.write_or_copy(self._key(what, pass_), partial(write, pass_), self.gradients.state, self.gradients.restore)
        else:
            write(pass_)

    @property
    def last(self) -> int:
        """The number of the last microbatch of the step, from 0."""
        return len(self.parts) - 1

    def _key(self, what: str, pass_: int) -> Hashable:
        """Return a key that is equal for passes with equal events, or on a silent tape for passes with equal memory.

        The events of a pass name their stage, so that their key has it; the memory of a pass does not depend on the stage's
        number.
        """
        of = (pass_ == 0, pass_ == self.last) if what in (BACKWARD, WEIGHT) else None
        if self.tape.silent:
            return what, of, self.memory[pass_].key
        return self.stage, what, of, tuple(part.routed for part in self.parts[pass_])

    def _backward_input(self, pass_: int) -> None:
        """Write the input gradients of one microbatch; a later `backward_weight` writes the gradients of its weights."""
        for place, part in reversed(list(enumerate(self.parts[pass_] if not self.tape.silent else ()))):
            self._run(part.backward_input, place, pass_)
        self.memory[pass_].backward_input(self.tape.ledger)

    def _backward_weight(self, pass_: int) -> None:
        """Write the gradient of each weight of one microbatch, in the order of the model.

        Outputs that the forward did not keep are recomputed for each weight anew.
        """
        for place, part in enumerate(self.parts[pass_] if not self.tape.silent else ()):
            for items in reversed(part.backward_weights):
                self._run(part.again, place, pass_)
                self._run(items, place, pass_)
        self.memory[pass_].backward_weight(self.tape.ledger, first=pass_ == 0)
        self.gradients.end(self.tape, pass_)

    def _run(self, items: Iterable[Item], place: int, pass_: int) -> None:
        """Write the actions of a part of the model on the tape, and pass on its gradients.

        Args:
            items: The items, one after another.
            place: The number of the part in the stage.
            pass_: The number of the pass.
        """
        for item in items:
            if isinstance(item, Gradient):
                self._add_gradient(item, place, pass_)
                continue
            run(self.tape, (item,))
            if isinstance(item, Moment):
                self.gradients.reach(item, place, pass_)

    def _add_gradient(self, gradient: Gradient, place: int, pass_: int) -> None:
        """Pass a computed gradient to the object that accumulates and reduces gradients of its kind.

        Args:
            gradient: The gradient; `travels` says that its parameter is of experts to which token rows are sent.
            place: The number of its part in the stage.
            pass_: The number of the pass.
        """
        part = self.parts[pass_][place]
        if gradient.travels:
            self.experts.handle(gradient, part, place, pass_)
        else:
            self.gradients.handle(self.tape, gradient, part, pass_)

    def _walk(self, moments: Iterable[Moment], items: Iterable[Item], place: int, pass_: int) -> None:
        """Write the events of one part, and at each moment update the memory of the step.

        Args:
            moments: The moments of the part, before each of which the memory of the step goes on.
            items: The events of the part, with the same moments among them.
            place: The number of the part in the stage.
            pass_: The number of the pass.
        """
        left = iter(items)
        for moment in moments:
            self._run(takewhile(partial(ne, moment), left), place, pass_)
            self.gradients.reach(moment, place, pass_)
        self._run(left, place, pass_)

    def write_forward(self, pass_: int) -> None:
        """Write all events of the forward of one microbatch, even if an equal forward could be copied."""
        memory = self.memory[pass_]
        self.gradients.begin()
        for place, part in enumerate(self.parts[pass_]):
            self.gradients.enter(place)
            items = () if self.tape.silent else held_last(part.forward)  # the next part reads what its last request gives
            self._walk(memory.forward(place, self.tape.ledger), items, place, pass_)
            self.gradients.leave(place)
        memory.end_forward(self.tape.ledger)

    def write_backward(self, pass_: int) -> None:
        """Write all events of the backward of one microbatch, even if an equal backward could be copied.

        Gradients that autograd adds up only at the end of the backward (`_is_late`) come last.
        """
        late: list[tuple[int, Gradient]] = []
        memory = BackwardMemory(self.memory[pass_], self.tape.ledger, pass_ == 0, pass_ == self.last)
        for place, part in reversed(list(enumerate(self.parts[pass_]))):
            self.gradients.enter_backward(place)
            items = () if self.tape.silent else part.backward
            late += [(place, item) for item in items if _is_late(item)]
            self._walk(memory.layer(place), (item for item in items if not _is_late(item)), place, pass_)
            self.gradients.leave_backward(place, pass_)
        for place, item in late:
            self._add_gradient(item, place, pass_)
        memory.end()
        self.gradients.end(self.tape, pass_)


def _is_late(item: Item) -> TypeGuard[Gradient]:
    """Return whether an item is a gradient that autograd accumulates only after all computations of the backward."""
    return isinstance(item, Gradient) and item.late and not item.travels


_READS = (FORWARD, BACKWARD, INPUT)  # turns that read a message of another place, or weights that were gathered ahead


@dataclass(frozen=True, slots=True)
class StageMessages:
    """The messages of one stage with the neighbouring stages, `elements` of `dtype` each."""

    tape: Tape
    before: int | None  # the place of the stage before in the group of the pipeline; None: there is none
    after: int | None
    elements: int  # of a message
    dtype: str
    gathered: int = 0  # elements that the ranks of tp gather from their messages; 0: each receives all that it needs

    def send(self, what: str) -> list[int]:
        """Send the result of a pass to another stage, and return the requests, if any.

        Args:
            what: FORWARD, whose result goes to the next stage, or a backward, whose result goes to the stage before.
        """
        return self._message(Kind.SEND, self.after if what == FORWARD else self.before)

    def receive(self, what: str) -> list[int]:
        """Receive the input of a forward or a backward; return the requests, if any."""
        return self._message(Kind.RECV, self.before if what == FORWARD else self.after)

    def join(self, came: Sequence[int]) -> None:
        """Wait for received messages; then, if each rank of tp has received a share only, gather the shares over tp.

        Args:
            came: The events of the receives; empty: nothing was received.
        """
        self.tape.join(*came)
        if came and self.gathered:
            self.tape.join(self.tape.ask(Ask("tp", "all_gather", self.gathered, self.dtype)))

    def _message(self, kind: Kind, peer: int | None) -> list[int]:
        return [] if peer is None else [self.tape.message(kind, "pp", peer, self.elements, self.dtype)]


def messages_of_stage(tape: Tape, rank: RankParts, stage: int) -> StageMessages:
    """Return the messages of a stage to and from its neighbours, whose places follow from the order of the plan."""
    plan, stack = rank.plan, rank.stack
    where = {number: place for place in range(plan.pp) for number in plan.stages_of(place * plan.stage_ranks)}
    whole, share = plan.pass_batch * plan.rank_seq * rank.model.hidden, stack.boundary_share(plan.tp, sp=plan.sp)
    gathered = whole if share > 1 and not plan.sp else 0
    return StageMessages(tape, where.get(stage - 1), where.get(stage + 1), whole // share, stack.precision.activation, gathered)


def run_stages(tape: Tape, rank: RankParts, stages: Mapping[int, Any], *, waits: bool = False) -> None:
    """Write the passes of a rank's stages in the order of the plan's pipeline.

    Args:
        tape: The tape.
        rank: The parts of the rank.
        stages: The passes of each stage: `StagePasses`, or an object with the same methods and `gradients`.
        waits: Whether an order that is made of turns waits for each send at once.
    """
    plan, ends = rank.plan, {number: messages_of_stage(tape, rank, number) for number in stages}
    if plan.pp == 1:
        for number in range(plan.passes):
            stages[0].forward(number)
            stages[0].backward(number)
    elif plan.pipeline == "gpipe":
        gpipe(stages[rank.place], ends[rank.place], plan.passes)
    elif plan.pipeline == "1f1b" and rank.stack.software.is_executed:
        one_forward_one_backward(stages[rank.place], ends[rank.place], plan.pp - 1 - rank.place, plan.passes)
    else:
        by_turns(all_turns(plan.pipeline, plan.pp, plan.vp, plan.passes)[rank.place], stages, ends, waits=waits)


def gpipe(passes: StagePasses, ends: StageMessages, microbatches: int) -> None:
    """Write all forwards, then all backwards; sends are awaited at the end of each half."""
    tape = ends.tape
    for what, do in ((FORWARD, passes.forward), (BACKWARD, passes.backward)):
        sent: list[int] = []
        for number in range(microbatches):
            tape.join(*ends.receive(what))
            do(number)
            sent += ends.send(what)
        tape.join(*sent)
    passes.gradients.reduce()


def one_forward_one_backward(passes: StagePasses, ends: StageMessages, stages_after: int, microbatches: int) -> None:
    """Write the order 1F1B: some forwards first, then backwards and forwards in turn.

    The first forwards are one for each later stage and one more. Their sends are awaited after the next forward. A send that is
    posted together with a receive is awaited at once.
    """
    tape, ahead = ends.tape, min(microbatches, stages_after + 1)
    sent: list[int] = []
    for number in range(ahead):
        tape.join(*ends.receive(FORWARD))
        passes.forward(number)
        tape.join(*sent)
        sent = ends.send(FORWARD) if number < ahead - 1 else []
    for number in range(microbatches):
        # What the last forward gave goes out as a gradient comes in.
        out = ends.send(FORWARD) if number <= microbatches - ahead else []
        tape.join(*out, *ends.receive(BACKWARD))
        passes.backward(number)
        if number < microbatches - ahead:
            tape.join(*ends.send(BACKWARD), *ends.receive(FORWARD))
            passes.forward(ahead + number)
        else:
            tape.join(*sent)
            sent = ends.send(BACKWARD)
    tape.join(*sent)
    passes.gradients.reduce()


def by_turns(own: Sequence[Turn], stages: Mapping[int, Any], ends: Mapping[int, StageMessages], *, waits: bool) -> None:
    """Write the turns of a rank at one place of a pipeline.

    Args:
        own: The turns of the place, in their order.
        stages: The passes of each stage of the place.
        ends: The messages of each stage of the place.
        waits: Whether a send is awaited at once; else all sends are awaited at the end of the step.
    """
    sent: list[int] = []
    came: dict[Turn, list[int]] = {}
    tape = next(iter(ends.values())).tape
    for turn in own:
        if turn.what.startswith(SEND):
            asked = ends[turn.stage].send(turn.what.removeprefix(SEND))
            tape.join(*(asked if waits else ()))
            sent += asked
        elif turn.what.startswith(RECEIVE):
            came[turn] = ends[turn.stage].receive(turn.what.removeprefix(RECEIVE))
        else:
            read = came.pop(message_for(turn), ()) if turn.what in _READS else ()
            _take_turn(stages[turn.stage], turn, ends[turn.stage], read)
    tape.join(*sent)


# The passes of a stage by the turn that takes them. A turn of a stage's weights has the name of a method of its gradients.
_PASSES = {FORWARD: "forward", BACKWARD: "backward", INPUT: "backward_input", WEIGHT: "backward_weight"}


def _take_turn(passes: Any, turn: Turn, ends: StageMessages, came: Sequence[int]) -> None:
    """Write one turn of a stage.

    Args:
        passes: The passes of the stage.
        turn: The turn, which is no message.
        ends: The messages of the stage.
        came: The events of the receives of the message that the turn reads.
    """
    if turn.what in _READS:
        passes.gradients.arrive()
        ends.join(came)
    if turn.what in _PASSES:
        getattr(passes, _PASSES[turn.what])(turn.microbatch)
    else:
        getattr(passes.gradients, turn.what)()
