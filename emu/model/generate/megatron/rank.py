"""The step of one rank of a plan, by Megatron-LM's list of requests: generated from that list, never executed.

What each piece asks for, and where that is written, the modules beside this one say. Left out: what is asked for to log (the
loss, counts of zeros), to check for numbers that are none, and at the beginning of a run.
"""

from collections.abc import Mapping

from emu.model.generate.megatron.chunk import Chunk, chunk_of
from emu.model.generate.megatron.finish import finish
from emu.model.generate.pipeline import Ends, ends_of
from emu.model.generate.tape import Tape
from emu.model.model import Model
from emu.model.pipeline.turn import BACKWARD, FORWARD, RECEIVE, SEND, Turn
from emu.model.pipeline.turns import all_turns, needed
from emu.model.plan.fits import check_megatron
from emu.model.plan.plan import Plan
from emu.model.stack.stack import INTERLEAVED, OVERLAPPED, Stack


def tapes_of(model: Model, plan: Plan, stack: Stack, place: int) -> list[Tape]:
    """What the ranks at one place of their pipelines do in a step: all the same, or one for each place in a ring of cp.

    Raises:
        InputError: a plan or a stack that Megatron-LM has not, or that cannot be generated yet.
    """
    check_megatron(plan, model, stack)
    return [_tape(model, plan, stack, place, at) for at in range(plan.ring)]


def _tape(model: Model, plan: Plan, stack: Stack, place: int, at: int) -> Tape:
    tape, stages = Tape(stack.precision.activation), plan.stages_of(place * plan.stage_ranks)
    chunks = {number: chunk_of(tape, model, plan, stack, number, at) for number in stages}
    for chunk in chunks.values():
        chunk.begin()
    if plan.pp == 1:
        for number in range(plan.passes):
            chunks[0].forward(number)
            chunks[0].backward(number)
    else:
        ends = {number: ends_of(tape, model, plan, stack, number) for number in chunks}
        _pipelined(tape, chunks, ends, plan, place, waits=not overlaps_messages(plan, stack))
    for chunk in chunks.values():
        chunk.drain()
    finish(tape, tuple(chunks.values()))
    return tape


def overlaps_messages(plan: Plan, stack: Stack) -> bool:
    """Whether what a stage sends goes out beside what it computes next."""
    return stack.pp == OVERLAPPED or (stack.pp == INTERLEAVED and plan.pipeline == INTERLEAVED)


def _pipelined(
    tape: Tape, chunks: Mapping[int, Chunk], ends: Mapping[int, Ends], plan: Plan, place: int, *, waits: bool
) -> None:
    """1F1B or its interleaved form; what is sent is waited for at once, or at the end of the step.

    Source: Narayanan et al. (SC21), section 2.2; Megatron-LM, megatron/core/pipeline_parallel/schedules.py.
    """
    sent: list[int] = []
    received: dict[Turn, list[int]] = {}
    for turn in all_turns(plan.pipeline, plan.pp, plan.vp, plan.passes)[place]:
        if turn.what.startswith(SEND):
            asked = ends[turn.stage].send(turn.what.removeprefix(SEND))
            tape.join(*(asked if waits else ()))
            sent += asked
        elif turn.what.startswith(RECEIVE):
            received[turn] = ends[turn.stage].receive(turn.what.removeprefix(RECEIVE))
        elif turn.what in (FORWARD, BACKWARD):
            ends[turn.stage].join(received.pop(needed(turn), []))
            do = chunks[turn.stage].forward if turn.what == FORWARD else chunks[turn.stage].backward
            do(turn.microbatch)
    tape.join(*sent)
