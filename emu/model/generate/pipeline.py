"""The step of a rank of a pipeline: its microbatches, and the messages between its stages and those before and after them.

The orders are those of PyTorch's schedules, which also say where a send is awaited.
Source: torch/distributed/pipelining/schedules.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from emu.model.generate.item import Ask
from emu.model.generate.stage_passes import StagePasses
from emu.model.generate.tape import Tape
from emu.model.model import Model
from emu.model.pipeline.pipeline_order import BACKWARD, DROP, FORWARD, GATHER, INPUT, RECEIVE, REDUCE, SEND, WEIGHT, Turn
from emu.model.pipeline.turns import message_for
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.trace.trace import Kind

_READS = (FORWARD, BACKWARD, INPUT)  # turns that read a message of another place, or weights that were gathered ahead


@dataclass(frozen=True, slots=True)
class StageMessages:
    """The messages of one stage with the stages before and after it."""

    tape: Tape
    before: int | None  # the place of the stage before in the group of the pipeline; None: there is none
    after: int | None
    elements: int  # of what passes
    dtype: str
    gathered: int = 0  # elements that the ranks of tp put together of their shares; 0: what came is all that is needed

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
        """Wait for received parts, and put them together."""
        self.tape.join(*came)
        if came and self.gathered:
            self.tape.join(self.tape.ask(Ask("tp", "all_gather", self.gathered, self.dtype)))

    def _message(self, kind: Kind, peer: int | None) -> list[int]:
        return [] if peer is None else [self.tape.message(kind, "pp", peer, self.elements, self.dtype)]


def messages_of_stage(tape: Tape, model: Model, plan: Plan, stack: Stack, stage: int) -> StageMessages:
    """Return the messages of a stage; stages follow one another round the places of the pipeline, or there and back."""
    where = {number: place for place in range(plan.pp) for number in plan.stages_of(place * plan.stage_ranks)}
    whole, share = plan.pass_batch * plan.rank_seq * model.hidden, stack.boundary_share(plan.tp, sp=plan.sp)
    gathered = whole if share > 1 and not plan.sp else 0
    return StageMessages(tape, where.get(stage - 1), where.get(stage + 1), whole // share, stack.precision.activation, gathered)


def gpipe(passes: StagePasses, ends: StageMessages, microbatches: int) -> None:
    """Run all forwards, then all backwards; sends are awaited at the end of either."""
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
    """Run as many forwards as stages follow; then alternate backwards and forwards, each with the messages of the other.

    A send of the first forwards is awaited after the next forward; a send that goes with a receive, at once.
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


def by_turns(
    own: Sequence[Turn], ends: Mapping[int, StageMessages], take: Callable[[Turn, Sequence[int]], None], *, waits: bool = False
) -> None:
    """Take the turns of a place: receives are posted early, and sends awaited at the end of the step.

    Args:
        own: The turns.
        ends: The messages of each stage of the place.
        take: A function that takes a turn which is no message, given the requests of the message that it reads.
        waits: Whether sends are awaited at once.
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
            take(turn, came.pop(message_for(turn), ()) if turn.what in _READS else ())
    tape.join(*sent)


def take_turn(stages: Mapping[int, tuple[StagePasses, StageMessages]], turn: Turn, came: Sequence[int]) -> None:
    """Take one turn of a stage once its weights and the message that it reads are there."""
    passes, ends = stages[turn.stage]
    gradients = passes.gradients
    if turn.what in _READS:
        gradients.arrive()
    ends.join(came)
    takes: dict[str, Callable[[], None]] = {
        FORWARD: partial(passes.forward, turn.microbatch),
        BACKWARD: partial(passes.backward, turn.microbatch),
        INPUT: partial(passes.backward_input, turn.microbatch),
        WEIGHT: partial(passes.backward_weight, turn.microbatch),
        GATHER: gradients.gather,
        DROP: gradients.drop,
        REDUCE: gradients.reduce,
    }
    takes[turn.what]()
