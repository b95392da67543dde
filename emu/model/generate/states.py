"""The share of each rank in the states that ranks divide, and the roles of ranks that do the same.

Divided are weights, gradients and the optimizer's state, or the last alone.
States of experts that tokens travel to are divided among the ranks that have copies of them (`edp`); all others among those
of dp, or of a part of it, and of cp. FSDP2 cuts each parameter along its first dimension, as `torch.chunk` does: of 5 rows on
4 ranks the first two have 2, the third 1 and the last none.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.model.generate.part import Part
from emu.model.generate.tape import Tape
from emu.model.memory.step_memory import PeakBytes
from emu.model.operator import LOOKUP, ModelOperator
from emu.model.plan.plan import Plan
from emu.model.plan.rank_axes import SHARD
from emu.model.routed_rows import RoutedOf


class WeightGroup(NamedTuple):
    """The weights that are gathered at once: a layer, its experts that tokens travel to, or the root."""

    place: int  # of the layer; the root has none, and comes first
    experts: bool = False


ROOT = WeightGroup(-1)


class WeightGroupSizes(NamedTuple):
    """The size of a `WeightGroup` on a rank before it is sharded."""

    elements: int
    padded: int  # the same, filled up so that all ranks have parts as large as the first's


class SharingGroup(NamedTuple):
    """The group of ranks that divide states."""

    axis: str
    ranks: int


class StateShare(NamedTuple):
    """The share of a rank: its place among the ranks that divide the states."""

    dense: int  # of what all tokens see
    experts: int  # of experts that tokens travel to


def sharing_group(plan: Plan, *, travels: bool) -> SharingGroup:
    """Return the group that divides the states of experts that tokens travel to (`travels`), or all other states."""
    if travels:
        return SharingGroup("edp", 1 if not plan.shards_states else plan.sizes["edp"])
    return SharingGroup(("dp" if plan.sharded == plan.dp else SHARD) + ("_cp" if plan.copies > plan.dp else ""), plan.holders)


def ranks_by_share(plan: Plan, ranks: I64) -> list[tuple[StateShare, I64]]:
    """Return ranks, as numbers in their stage, by their share."""
    at = plan.places(ranks)
    dense = plan.copy_numbers(ranks) % plan.holders
    experts = at["edp"] if plan.exchanges and plan.shards_states else 0 * ranks
    parts, part = np.unique(np.stack((dense, experts)), axis=1, return_inverse=True)
    return [(StateShare(*own), ranks[part.reshape(-1) == number]) for number, own in enumerate(parts.T.tolist())]


def group_equal_sizes(
    parts: Sequence[Part], plan: Plan, of: list[tuple[StateShare, I64]]
) -> list[list[tuple[StateShare, I64]]]:
    """Return the shares in groups, in each of which the shares of the gradients have equal sizes."""
    if not plan.shards_weights:
        return [of]
    unlike = {part.name: part for part in parts}.values()
    met: dict[tuple[int, ...], list[tuple[StateShare, I64]]] = {}
    for held, ranks in of:
        sizes = tuple(own_size(part, operator, held) for part in unlike for operator in part.operators)
        met.setdefault(sizes, []).append((held, ranks))
    return [*met.values()]


def rows_of(part: Part, operator: ModelOperator) -> int:
    """Return the rows in the first dimension of each of an operator's tensors: experts, output columns, or words."""
    if operator.experts:
        return operator.experts
    if operator.shape:
        return operator.shape[1]
    return operator.parameters // (part.model.hidden if operator.kind == LOOKUP else operator.tensors)


def padded_elements(part: Part, operator: ModelOperator, ranks: int) -> int:
    """Return the elements of an operator's tensors if each rank had as many rows as the first."""
    rows = rows_of(part, operator)
    return operator.parameters // rows * -(-rows // ranks) * ranks


def own_size(part: Part, operator: ModelOperator, held: StateShare) -> int:
    """Return the elements of each of an operator's tensors that a rank has as weights and gradients."""
    size = operator.parameters // operator.tensors
    if not size or not part.plan.shards_weights:
        return size
    travels, rows = part.travels(operator), rows_of(part, operator)
    most = -(-rows // sharing_group(part.plan, travels=travels).ranks)
    before = most * (held.experts if travels else held.dense)
    return size // rows * max(0, min(most, rows - before))


class Role(NamedTuple):
    """The step of some ranks at one place of their pipelines."""

    tape: Tape
    ranks: I64  # of the run
    held: StateShare  # of the states, where each rank has a part of its own
    peak: PeakBytes
    routed: RoutedOf | None = None  # rows that travel in each pass of each layer; None: the software spreads them evenly
    at: int = 0  # their place in a ring of cp
    even: bool = True  # whether all ranks for which the same rows travel have as much of the states


def ring_ranks(plan: Plan, ranks: I64, at: int) -> I64:
    """Return the ranks, of some, at a place in their ring of cp."""
    there: I64 = ranks[plan.places(ranks)["cp"] % plan.ring == at]
    return there
