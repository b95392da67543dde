"""One parameter in two modules: where a pipeline parts them, each end has a copy, and their gradients are added up.

Source: Megatron-LM, core/distributed/finalize_model_grads (the all-reduce of word embeddings).
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn

from emu.model.parallel.where import local
from emu.model.plan.plan import Plan
from emu.model.plan.ranks import ENDS


def aliases_of(whole: nn.Module) -> dict[str, str]:
    """The names that a shared parameter has beside its first one: that first one by each."""
    first: dict[nn.Parameter, str] = {}
    for name, parameter in whole.named_parameters(remove_duplicate=False):
        first.setdefault(parameter, name)
    every = whole.named_parameters(remove_duplicate=False)
    return {name: first[parameter] for name, parameter in every if first[parameter] != name}


def with_aliases(shards: Mapping[str, str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Styles by path, of the modules too that have a parameter under another name."""
    modules = {name.rpartition(".")[0]: first.rpartition(".")[0] for name, first in aliases.items()}
    return {**shards, **{name: shards[first] for name, first in modules.items() if first in shards}}


def ends_group(plan: Plan) -> dist.ProcessGroup | None:
    """Of the first and the last rank of the caller's pipeline, if it is one of them; every rank of the world calls it."""
    ends = [[group[0], group[-1]] for group in plan.groups("pp")]
    group, _ = dist.new_subgroups_by_enumeration(ends, group_desc=f"mesh_{ENDS}")  # type: ignore[no-untyped-call]
    return group if isinstance(group, dist.ProcessGroup) else None


@torch.no_grad()
def add_gradient(parameter: nn.Parameter, group: dist.ProcessGroup) -> None:
    """Leave both ends the sum of their gradients."""
    assert parameter.grad is not None
    dist.all_reduce(local(parameter.grad), group=group)
