"""PyTorch's own parallel pieces put round a model as a plan says, from the inside out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from emu.backend.rank.count import paused
from emu.model.model import Model
from emu.model.order import ORDERS
from emu.model.parallel.context import share_sequences
from emu.model.parallel.data import replicate, shard_states
from emu.model.parallel.mesh import part_of
from emu.model.parallel.recompute import recomputed
from emu.model.parallel.stage import shards_there, stages_here
from emu.model.parallel.tensor import shard_tensors
from emu.model.parallel.where import Held, held_of, local
from emu.model.plan import Plan

_DDP, _CHECKPOINT = "module.", "_checkpoint_wrapped_module."  # what PyTorch's pieces add to the names of parameters


@dataclass(frozen=True, slots=True)
class Parallel:
    """The modules of one rank, ready to train, and their parameters as they were right after wrapping.

    After the first forward DDP hides tensor-parallel weights from `named_parameters`: only this list has them all.
    """

    stages: Mapping[int, nn.Module]  # by number; without a pipeline the whole model is stage 0
    parameters: Mapping[str, nn.Parameter]  # by the name in the plain module
    held: Mapping[str, Held]  # which part of each is here

    @property
    def module(self) -> nn.Module:
        """The whole model, where there is no pipeline."""
        (module,) = self.stages.values()
        return module

    def gradients(self) -> dict[str, Tensor]:
        """This rank's part of each gradient: copies for the host to keep, which no rank is charged for."""
        with torch.no_grad(), paused():
            return {name: local(p.grad).clone() for name, p in self.parameters.items() if p.grad is not None}


def build_module(model: Model, plan: Plan, seed: int) -> nn.Module:
    """The whole module with the initial weights of `seed`, equal on every rank; the generator's state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = model.build(plan.seq)
    assert isinstance(module, nn.Module)
    return module


def alone(module: nn.Module) -> Parallel:
    """A module on one rank, as it is."""
    parameters = dict(module.named_parameters())
    return Parallel({0: module}, parameters, held_of(parameters.items()))


def parallelize(whole: nn.Module, model: Model, mesh: DeviceMesh, plan: Plan, rank: int) -> Parallel:
    """Lay a model over the ranks of a plan: what this rank has of it.

    Args:
        whole: The module, with equal weights on every rank: each keeps its own part, none is sent.
        model: Which it is.
        mesh: As `build_mesh`.
        plan: The sizes of the axes.
        rank: Which one is here.

    Raises:
        InputError: a path of the model's shards names nothing in the module, or its style is unknown.
    """
    parts = stages_here(whole, model, plan, rank) if plan.pp > 1 else {0: whole}
    wrapped = {number: _wrapped(part, model, mesh, plan, rank) for number, part in parts.items()}
    parameters = {name: parameter for each in wrapped.values() for name, parameter in each.parameters.items()}
    held = {name: part for each in wrapped.values() for name, part in each.held.items()}
    return Parallel({number: each.module for number, each in wrapped.items()}, parameters, held)


def _wrapped(module: nn.Module, model: Model, mesh: DeviceMesh, plan: Plan, rank: int) -> Parallel:
    tp, cp = part_of(mesh, "tp"), part_of(mesh, "cp")
    if cp is not None:
        share_sequences(module, cp, plan, plan.positions(rank))
    if tp is not None:
        shards = shards_there(module, model.shards) if plan.pp > 1 else model.shards
        shard_tensors(module, tp, shards, by_tokens=plan.sp)
    recomputed(module, plan.recompute)
    if plan.sharding == "fsdp":
        shard_states(module, mesh)
    held = held_of(_named(module))
    if plan.sharding != "fsdp" and not (plan.pp > 1 and ORDERS[plan.pipeline].splits):
        module = replicate(module, mesh)
    parameters = dict(_named(module))
    return Parallel({0: module}, parameters, {name: held[name] for name in parameters})


def _named(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters under their names in the plain module."""
    for name, parameter in module.named_parameters():
        yield name.removeprefix(_DDP).replace(_CHECKPOINT, ""), parameter
