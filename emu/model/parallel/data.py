"""Data parallelism: gradients averaged over the ranks that see other tokens, states whole on each or sharded over them."""

import warnings
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _compute_bucket_assignment_by_size
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

from emu.model.parallel.mesh import REPLICATE, SHARD, flat
from emu.model.parallel.where import local
from emu.model.plan import Plan

_BUCKET = 25 << 20  # bytes, DDP's
# What a model returns is a view, which nobody here changes.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def replicate(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """The module under DDP, over all ranks that see other tokens; itself where there is only one.

    Either way its parameters become local tensors, and so their gradients.
    """
    others = flat(mesh, "dp", "cp")
    if others is None or others.size() == 1:
        _pre_dp_module_transform(module)
        return module
    # Buffers are constants: broadcasting them would be time for nothing, and ranks of cp have tables of other positions.
    ignored = [name for name, _ in module.named_buffers()]
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


def shard_states(module: nn.Module, mesh: DeviceMesh) -> None:
    """Weights, gradients and optimizer states sharded by FSDP2, layer by layer; in place.

    Over dp and cp as one, or over the half of dp that shards, with copies over the other (HSDP).
    """
    over = flat(mesh, "dp", SHARD, "cp")
    if over is not None and REPLICATE in (mesh.mesh_dim_names or ()):
        over = DeviceMesh._concatenate([mesh[REPLICATE], over])
    for layer in module.get_submodule("layers").children():
        fully_shard(layer, mesh=over)
    fully_shard(module, mesh=over)


def optimizer_of(parameters: Iterable[nn.Parameter], plan: Plan, mesh: DeviceMesh | None, learning_rate: float) -> Optimizer:
    """AdamW, fused; one group of parameters for each mesh that they are sharded on."""
    others = flat(mesh, "dp", "cp") if mesh is not None else None
    if plan.sharding == "zero1" and others is not None:
        group = others.get_group()
        return ZeroRedundancyOptimizer(
            list(parameters), optimizer_class=AdamW, process_group=group, lr=learning_rate, fused=True
        )
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(parameter.device_mesh if isinstance(parameter, DTensor) else None, []).append(parameter)
    return AdamW([{"params": each} for each in groups.values()], lr=learning_rate, fused=True)
