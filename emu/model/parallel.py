"""PyTorch's own parallel pieces put round a module as a plan says: DTensor tensor parallelism inside, DDP outside."""

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.nn.parallel import DistributedDataParallel

from emu.backend.rank.count import paused
from emu.errors import must_be
from emu.model.model import Model
from emu.model.plan import Plan
from emu.registry import unknown

STYLES: Mapping[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    # Several products that read one input: their input gradients are added before one all_reduce, not after one each.
    "shared": lambda: PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),)),
    "vocabulary": lambda: RowwiseParallel(input_layouts=Replicate()),
    "gathered": lambda: ColwiseParallel(output_layouts=Replicate()),
}


@dataclass(frozen=True, slots=True)
class Parallel:
    """A module that is ready to train, and its parameters as they were right after wrapping.

    After the first forward DDP hides tensor-parallel weights from `named_parameters`: only this list has them all.
    """

    module: nn.Module
    parameters: Mapping[str, nn.Parameter]  # this rank's shards, by the name in the plain module
    shard_dim: Mapping[str, int]  # of those that are cut: the dimension

    def gradients(self) -> dict[str, Tensor]:
        """This rank's shard of each gradient: copies for the host to keep, which no rank is charged for."""
        with torch.no_grad(), paused():
            return {name: p.grad.clone() for name, p in self.parameters.items() if p.grad is not None}


def build_module(model: Model, plan: Plan, seed: int) -> nn.Module:
    """The whole module with the initial weights of `seed`, equal on every rank; the generator's state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = model.build(plan.seq)
    assert isinstance(module, nn.Module)
    return module


def build_mesh(plan: Plan) -> DeviceMesh:
    """The mesh of the plan's axes, slowest first, on the default process group."""
    return init_device_mesh("cpu", (plan.dp, plan.tp), mesh_dim_names=("dp", "tp"))


def parallelize(module: nn.Module, mesh: DeviceMesh, plan: Plan, shards: Mapping[str, str]) -> Parallel:
    """Shard the module over tp and replicate it over dp, in place.

    Args:
        module: The whole module, with equal weights on every rank: each keeps its own shard, none is sent.
        mesh: With the dimensions "dp" and "tp".
        plan: The sizes of the axes.
        shards: Style by module path, as `Model.shards`.

    Raises:
        InputError: a path of `shards` names nothing in the module, or its style is unknown.
    """
    if plan.tp > 1:
        parallelize_module(module, mesh["tp"], _styles(module, shards), src_data_rank=None)
    shard_dim = {name: _cut(p) for name, p in module.named_parameters() if isinstance(p, DTensor)}
    if plan.dp > 1:
        # Buffers are constants of the model: broadcasting them at every forward would be time for nothing.
        module = DistributedDataParallel(module, device_mesh=mesh["dp"], forward_sync_buffers=False)
    elif plan.tp > 1:
        # As DDP does: parameters become local tensors, and so their gradients shards (DTensor's of an embedding is whole).
        _pre_dp_module_transform(module)
    kept = {name.removeprefix("module."): p for name, p in module.named_parameters()}
    return Parallel(module, kept, shard_dim)


def _styles(module: nn.Module, shards: Mapping[str, str]) -> dict[str, ParallelStyle]:
    names = [name for name, _ in module.named_modules()]
    for path, style in shards.items():
        if not fnmatch.filter(names, path):
            raise must_be("model", "a path of its shards", "the name of a module", path)
        if style not in STYLES:
            raise unknown("style of a shard", style, STYLES)
    return {path: STYLES[style]() for path, style in shards.items()}


def _cut(parameter: DTensor) -> int:
    (placement,) = parameter.placements
    assert isinstance(placement, Shard), placement
    return placement.dim
