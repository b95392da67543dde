"""The groups of tokens that are routed together: an expert's capacity and balance count the tokens of one rank in one pass.

Which tokens an expert drops, and what the balancing loss is, depends on the tokens that are routed together. GShard's groups
are the tokens that a rank sees at once, so that no rank must ask another. A single process with the whole batch therefore uses
the same groups: each goes through the block in turn. Otherwise the two would drop other tokens and could not be compared.

The balancing loss is the mean over all groups. Megatron-LM takes tokens of tp and cp together for this loss, and only for it.

Source: Lepikhin et al., GShard (2020), section 2.2 (local group dispatching); Fedus et al., Switch Transformers (2021).
"""

import numpy as np
import torch
from torch import Tensor, nn

from emu.arrays import I64
from emu.model.parts.expert_block import ExpertBlock, limit_capacity
from emu.model.parts.token_routing import set_balance
from emu.model.plan.plan import Plan
from emu.model.plan.rank_axes import cp_positions


def set_routing(module: nn.Module, plan: Plan) -> None:
    """Set the capacity of a rank's experts and the weight of their balancing loss as a plan says, in place."""
    limit_capacity(module, plan.capacity)
    set_balance(module, 1 / (plan.passes * _cuts(plan)))


def set_routing_of_batch(module: nn.Module, plan: Plan) -> None:
    """Set capacity and balancing loss for the whole batch on one process, with the groups of a plan's ranks, in place."""
    groups = token_groups(plan)
    limit_capacity(module, plan.capacity)
    set_balance(module, 1 / len(groups))
    for name, block in list(module.named_modules()) if len(groups) > 1 else ():
        if isinstance(block, ExpertBlock):
            parent, _, own = name.rpartition(".")
            setattr(module.get_submodule(parent), own, _GroupwiseBlock(block, groups))


def token_groups(plan: Plan) -> I64:
    """Return [groups, tokens] the tokens of [global batch, seq], flattened, that each rank routes in each pass, in order."""
    own = [cp_positions(place, plan.cp, plan.seq).reshape(_cuts(plan), -1) for place in range(plan.cp)]
    sequences = np.arange(plan.global_batch).reshape(-1, 1, plan.pass_batch, 1)
    return (sequences * plan.seq + np.concatenate(own)[:, None]).reshape(-1, plan.pass_batch * own[0].shape[1])


def _cuts(plan: Plan) -> int:
    """Return the number of ranks that divide one rank's tokens before a block of experts."""
    return plan.tp if plan.exchanges else 1


class _GroupwiseBlock(nn.Module):
    """A block of experts that takes one group of tokens after another."""

    def __init__(self, block: nn.Module, groups: I64) -> None:
        super().__init__()
        self.block, self._groups = block, torch.from_numpy(groups)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, T, hidden] to [B, T, hidden]."""
        flat = x.flatten(0, -2)
        out = torch.cat([self.block(flat[group][None])[0] for group in self._groups])
        return out[self._groups.flatten().argsort()].view_as(x)
