"""Data parallelism: gradients averaged over the ranks that see other tokens, states whole on each or sharded over them."""

import inspect
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _compute_bucket_assignment_by_size
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

from emu.model.parallel.experts import blocks_of
from emu.model.parallel.later import loaded
from emu.model.parallel.mesh import Meshes, flat, part_of
from emu.model.parallel.where import local
from emu.model.plan.plan import Plan
from emu.model.plan.ranks import REPLICATE, SHARD

_BUCKET = 25 << 20  # bytes, DDP's
# What a model returns is a view, which nobody here changes.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def replicate(module: nn.Module, mesh: DeviceMesh, left_out: Iterable[str] = ()) -> nn.Module:
    """The module under DDP, over all ranks that see other tokens; itself where there is only one.

    Either way its parameters become local tensors, and so their gradients. Those left out, by name, are not averaged.
    """
    others = flat(mesh, "dp", REPLICATE, SHARD, "cp")
    if others is None or others.size() == 1:
        _pre_dp_module_transform(module)
        return module
    # Buffers are constants: broadcasting them would be time for nothing, and ranks of cp have tables of other positions.
    ignored = [*left_out, *(name for name, _ in module.named_buffers())]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ignored)  # type: ignore[no-untyped-call]
    return DistributedDataParallel(module, device_mesh=others, forward_sync_buffers=False)


def average(gradients: Sequence[Tensor], over: DeviceMesh) -> None:
    """Average gradients in place, a bucket of DDP's size at a time, the last first."""
    parts = [local(each) for each in reversed(gradients)]
    buckets, _ = _compute_bucket_assignment_by_size(parts, [_BUCKET])
    for bucket in buckets:
        flat = torch.cat([parts[i].flatten() for i in bucket]).div_(over.size())
        dist.all_reduce(flat, group=over.get_group())
        pieces = torch.split(flat, [parts[i].numel() for i in bucket])
        for i, piece in zip(bucket, pieces, strict=True):
            parts[i].copy_(piece.view_as(parts[i]))


def shard_states(module: nn.Module, meshes: Meshes, plan: Plan) -> None:
    """Weights, gradients and optimizer states sharded by FSDP2, layer by layer; in place.

    Over dp and cp as one, or over the half of dp that shards, with copies over the other (HSDP). Experts whose tokens travel
    are sharded block by block over what is left beside them.
    """
    mesh = meshes.dense
    over = flat(mesh, "dp", SHARD, "cp")
    if over is not None and REPLICATE in (mesh.mesh_dim_names or ()):
        over = DeviceMesh._concatenate([mesh[REPLICATE], over])
    beside = part_of(meshes.experts, "edp")
    for experts in blocks_of(module).values() if beside is not None else ():
        block: FSDPModule = fully_shard(experts, mesh=beside)
        block.set_gradient_divide_factor(plan.dp * plan.cp)
        # A sum, then the division: only NCCL has them in one. Of one rank PyTorch would divide twice.
        block.set_force_sum_reduction_for_comms(beside is not None and beside.size() > 1)
    for layer in module.get_submodule("layers").children():
        fully_shard(layer, mesh=over)
    fully_shard(module, mesh=over)


def optimizer_of(
    parameters: Mapping[str, nn.Parameter], travelling: Collection[str], plan: Plan, meshes: Meshes | None, learning_rate: float
) -> Optimizer:
    """AdamW, fused: under ZeRO-1 one over each group of ranks that share states, else one over all.

    Args:
        parameters: Of this rank, by name.
        travelling: Which of them are of experts that tokens travel to.
        plan: Which states are shared.
        meshes: Of all axes; None on one rank alone.
        learning_rate: Of AdamW.
    """
    if plan.sharding != "zero1" or meshes is None:
        return _adamw(parameters.values(), None, learning_rate)
    dense = [p for name, p in parameters.items() if name not in travelling]
    experts = [parameters[name] for name in travelling]
    over = (flat(meshes.dense, "dp", SHARD, "cp"), part_of(meshes.experts, "edp"))
    parts = [_adamw(each, mesh, learning_rate) for each, mesh in zip((dense, experts), over, strict=True) if each]
    return parts[0] if len(parts) == 1 else _Several(parts)


class Stated(NamedTuple):
    """A parameter whose states are here."""

    parameter: nn.Parameter  # of the module
    of: nn.Parameter  # whose states they are: itself, or what is here of it
    states: dict[str, Any]  # of AdamW, by name; none before its first step


def stated(optimizer: Optimizer) -> Iterator[Stated]:
    """The parameters whose states are here, of what `optimizer_of` makes: under ZeRO-1 those that this rank steps."""
    if isinstance(optimizer, _Several):
        for part in optimizer.parts:
            yield from stated(part)
    elif isinstance(optimizer, _OfParts):
        whole = {part: parameter for parameter, part in optimizer.parts.items()}
        yield from (each._replace(parameter=whole[each.of]) for each in stated(optimizer.own))
    else:
        of = (parameter for group in optimizer.param_groups for parameter in group["params"])
        yield from (Stated(parameter, parameter, optimizer.state[parameter]) for parameter in of)


class _Several(Optimizer):
    """Optimizers that step as one."""

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        super().__init__([{"params": group["params"]} for part in parts for group in part.param_groups], {})
        self.parts = parts

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Of each in turn."""
        for part in self.parts:
            part.step(closure)


class _OfParts(Optimizer):
    """States shared out over a mesh, of what is here of each parameter: AdamW takes no DTensors beside plain tensors."""

    def __init__(self, parameters: Sequence[nn.Parameter], shared: DeviceMesh, learning_rate: float) -> None:
        super().__init__([{"params": [*parameters]}], {})
        self.parts = {p: nn.Parameter(local(p.detach())) for p in parameters}
        group, all_parts = shared.get_group(), [*self.parts.values()]
        sharing = loaded("torch.distributed.optim")
        self._optimizer = sharing.ZeroRedundancyOptimizer(all_parts, _AdamW, group, lr=learning_rate, fused=True)

    @property
    def own(self) -> Optimizer:
        """AdamW of those that this rank steps."""
        return cast("Optimizer", self._optimizer.optim)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Of the gradients as they are now, which are not kept."""
        for parameter, part in self.parts.items():
            part.grad = None if parameter.grad is None else local(parameter.grad)
        self._optimizer.step(closure)
        for part in self.parts.values():
            part.grad = None


class _AdamW(AdamW):
    """As PyTorch's, and nothing of it is compiled: asked whether it is, PyTorch loads its compiler, longer than most runs."""

    step = torch.no_grad()(inspect.unwrap(AdamW.step))
    zero_grad = inspect.unwrap(AdamW.zero_grad)
    add_param_group = inspect.unwrap(AdamW.add_param_group)


def _adamw(parameters: Iterable[nn.Parameter], shared: DeviceMesh | None, learning_rate: float) -> Optimizer:
    """With states shared out over a mesh; or with one group of parameters for each mesh that they are sharded on."""
    if shared is not None and shared.size() > 1:
        return _OfParts([*parameters], shared, learning_rate)
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(parameter.device_mesh if isinstance(parameter, DTensor) else None, []).append(parameter)
    return _AdamW([{"params": each} for each in groups.values()], lr=learning_rate, fused=True)
