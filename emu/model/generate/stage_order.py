"""The order in which the stages of a rank run their passes, and their messages to neighbouring stages.

The orders are those of PyTorch's schedules, which also say where a send is awaited.
Source: torch/distributed/pipelining/schedules.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emu.model.generate.item import Ask
from emu.model.generate.rank_parts import RankParts
from emu.model.generate.stage_passes import StagePasses
from emu.model.generate.tape import Tape
from emu.model.pipeline_order import BACKWARD, FORWARD, INPUT, RECEIVE, SEND, WEIGHT, Turn, all_turns, message_for
from emu.trace.trace import Kind

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
