"""PyTorch's own parallel pieces put round a model as a plan says, from the inside out."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from emu.backend.rank.count import pause_counting
from emu.model.model import Model
from emu.model.parallel.data import replicate, shard_states
from emu.model.parallel.experts import Reduced, blocks_of, cut_experts, localize
from emu.model.parallel.groups import route, route_all
from emu.model.parallel.later import loaded
from emu.model.parallel.mesh import Meshes, part_of
from emu.model.parallel.recompute import recomputed
from emu.model.parallel.stage import shards_there, stages_here
from emu.model.parallel.tensor import shard_tensors
from emu.model.parallel.tied import add_gradient, aliases_of, ends_group, with_aliases
from emu.model.parallel.where import Held, held_of, local
from emu.model.pipeline.order import ORDERS
from emu.model.plan.plan import Plan
from emu.model.shards import own_tokens

_DDP, _CHECKPOINT = "module.", "_checkpoint_wrapped_module."  # what PyTorch's pieces add to the names of parameters


@dataclass(frozen=True, slots=True)
class Parallel:
    """The modules of one rank, ready to train, and their parameters as they were right after wrapping.

    After the first forward DDP hides tensor-parallel weights from `named_parameters`: only this list has them all.
    """

    stages: Mapping[int, nn.Module]  # by number; without a pipeline the whole model is stage 0
    parameters: Mapping[str, nn.Parameter]  # by the name in the plain module
    held: Mapping[str, Held]  # which part of each is here
    travelling: Collection[str] = ()  # which parameters are of experts that tokens travel to
    reduced: Collection[Reduced] = ()  # their gradients, where FSDP2 has them not
    tied: Mapping[str, ProcessGroup] = field(default_factory=dict)  # of what has a copy in another stage, where both are

    @property
    def module(self) -> nn.Module:
        """The whole model, where there is no pipeline."""
        (module,) = self.stages.values()
        return module

    def settle(self) -> None:
        """Finish what backward passes have begun, before gradients are read."""
        for each in self.reduced:
            each.settle()
        for name, group in self.tied.items():
            add_gradient(self.parameters[name], group)

    def weights(self) -> dict[str, Tensor]:
        """This rank's part of each weight: copies, as of gradients."""
        with torch.no_grad(), pause_counting():
            return {name: local(p).clone() for name, p in self.parameters.items()}

    def gradients(self) -> dict[str, Tensor]:
        """This rank's part of each gradient: copies for the host to keep, which no rank is charged for."""
        with torch.no_grad(), pause_counting():
            return {name: local(p.grad).clone() for name, p in self.parameters.items() if p.grad is not None}


def build_module(model: Model, plan: Plan, seed: int) -> nn.Module:
    """The whole module with the initial weights of `seed`, equal on every rank; the generator's state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = model.build(plan.seq)
    assert isinstance(module, nn.Module)
    return module


def alone(module: nn.Module, plan: Plan) -> Parallel:
    """A module on one rank, which has the whole batch of a plan."""
    parameters = dict(module.named_parameters())
    route_all(module, plan)
    return Parallel({0: module}, parameters, held_of(parameters.items()))


def parallelize(whole: nn.Module, model: Model, meshes: Meshes, plan: Plan, rank: int) -> Parallel:
    """Lay a model over the ranks of a plan: what this rank has of it.

    Args:
        whole: The module, with equal weights on every rank: each keeps its own part, none is sent.
        model: Which it is.
        meshes: As `build_meshes`.
        plan: The sizes of the axes.
        rank: Which one is here.

    Raises:
        InputError: a path of the model's shards names nothing in the module, or its style is unknown.
    """
    aliases = aliases_of(whole) if plan.pp > 1 else {}
    copies = {} if plan.ends_meet else aliases  # where one rank has both ends they share the parameter as before
    parts = stages_here(whole, model, plan, rank) if plan.pp > 1 else {0: whole}
    shards = with_aliases(model.shards, copies)
    wrapped = {number: _wrapped(part, shards, meshes, plan, rank) for number, part in parts.items()}
    ends = ends_group(plan) if copies else None
    held = {name: part for each in wrapped.values() for name, part in each.held.items()}
    return Parallel(
        {number: each.module for number, each in wrapped.items()},
        {aliases.get(name, name): p for each in wrapped.values() for name, p in each.parameters.items()},
        {aliases.get(name, name): part._replace(again=name in copies) for name, part in held.items()},
        [name for each in wrapped.values() for name in each.travelling],
        [reduced for each in wrapped.values() for reduced in each.reduced],
        {first: ends for name, first in copies.items() if ends is not None and {name, first} & held.keys()},
    )


def _wrapped(module: nn.Module, shards: Mapping[str, str], meshes: Meshes, plan: Plan, rank: int) -> Parallel:
    _split(module, shards, meshes, plan, rank)
    route(module, plan)
    recomputed(module, plan.recompute)
    if plan.sharding == "fsdp":
        shard_states(module, meshes, plan)
    held = held_of(_named(module))
    blocks = blocks_of(module) if meshes.experts is not None else {}
    weights = [f"{name}.{own}" for name, block in blocks.items() for own, _ in block.named_parameters()]
    reduced: list[Reduced] = []
    if plan.sharding != "fsdp":
        localize(blocks.values())
        reduced = [Reduced(block.parameters(), meshes.group("edp"), plan) for block in blocks.values()]
    if plan.sharding != "fsdp" and not (plan.pp > 1 and ORDERS[plan.pipeline].splits):
        module = replicate(module, meshes.dense, weights)
    parameters = dict(_named(module))
    travelling = [_plain(name) for name in weights]
    return Parallel({0: module}, parameters, {name: held[name] for name in parameters}, travelling, reduced)


def _split(module: nn.Module, shards: Mapping[str, str], meshes: Meshes, plan: Plan, rank: int) -> None:
    """By context, experts and tensor parallelism, in place."""
    tp, cp = part_of(meshes.dense, "tp"), part_of(meshes.dense, "cp")
    if cp is not None:
        loaded("emu.model.parallel.context").share_sequences(module, cp, plan, plan.positions(rank))
    if meshes.experts is not None:
        cut_experts(module, meshes.experts, plan)
    if tp is not None:
        styles = own_tokens(shards) if meshes.experts is not None else shards
        shard_tensors(module, tp, shards_there(module, styles) if plan.pp > 1 else styles, by_tokens=plan.sp)


def _named(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters under their names in the plain module."""
    for name, parameter in module.named_parameters():
        yield _plain(name), parameter


def _plain(name: str) -> str:
    return name.removeprefix(_DDP).replace(_CHECKPOINT, "")
