"""A training step as a trace, from the model and the plan alone: what each rank asks for and computes, without running it.

N ranks. Ranks that do the same share a role: without a pipeline all do.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from emu.arrays import I64, column
from emu.errors import must_be
from emu.model.fits import check_executed, check_fits
from emu.model.generate.megatron import rank as megatron
from emu.model.generate.rank import tapes_of
from emu.model.generate.sharded import REPLICATE, SHARD
from emu.model.generate.tape import Tape
from emu.model.model import Model
from emu.model.order import ORDERS
from emu.model.plan import Plan
from emu.model.ranks import ENDS, group_rows
from emu.model.spell import spell
from emu.model.stack import Stack
from emu.trace.trace import PARTS, Group, Trace

_KNOWN = {
    "cp": (1,),
    "ep": (1,),
    "pipeline": tuple(ORDERS),
    "sharding": ("ddp", "zero1", "fsdp"),
    "recompute": ("none", "full"),
}


_TAPES = {"pytorch": tapes_of, "megatron": megatron.tapes_of}


def generate(model: Model, plan: Plan, stack: Stack) -> Trace:
    """One steady step.

    Args:
        model: What is trained.
        plan: How it is laid over ranks.
        stack: By which software, in which precision.

    Raises:
        InputError: a plan that does not fit the model, or something that cannot be generated yet.
    """
    return trace_of(tapes_by_place(model, plan, stack), model, plan, stack)


def tapes_by_place(model: Model, plan: Plan, stack: Stack) -> list[list[Tape]]:
    """What the ranks at each place of their pipelines do; arguments and errors as of `generate`."""
    check_fits(plan, model)
    if stack.software == "pytorch":
        check_executed(plan, model)
        _check(plan)
    return [_TAPES[stack.software](model, plan, stack, place) for place in range(plan.pp)]


def trace_of(of_places: Sequence[Sequence[Tape]], model: Model, plan: Plan, stack: Stack) -> Trace:
    """The step of all ranks, from what those of each place do."""
    tapes, shares = [tape for of_place in of_places for tape in of_place], len(of_places[0])
    axes = list(dict.fromkeys(axis for tape in tapes for axis in tape.axes))
    rows = {axis: members(plan, axis) for axis in axes}
    groups = tuple(Group(axis, tuple(ranks)) for axis in axes for ranks in rows[axis].tolist())
    number, first = {}, 0
    for axis in axes:
        number[axis], first = _numbers(rows[axis], plan.world) + first, first + len(rows[axis])
    return Trace(
        tuple(tape.events() for tape in tapes),
        column(_roles(plan, shares), np.int32),
        groups,
        tuple(row for place, of_place in enumerate(of_places) for row in _rows(of_place[0], number, place, plan.stage_ranks)),
        np.zeros((len(tapes), len(PARTS)), np.int64),
        meta_of(model, plan, stack),
    )


def meta_of(model: Model, plan: Plan, stack: Stack) -> tuple[tuple[str, str], ...]:
    """What a generated trace says of what it is of."""
    return (("model", model.name), ("plan", spell(plan)), ("software", stack.software))


def _check(plan: Plan) -> None:
    for name, known in _KNOWN.items():
        if getattr(plan, name) not in known:
            raise must_be("generate", name, " or ".join(map(str, known)), getattr(plan, name), "no other can be generated yet")


def members(plan: Plan, axis: str) -> I64:
    """[groups, members] the ranks of each group of an axis.

    Where states are sharded over a part of dp, its two halves are axes too, that which shards the faster.
    """
    if axis == ENDS:
        return group_rows("pp", plan.sizes)[:, [0, -1]]
    if axis not in (SHARD, REPLICATE):
        return group_rows(axis, plan.sizes)
    parts = group_rows("dp", plan.sizes).reshape(-1, plan.dp // plan.sharded, plan.sharded)
    split = parts if axis == SHARD else parts.swapaxes(1, 2)
    return np.ascontiguousarray(split).reshape(-1, split.shape[-1])


def _roles(plan: Plan, shares: int) -> I64:
    """[N] by place in the pipeline, and by place in dp where each has a share of the states."""
    ranks = np.arange(plan.world)
    return np.asarray(ranks // plan.stage_ranks * shares + ranks // (plan.tp * plan.cp) % plan.dp % shares)


def _numbers(rows: I64, world: int) -> I64:
    """[N] which of the groups [groups, members] each rank is in."""
    number = np.empty(world, np.int64)
    number[rows] = np.arange(len(rows))[:, None]
    return number


def _rows(tape: Tape, number: Mapping[str, I64], place: int, ranks: int) -> list[tuple[int, ...]]:
    """Of each rank at a place of its pipeline, the groups that it means."""
    own = slice(place * ranks, (place + 1) * ranks)
    return list(zip(*(number[axis][own].tolist() for axis in tape.axes), strict=True)) if tape.axes else [()] * ranks
