"""Who has which part of the states where ranks share them: weights, gradients and the optimizer's, or the last alone.

States of experts that tokens travel to are shared by the ranks that have copies of them (`edp`); all others by those of dp,
or of a part of it, and of cp. FSDP2 cuts each parameter along its first dimension, as `torch.chunk` does: of 5 rows on 4 ranks
the first two have 2, the third 1 and the last none.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.model.generate.part import Part
from emu.model.operator import LOOKUP, ModelOperator
from emu.model.plan.plan import Plan
from emu.model.plan.rank_axes import SHARD


class Over(NamedTuple):
    """Ranks that share states."""

    axis: str
    ranks: int


class Held(NamedTuple):
    """The part of a rank, by its place among those that share the states."""

    dense: int  # of what all tokens see
    experts: int  # of experts that tokens travel to


def shared_over(plan: Plan, *, travels: bool) -> Over:
    """Who shares the states of what all tokens see, or of experts that tokens travel to."""
    if travels:
        return Over("edp", 1 if plan.sharding == "ddp" else plan.sizes["edp"])
    return Over(("dp" if plan.sharded == plan.dp else SHARD) + ("_cp" if plan.cp > 1 else ""), plan.holders)


def held_by(plan: Plan, ranks: I64) -> list[tuple[Held, I64]]:
    """Ranks, numbers in their stage, by the part that they have."""
    dense = ranks // plan.tp % (plan.cp * plan.dp) % plan.holders
    experts = ranks // (plan.ep * plan.expert_tp) if plan.exchanges and plan.sharding != "ddp" else 0 * ranks
    parts, part = np.unique(np.stack((dense, experts)), axis=1, return_inverse=True)
    return [(Held(*own), ranks[part.reshape(-1) == number]) for number, own in enumerate(parts.T.tolist())]


def of_one_size(parts: Sequence[Part], plan: Plan, of: list[tuple[Held, I64]]) -> list[list[tuple[Held, I64]]]:
    """The same, those together whose parts of the gradients are of one size."""
    if plan.sharding != "fsdp":
        return [of]
    unlike = {part.name: part for part in parts}.values()
    met: dict[tuple[int, ...], list[tuple[Held, I64]]] = {}
    for held, ranks in of:
        sizes = tuple(own_size(part, operator, held) for part in unlike for operator in part.operators)
        met.setdefault(sizes, []).append((held, ranks))
    return [*met.values()]


def rows_of(part: Part, operator: ModelOperator) -> int:
    """Of the first dimension of each of its tensors: experts, columns that come out, words."""
    if operator.experts:
        return operator.experts
    if operator.shape:
        return operator.shape[1]
    return operator.parameters // (part.model.hidden if operator.kind == LOOKUP else operator.tensors)


def padded(part: Part, operator: ModelOperator, ranks: int) -> int:
    """Elements of its tensors if each rank had as many rows of them as the first."""
    rows = rows_of(part, operator)
    return operator.parameters // rows * -(-rows // ranks) * ranks


def own_size(part: Part, operator: ModelOperator, held: Held) -> int:
    """Elements of each of its tensors that a rank has of its weights and gradients."""
    size = operator.parameters // operator.tensors
    if not size or part.plan.sharding != "fsdp":
        return size
    travels, rows = part.travels(operator), rows_of(part, operator)
    most = -(-rows // shared_over(part.plan, travels=travels).ranks)
    before = most * (held.experts if travels else held.dense)
    return size // rows * max(0, min(most, rows - before))
