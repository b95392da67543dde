"""The step of the ranks of a plan, by Megatron-LM's list of requests: generated from that list, never executed.

The modules beside this one say what each piece requests, and where that is written. Left out are requests for logs (the loss,
counts of zeros), checks for NaN, and requests at the beginning of a run.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from emu.model.generate.megatron.chunk import Chunk, chunk_of, parts_of
from emu.model.generate.megatron.finish import finish
from emu.model.generate.pipeline import StageMessages, messages_of_stage
from emu.model.generate.role import Role, ring_ranks
from emu.model.generate.states import StateShare
from emu.model.generate.tape import KnownStretches, SilentTape, Tape
from emu.model.memory.layer_memory import LayerMemory
from emu.model.memory.stage_memory import StageMemory
from emu.model.memory.step_memory import PeakBytes, RankMemory
from emu.model.model import Model
from emu.model.pipeline.turn import BACKWARD, FORWARD, RECEIVE, SEND, Turn
from emu.model.pipeline.turns import all_turns, message_for
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import part_names
from emu.model.routed_rows import Splits
from emu.model.stack.software import INTERLEAVED, OVERLAPPED
from emu.model.stack.stack import Stack


def roles(model: Model, plan: Plan, stack: Stack, place: int, routing: Splits | None) -> Iterator[Role]:
    """Yield the roles of ranks at one place of their pipelines; all wait for the fullest expert, whatever the routing.

    All ranks do the same, except at other places of a ring of context parallelism: there is one role for each of these.
    """
    memory, ranks = _memory(model, plan, stack, place), np.arange(plan.stage_ranks)
    for at in range(plan.ring):
        tape, own = _tape(model, memory, place, at), place * plan.stage_ranks + ring_ranks(plan, ranks, at)
        yield Role(tape, own, StateShare(0, 0), memory.peak(tape.memory), at=at)


def peaks(model: Model, plan: Plan, stack: Stack, places: Iterable[int]) -> Iterator[PeakBytes]:
    """Yield the bytes of a rank at each place at the peak of its step."""
    known: KnownStretches = {}
    for place in places:
        memory = _memory(model, plan, stack, place)
        tape = SilentTape(stack.precision.activation, memory=memory.opened(), known=known)
        _take_passes(tape, model, plan, stack, place, {n: Chunk(tape, n, _of_stage(memory, n)) for n in memory.stages})
        yield memory.peak(tape.memory)


def _memory(model: Model, plan: Plan, stack: Stack, place: int) -> RankMemory:
    """Return the bytes that a rank stores during the whole step; token rows are spread evenly over experts."""
    made: dict[str, LayerMemory] = {}
    stages = {
        number: tuple(made.setdefault(name, LayerMemory(model, plan, stack, name)) for name in part_names(plan, model, number))
        for number in plan.stages_of(place * plan.stage_ranks)
    }
    return RankMemory(plan, stack, stages)


def _of_stage(memory: RankMemory, number: int) -> StageMemory:
    """Return the memory of a pass through a stage."""
    return StageMemory(memory.stages[number], memory.ends(number), adds=memory.software.adds_gradients)


def _tape(model: Model, memory: RankMemory, place: int, at: int) -> Tape:
    """Return the tape of a rank at a place of its pipeline and of its ring of cp."""
    plan, stack = memory.plan, memory.stack
    tape, parts = Tape(stack.precision.activation, memory=memory.opened()), parts_of(model, plan, stack, at)
    chunks = {number: chunk_of(tape, parts, number, _of_stage(memory, number)) for number in memory.stages}
    _take_passes(tape, model, plan, stack, place, chunks)
    finish(tape, tuple(chunks.values()))
    return tape


def _take_passes(tape: Tape, model: Model, plan: Plan, stack: Stack, place: int, chunks: Mapping[int, Chunk]) -> None:
    """Write the forwards and backwards of a step on a tape."""
    for chunk in chunks.values():
        chunk.begin()
    if plan.pp == 1:
        for number in range(plan.passes):
            chunks[0].forward(number)
            chunks[0].backward(number)
    else:
        ends = {number: messages_of_stage(tape, model, plan, stack, number) for number in chunks}
        _pipelined(tape, chunks, ends, plan, place, waits=not overlaps_messages(plan, stack))
    for chunk in chunks.values():
        chunk.drain()


def overlaps_messages(plan: Plan, stack: Stack) -> bool:
    """Return whether the messages of a stage are sent beside its next computation."""
    return stack.pp == OVERLAPPED or (stack.pp == INTERLEAVED and plan.pipeline == INTERLEAVED)


def _pipelined(
    tape: Tape, chunks: Mapping[int, Chunk], ends: Mapping[int, StageMessages], plan: Plan, place: int, *, waits: bool
) -> None:
    """Write 1F1B or its interleaved form; sends are awaited at once, or at the end of the step.

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
            ends[turn.stage].join(received.pop(message_for(turn), []))
            do = chunks[turn.stage].forward if turn.what == FORWARD else chunks[turn.stage].backward
            do(turn.microbatch)
    tape.join(*sent)
