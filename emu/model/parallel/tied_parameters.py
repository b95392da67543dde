"""Parameters that two modules share: if a pipeline separates these, each end has a copy, and the gradients are summed.

Source: Megatron-LM, core/distributed/finalize_model_grads (the all-reduce of word embeddings).
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn

from emu.model.parallel.parameter_part import local_tensor
from emu.model.plan.plan import Plan
from emu.model.plan.rank_axes import ENDS


def aliases_of(whole: nn.Module) -> dict[str, str]:
    """Return the further names of shared parameters, each with the first name of its parameter."""
    first: dict[nn.Parameter, str] = {}
    for name, parameter in whole.named_parameters(remove_duplicate=False):
        first.setdefault(parameter, name)
    every = whole.named_parameters(remove_duplicate=False)
    return {name: first[parameter] for name, parameter in every if first[parameter] != name}


def with_aliases(shards: Mapping[str, str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the styles by path, with those of modules that have a parameter under another name."""
    modules = {name.rpartition(".")[0]: first.rpartition(".")[0] for name, first in aliases.items()}
    return {**shards, **{name: shards[first] for name, first in modules.items() if first in shards}}


def embedding_group(plan: Plan) -> dist.ProcessGroup | None:
    """Return the group of the first and the last rank of the caller's pipeline, or None; every rank of the world calls this."""
    ends = [[group[0], group[-1]] for group in plan.groups("pp")]
    group, _ = dist.new_subgroups_by_enumeration(ends, group_desc=f"mesh_{ENDS}")  # type: ignore[no-untyped-call]
    return group if isinstance(group, dist.ProcessGroup) else None


@torch.no_grad()
def add_gradient(parameter: nn.Parameter, group: dist.ProcessGroup) -> None:
    """Sum a parameter's gradient over both ends of the pipeline, in place."""
    assert parameter.grad is not None
    dist.all_reduce(local_tensor(parameter.grad), group=group)
