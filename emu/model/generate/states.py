"""Who has which part of the states where ranks share them: weights, gradients and the optimizer's, or the last alone.

States of experts that tokens travel to are shared by the ranks that have copies of them (`edp`); all others by those of dp,
or of a part of it, and of cp.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.model.plan import Plan
from emu.model.ranks import SHARD


class Held(NamedTuple):
    """The part of a rank, by its place among those that share the states."""

    dense: int  # of what all tokens see
    experts: int  # of experts that tokens travel to


def shard_axis(plan: Plan) -> str:
    """The axis over which states of what all tokens see are sharded."""
    return ("dp" if plan.sharded == plan.dp else SHARD) + ("_cp" if plan.cp > 1 else "")


def held_by(plan: Plan, ranks: I64) -> list[tuple[Held, I64]]:
    """Ranks, numbers in their stage, by the part that they have."""
    dense = ranks // plan.tp % (plan.cp * plan.dp) % plan.holders
    experts = ranks // (plan.ep * plan.expert_tp) if plan.exchanges and plan.sharding != "ddp" else 0 * ranks
    parts, part = np.unique(np.stack((dense, experts)), axis=1, return_inverse=True)
    return [(Held(*own), ranks[part.reshape(-1) == number]) for number, own in enumerate(parts.T.tolist())]
