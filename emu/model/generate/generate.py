"""The generation of a training step's trace from the model and the plan, without a run: requests, computations and memory.

Ranks with equal events share a role: without a pipeline all ranks do. Letter: N ranks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from emu.arrays import I64, column
from emu.model.generate import rank_step
from emu.model.generate.megatron import megatron_step
from emu.model.generate.states import Role
from emu.model.generate.tape import Tape
from emu.model.memory.step_memory import PeakBytes
from emu.model.model import Model
from emu.model.plan.plan import COPIES, DATA, ENDS, REPLICATE, SHARD, Plan, group_rows
from emu.model.plan.plan_checks import check_fits_model, check_runs
from emu.model.plan.plan_text import spell
from emu.model.routed_rows import Splits
from emu.model.stack.software import MEGATRON, PYTORCH, Software
from emu.model.stack.stack import Stack
from emu.trace.trace import COMMAND, PARTS, Group, Trace


def generate(model: Model, plan: Plan, stack: Stack, routing: Splits | None = None) -> Trace:
    """Return the trace of one training step in the steady state, after the first step.

    Args:
        model: The model that is trained.
        plan: The plan.
        stack: The software, with its precision.
        routing: The number of token rows for each expert; None: every expert gets the same number.

    Raises:
        InputError: The plan does not fit the model, or has something that cannot be generated yet.
    """
    return trace_of(roles_by_place(model, plan, stack, routing), model, plan, stack)


Roles = Callable[[Model, Plan, Stack, int, Splits | None], Iterator[Role]]  # at a place, with the token rows of experts
Peaks = Callable[[Model, Plan, Stack, Iterable[int]], Iterator[PeakBytes]]  # of a rank at each place
# The functions that write the steps of a software; one that is added has its own here.
WRITERS: Mapping[Software, tuple[Roles, Peaks]] = {
    PYTORCH: (rank_step.roles, rank_step.peaks),
    MEGATRON: (megatron_step.roles, megatron_step.peaks),
}


def roles_by_place(model: Model, plan: Plan, stack: Stack, routing: Splits | None = None) -> list[list[Role]]:
    """Return, for each place of a pipeline, the roles of its ranks; the arguments and errors are those of `generate`."""
    check_fits_model(plan, model, stack)
    check_runs(plan, model, stack)
    roles, _ = WRITERS[stack.software]
    return [[*roles(model, plan, stack, place, routing)] for place in range(plan.pp)]


def memory_by_part(model: Model, plan: Plan, stack: Stack) -> dict[str, int]:
    """Return the peak bytes of the rank with the highest peak, by part of memory, such as weights; no events are generated."""
    _, peaks = WRITERS[stack.software]
    return dict(zip(PARTS, max(peaks(model, plan, stack, range(plan.pp)), key=sum), strict=True))


def holds(model: Model, plan: Plan, stack: Stack, memory: int, places: Iterable[int]) -> bool:
    """Return whether `memory` bytes are enough for the ranks at each of the given places of a pipeline.

    Args:
        model: The model that is trained.
        plan: The plan.
        stack: The software, with its precision.
        memory: The bytes of a rank.
        places: The places.
    """
    _, peaks = WRITERS[stack.software]
    return all(sum(peak) <= memory for peak in peaks(model, plan, stack, places))


def trace_of(of_places: Sequence[Sequence[Role]], model: Model, plan: Plan, stack: Stack) -> Trace:
    """Return the trace of all ranks.

    Args:
        of_places: The roles at each place of a pipeline.
        model: The model that is trained.
        plan: The plan.
        stack: The software.
    """
    roles = [role for of_place in of_places for role in of_place]
    tapes, role_of_rank = [role.tape for role in roles], np.empty(plan.world, np.int32)
    for i, role in enumerate(roles):
        role_of_rank[role.ranks] = i
    axes = list(dict.fromkeys(axis for tape in tapes for axis in tape.axes))
    rows = {axis: groups_of_axis(plan, axis) for axis in axes}
    groups = tuple(Group(axis, tuple(ranks)) for axis in axes for ranks in rows[axis].tolist())
    number, first = {}, 0
    for axis in axes:
        number[axis], first = _numbers(rows[axis], plan.world) + first, first + len(rows[axis])
    return Trace(
        tuple(tape.events() for tape in tapes),
        column(role_of_rank, np.int32),
        groups,
        tuple(row for place, each in enumerate(of_places) for row in _rows(each[0].tape, number, place, plan.stage_ranks)),
        _peaks(of_places, plan, stack),
        meta_of(model, plan, stack),
    )


def _peaks(of_places: Sequence[Sequence[Role]], plan: Plan, stack: Stack) -> I64:
    """Return [R, P] the peak bytes of each role, by part of memory; all 0 if the peaks of real ranks may differ."""
    if not stack.software.is_executed or not all(role.even or not plan.shards_weights for role in chain(*of_places)):
        return np.zeros((sum(map(len, of_places)), len(PARTS)), np.int64)
    return np.array([role.peak for role in chain(*of_places)])


def meta_of(model: Model, plan: Plan, stack: Stack) -> tuple[tuple[str, str], ...]:
    """Return the entries of a generated trace's meta data."""
    return ((COMMAND, "estimate"), ("model", model.name), ("plan", spell(plan)), ("software", stack.software.name))


def groups_of_axis(plan: Plan, axis: str) -> I64:
    """Return [groups, members] the ranks of each group of an axis.

    If states are sharded over a part of dp, the two halves of dp are axes too: ranks of one group of the half that shards
    follow one another. With cp, that half and cp are one axis.
    """
    if axis == DATA:
        return group_rows(COPIES, plan.sizes)
    if axis == ENDS:
        return group_rows("pp", plan.sizes)[:, [0, -1]]
    if axis == REPLICATE:
        halves = group_rows("dp", plan.sizes).reshape(-1, plan.dp // plan.shard_ranks, plan.shard_ranks).swapaxes(1, 2)
        return np.ascontiguousarray(halves).reshape(-1, halves.shape[-1])
    if axis.startswith(SHARD):
        return group_rows(COPIES, plan.sizes).reshape(-1, plan.holders)
    return group_rows(axis, plan.sizes)


def _numbers(rows: I64, world: int) -> I64:
    """Return [N] the number of the group that each rank is in.

    Args:
        rows: [groups, members] the ranks of each group.
        world: The number of ranks.
    """
    number = np.empty(world, np.int64)
    number[rows] = np.arange(len(rows))[:, None]
    return number


def _rows(tape: Tape, number: Mapping[str, I64], place: int, ranks: int) -> list[tuple[int, ...]]:
    """Return, for each rank at a place of its pipeline, the numbers of the groups that the events of a tape name.

    Args:
        tape: The tape of a role at the place.
        number: The number of each rank's group, by axis.
        place: The place.
        ranks: The number of ranks at a place.
    """
    own = slice(place * ranks, (place + 1) * ranks)
    return list(zip(*(number[axis][own].tolist() for axis in tape.axes), strict=True)) if tape.axes else [()] * ranks
