"""Groups of tokens: capacity and balance of experts are of the tokens that one rank routes in one pass.

Which tokens an expert drops, and what the balancing loss is, depends on the tokens that are looked at together. GShard's groups
are what a rank sees at once, so that no rank must ask another. One process on the whole batch therefore takes the same groups:
each in turn goes through the block. Without it the two would drop other tokens, and could not be compared.

The balancing loss is the mean over all groups. Megatron-LM takes tokens of tp and cp together for it, and only for it.

Source: Lepikhin et al., GShard (2020), section 2.2 (local group dispatching); Fedus et al., Switch Transformers (2021).
"""

import numpy as np
import torch
from torch import Tensor, nn

from emu.arrays import I64
from emu.model.parts.experts import Sparse, limit
from emu.model.parts.routing import balance
from emu.model.plan.plan import Plan
from emu.model.plan.ranks import chunks


def route(module: nn.Module, plan: Plan) -> None:
    """Let the experts of a rank have a capacity, and their balance take part in its loss, as a plan says; in place."""
    limit(module, plan.capacity)
    balance(module, 1 / (plan.passes * _cuts(plan)))


def route_all(module: nn.Module, plan: Plan) -> None:
    """The same of the whole batch on one process, by the groups of that plan's ranks; in place."""
    groups = token_groups(plan)
    limit(module, plan.capacity)
    balance(module, 1 / len(groups))
    for name, block in list(module.named_modules()) if len(groups) > 1 else ():
        if isinstance(block, Sparse):
            parent, _, own = name.rpartition(".")
            setattr(module.get_submodule(parent), own, _InTurn(block, groups))


def token_groups(plan: Plan) -> I64:
    """[groups, tokens]: which tokens of [global batch, seq], flattened, each rank routes in each pass, in its order."""
    own = [chunks(place, plan.cp, plan.seq).reshape(_cuts(plan), -1) for place in range(plan.cp)]
    sequences = np.arange(plan.global_batch).reshape(-1, 1, plan.pass_batch, 1)
    return (sequences * plan.seq + np.concatenate(own)[:, None]).reshape(-1, plan.pass_batch * own[0].shape[1])


def _cuts(plan: Plan) -> int:
    """Ranks that cut one rank's tokens before a block of experts."""
    return plan.tp if plan.exchanges else 1


class _InTurn(nn.Module):
    """A block that takes one group of tokens after the other."""

    def __init__(self, block: nn.Module, groups: I64) -> None:
        super().__init__()
        self.block, self._groups = block, torch.from_numpy(groups)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]."""
        flat = x.flatten(0, -2)
        out = torch.cat([self.block(flat[group][None])[0] for group in self._groups])
        return out[self._groups.flatten().argsort()].view_as(x)
