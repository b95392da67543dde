"""The model on one rank: PyTorch's parallel modules, wrapped round it as the plan says.

A stage of a pipeline is a module of its own. If a pipeline separates two modules that share a parameter, each end has a copy,
and the gradients are summed. Source: Megatron-LM, core/distributed/finalize_model_grads (the all-reduce of word embeddings).

Which tokens an expert drops, and what the balancing loss is, depends on the tokens that are routed together. GShard's groups
are the tokens that a rank has at one time, so that no rank must ask another. A single process with the whole batch therefore
uses the same groups: each goes through the block in turn. Otherwise the two would drop other tokens and could not be compared.
The balancing loss is the mean over all groups. Megatron-LM takes tokens of tp and cp together for this loss, and only for it.
Source: Lepikhin et al., GShard (2020), section 2.2 (local group dispatching); Fedus et al., Switch Transformers (2021).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from emu.arrays import I64
from emu.backend.rank.operator_counter import pause_counting
from emu.model.model import Model, own_tokens
from emu.model.parallel.context_parallel import wrap_recomputation
from emu.model.parallel.data_parallel import replicate, shard_states
from emu.model.parallel.expert_parallel import ExpertGradientSum, blocks_of, localize, shard_experts
from emu.model.parallel.mesh import Meshes, ParameterPart, local_tensor, parameter_parts, sub_mesh
from emu.model.parallel.tensor_parallel import module_names, shard_tensors
from emu.model.parts.expert_block import ExpertBlock, limit_capacity
from emu.model.parts.token_routing import set_balance
from emu.model.pipeline_order import ORDERS
from emu.model.plan.plan import ENDS, Plan, cp_positions
from emu.model.plan.stage_layers import stage_layers


def set_routing(module: nn.Module, plan: Plan) -> None:
    """Set the capacity of experts and the weight of their balancing loss for a rank of the plan, in place."""
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
    """Return the number of ranks among which one rank's tokens are divided before a block of experts."""
    return plan.tp if plan.exchanges else 1


class _GroupwiseBlock(nn.Module):
    """A module that passes groups of tokens through a block of experts, one group after another."""

    def __init__(self, block: nn.Module, groups: I64) -> None:
        super().__init__()
        self.block, self._groups = block, torch.from_numpy(groups)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, T, hidden] to [B, T, hidden]."""
        flat = x.flatten(0, -2)
        out = torch.cat([self.block(flat[group][None])[0] for group in self._groups])
        return out[self._groups.flatten().argsort()].view_as(x)


_DDP, _CHECKPOINT = "module.", "_checkpoint_wrapped_module."  # prefixes that PyTorch's wrappers add to the names of parameters


@dataclass(frozen=True, slots=True)
class ParallelModel:
    """The modules of one rank, ready to train, with all of their parameters by name.

    After the first forward pass DDP hides tensor-parallel weights from `named_parameters`; only this list has them all.
    """

    stages: Mapping[int, nn.Module]  # by number; without a pipeline the whole model is stage 0
    parameters: Mapping[str, nn.Parameter]  # by the name in the plain module
    held: Mapping[str, ParameterPart]  # the part of each parameter on this rank
    travelling: Collection[str] = ()  # the names of the parameters of experts to which tokens travel
    reduced: Collection[ExpertGradientSum] = ()  # the gradients of experts that FSDP2 does not handle
    tied: Mapping[str, ProcessGroup] = field(
        default_factory=dict
    )  # the group of both ends for each parameter that has a copy in another stage

    @property
    def module(self) -> nn.Module:
        """The module of the whole model; only without a pipeline."""
        (module,) = self.stages.values()
        return module

    @torch.no_grad()
    def settle(self) -> None:
        """Finish the gradient reductions that backward passes have begun, and sum tied gradients."""
        for each in self.reduced:
            each.settle()
        for name, group in self.tied.items():
            gradient = self.parameters[name].grad
            assert gradient is not None
            dist.all_reduce(local_tensor(gradient), group=group)

    def weights(self) -> dict[str, Tensor]:
        """Return copies of this rank's block of each weight, by name."""
        with torch.no_grad(), pause_counting():
            return {name: local_tensor(p).clone() for name, p in self.parameters.items()}

    def gradients(self) -> dict[str, Tensor]:
        """Return copies of this rank's block of each gradient, by name; the copies are not counted as work of a rank."""
        with torch.no_grad(), pause_counting():
            return {name: local_tensor(p.grad).clone() for name, p in self.parameters.items() if p.grad is not None}


def build_module(model: Model, plan: Plan, seed: int) -> nn.Module:
    """Return the whole module with the initial weights of `seed`, equal on every rank; the generator's state stays."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = model.build(plan.seq)
    assert isinstance(module, nn.Module)
    return module


def single_rank_model(module: nn.Module, plan: Plan) -> ParallelModel:
    """Return the model on a single rank that has the whole batch of a plan."""
    parameters = dict(module.named_parameters())
    set_routing_of_batch(module, plan)
    return ParallelModel({0: module}, parameters, parameter_parts(parameters.items()))


def parallelize(whole: nn.Module, model: Model, meshes: Meshes, plan: Plan, rank: int) -> ParallelModel:
    """Return the model that this rank runs under a plan: its layers, and its block of each weight.

    Args:
        whole: The module, with equal weights on every rank: each keeps its own part, and none is sent.
        model: The model of the module.
        meshes: The meshes of the plan, see `build_meshes`.
        plan: The plan, with the sizes of the axes.
        rank: The rank.

    Raises:
        InputError: a path of the model's shards names nothing in the module, or its style is unknown.
    """
    aliases = aliases_of(whole) if plan.pp > 1 else {}
    copies = {} if plan.ends_meet else aliases  # if one rank has both ends, these share the parameter
    parts = stage_modules(whole, model, plan, rank) if plan.pp > 1 else {0: whole}
    shards = with_aliases(model.shards, copies)
    wrapped = {number: _wrap(part, shards, meshes, plan, rank) for number, part in parts.items()}
    ends = embedding_group(plan) if copies else None
    held = {name: part for each in wrapped.values() for name, part in each.held.items()}
    return ParallelModel(
        {number: each.module for number, each in wrapped.items()},
        {aliases.get(name, name): p for each in wrapped.values() for name, p in each.parameters.items()},
        {aliases.get(name, name): part._replace(again=name in copies) for name, part in held.items()},
        [name for each in wrapped.values() for name in each.travelling],
        [reduced for each in wrapped.values() for reduced in each.reduced],
        {first: ends for name, first in copies.items() if ends is not None and {name, first} & held.keys()},
    )


def _wrap(module: nn.Module, shards: Mapping[str, str], meshes: Meshes, plan: Plan, rank: int) -> ParallelModel:
    _shard(module, shards, meshes, plan, rank)
    set_routing(module, plan)
    wrap_recomputation(module, plan.recompute)
    if plan.shards_weights:
        shard_states(module, meshes, plan)
    held = parameter_parts(_named_parameters(module))
    blocks = blocks_of(module) if meshes.experts is not None else {}
    weights = [f"{name}.{own}" for name, block in blocks.items() for own, _ in block.named_parameters()]
    reduced: list[ExpertGradientSum] = []
    if not plan.shards_weights:
        localize(blocks.values())
        reduced = [ExpertGradientSum(block.parameters(), meshes.group("edp"), plan) for block in blocks.values()]
    if not plan.shards_weights and not (plan.pp > 1 and ORDERS[plan.pipeline].splits):
        module = replicate(module, meshes.dense, weights)
    parameters = dict(_named_parameters(module))
    travelling = [_plain(name) for name in weights]
    return ParallelModel({0: module}, parameters, {name: held[name] for name in parameters}, travelling, reduced)


def _shard(module: nn.Module, shards: Mapping[str, str], meshes: Meshes, plan: Plan, rank: int) -> None:
    """Shard a module in place: by tokens (context parallelism), by experts, and by tensor parallelism."""
    tp, cp = sub_mesh(meshes.dense, "tp"), sub_mesh(meshes.dense, "cp")
    if cp is not None:
        with pause_counting():  # it loads slowly, and operators run while it loads
            from emu.model.parallel.context_parallel import shard_sequences
        shard_sequences(module, cp, plan, plan.positions(rank))
    if meshes.experts is not None:
        shard_experts(module, meshes.experts, plan)
    if tp is not None:
        styles = own_tokens(shards) if meshes.experts is not None else dict(shards)
        if plan.pp > 1:  # a stage has some of the modules
            styles = {path: style for path, style in styles.items() if module_names(module, path)}
        shard_tensors(module, tp, styles, by_tokens=plan.sp)


def _named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters under their names in the plain module."""
    for name, parameter in module.named_parameters():
        yield _plain(name), parameter


def _plain(name: str) -> str:
    return name.removeprefix(_DDP).replace(_CHECKPOINT, "")


def aliases_of(whole: nn.Module) -> dict[str, str]:
    """Return the further names of shared parameters, each with the first name of its parameter."""
    first: dict[nn.Parameter, str] = {}
    for name, parameter in whole.named_parameters(remove_duplicate=False):
        first.setdefault(parameter, name)
    every = whole.named_parameters(remove_duplicate=False)
    return {name: first[parameter] for name, parameter in every if first[parameter] != name}


def with_aliases(shards: Mapping[str, str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the parallel styles by path, including modules whose parameter has a second name."""
    modules = {name.rpartition(".")[0]: first.rpartition(".")[0] for name, first in aliases.items()}
    return {**shards, **{name: shards[first] for name, first in modules.items() if first in shards}}


def embedding_group(plan: Plan) -> dist.ProcessGroup | None:
    """Return the group of the first and the last rank of the caller's pipeline, or None; every rank of the world calls this."""
    ends = [[group[0], group[-1]] for group in plan.groups("pp")]
    group, _ = dist.new_subgroups_by_enumeration(ends, group_desc=f"mesh_{ENDS}")  # type: ignore[no-untyped-call]
    return group if isinstance(group, dist.ProcessGroup) else None


_FIRST, _LAST = ("embedding",), ("norm", "output")  # modules outside `layers`, at the first and at the last stage


class StageModule(nn.Module):
    """Some layers of a model as a module, with the embedding if they are the first and the head if they are the last.

    Every module and parameter has the name that it has in the whole model.
    """

    def __init__(self, whole: nn.Module, layers: range, n_layers: int) -> None:
        super().__init__()
        for name in _FIRST if layers.start == 0 else ():
            self.add_module(name, whole.get_submodule(name))
        every = list(whole.get_submodule("layers").children())
        self.layers = nn.ModuleDict({str(number): every[number] for number in layers})
        for name in _LAST if layers.stop == n_layers else ():
            self.add_module(name, whole.get_submodule(name))

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens [B, T], or the stage before's result [B, T, hidden], to the next stage's input or logits [B, T, vocab]."""
        for part in self.children():
            for module in part.values() if isinstance(part, nn.ModuleDict) else (part,):
                x = module(x)
        return x


def stage_modules(whole: nn.Module, model: Model, plan: Plan, rank: int) -> dict[int, StageModule]:
    """Return the stages of a rank, by number, in the order of the model."""
    sizes = stage_layers(plan, model)
    first = [sum(sizes[:number]) for number in range(len(sizes))]
    return {
        number: StageModule(whole, range(first[number], first[number] + sizes[number]), model.layers)
        for number in plan.stages_of(rank)
    }
