"""Data parallelism: gradients are averaged over the ranks with other tokens; states are whole or sharded.

The gradients of several passes of a step add up and are reduced once.
Gradient clipping uses a norm over all ranks: each rank sums its own parts, then the axes that shard the parts sum these.
"""

import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

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

from emu.backend.rank.operator_counter import pause_counting
from emu.model.parallel.expert_parallel import blocks_of
from emu.model.parallel.mesh import Meshes, ParameterPart, flat_mesh, local_tensor, sub_mesh
from emu.model.plan.plan import REPLICATE, SHARD, Plan


def clip_gradients(
    parameters: Mapping[str, nn.Parameter], held: Mapping[str, ParameterPart], meshes: Meshes | None, limit: float
) -> Tensor:
    """Scale all gradients so that their total norm over all ranks is at most `limit`; return the norm before scaling.

    Args:
        parameters: The parameters of this rank, by name.
        held: The part of each parameter on this rank, with the axes along which other ranks hold other parts.
        meshes: The meshes of all axes; None on a single rank.
        limit: The largest norm, above 0.
    """
    gradients = {name: local_tensor(p.grad) for name, p in parameters.items() if p.grad is not None}
    squares = torch.zeros((), dtype=torch.float32)
    counted = {name: held[name].axes for name in gradients if not held[name].again}
    for axes in sorted(set(counted.values())):
        norms = torch._foreach_norm([gradients[name] for name, over in counted.items() if over == axes])
        squares += _sum_over(torch.stack(norms).square().sum(), axes, meshes)
    stages = ("pp",) if meshes is not None and "pp" in (meshes.dense.mesh_dim_names or ()) else ()
    norm = _sum_over(squares, stages, meshes).sqrt()
    torch._foreach_mul_(list(gradients.values()), torch.clamp(limit / (norm + 1e-6), max=1.0))
    return norm


def _sum_over(squares: Tensor, axes: tuple[str, ...], meshes: Meshes | None) -> Tensor:
    """Return the sum of the squares over the ranks that differ on some axes."""
    for axis in axes:
        assert meshes is not None, "what one rank has is not cut"
        dist.all_reduce(squares, group=meshes.group(axis))
    return squares


Loss = Callable[[Tensor, Tensor], Tensor]
_BUCKET = 25 << 20  # bytes of a bucket in DDP
# A model returns a view, which nothing here changes.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def replicate(module: nn.Module, mesh: DeviceMesh, left_out: Iterable[str] = ()) -> nn.Module:
    """Return the module wrapped in DDP over all ranks with other tokens; the module itself if there is one such rank.

    Its parameters and gradients become local tensors. Parameters in `left_out`, by name, are not averaged.
    """
    others = flat_mesh(mesh, "dp", REPLICATE, SHARD, "cp")
    if others is None or others.size() == 1:
        _pre_dp_module_transform(module)
        return module
    # Buffers are constants: broadcasting them would be time for nothing, and ranks of cp have tables of other positions.
    ignored = [*left_out, *(name for name, _ in module.named_buffers())]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ignored)  # type: ignore[no-untyped-call]
    return DistributedDataParallel(module, device_mesh=others, forward_sync_buffers=False)


def average(gradients: Sequence[Tensor], over: DeviceMesh) -> None:
    """Average gradients in place over the ranks of a mesh, one bucket of DDP's size at a time, the last gradients first."""
    parts = [local_tensor(each) for each in reversed(gradients)]
    buckets, _ = _compute_bucket_assignment_by_size(parts, [_BUCKET])
    for bucket in buckets:
        flat = torch.cat([parts[i].flatten() for i in bucket]).div_(over.size())
        dist.all_reduce(flat, group=over.get_group())
        pieces = torch.split(flat, [parts[i].numel() for i in bucket])
        for i, piece in zip(bucket, pieces, strict=True):
            parts[i].copy_(piece.view_as(parts[i]))


def shard_states(module: nn.Module, meshes: Meshes, plan: Plan) -> None:
    """Shard weights, gradients and optimizer states by FSDP2, layer by layer, in place.

    They are sharded over dp and cp as one, or over the half of dp that shards, with copies over the other half (HSDP). Experts
    whose tokens travel are sharded block by block over the ranks that have the same experts.
    """
    mesh = meshes.dense
    over = flat_mesh(mesh, "dp", SHARD, "cp")
    if over is not None and REPLICATE in (mesh.mesh_dim_names or ()):
        over = DeviceMesh._concatenate([mesh[REPLICATE], over])
    beside = sub_mesh(meshes.experts, "edp")
    for experts in blocks_of(module).values() if beside is not None else ():
        block: FSDPModule = fully_shard(experts, mesh=beside)
        block.set_gradient_divide_factor(plan.copies)
        # A sum, then the division: only NCCL has them in one. Of one rank PyTorch would divide twice.
        block.set_force_sum_reduction_for_comms(beside is not None and beside.size() > 1)
    for layer in module.get_submodule("layers").children():
        fully_shard(layer, mesh=over)
    fully_shard(module, mesh=over)


def optimizer_of(
    parameters: Mapping[str, nn.Parameter], travelling: Collection[str], plan: Plan, meshes: Meshes | None, learning_rate: float
) -> Optimizer:
    """Return the fused AdamW of this rank; under ZeRO-1, its states are shared over groups of ranks.

    Args:
        parameters: The parameters of this rank, by name.
        travelling: The names of the parameters of experts to which tokens travel.
        plan: The plan, which says which states are shared.
        meshes: The meshes of all axes; None on a single rank.
        learning_rate: The learning rate of AdamW.
    """
    if not plan.shards_only_optimizer or meshes is None:
        return _adamw(parameters.values(), None, learning_rate)
    dense = [p for name, p in parameters.items() if name not in travelling]
    experts = [parameters[name] for name in travelling]
    over = (flat_mesh(meshes.dense, "dp", SHARD, "cp"), sub_mesh(meshes.experts, "edp"))
    parts = [_adamw(each, mesh, learning_rate) for each, mesh in zip((dense, experts), over, strict=True) if each]
    return parts[0] if len(parts) == 1 else _OptimizerGroup(parts)


# The AdamW states of one parameter on this rank: the parameter of the module; the one that has the states, which is the same or
# its local part; and the states by name, empty before the first step.
ParameterState = tuple[nn.Parameter, nn.Parameter, dict[str, Any]]


def parameter_states(optimizer: Optimizer) -> Iterator[ParameterState]:
    """Yield the optimizer states on this rank; under ZeRO-1, only of the parameters that this rank updates."""
    if isinstance(optimizer, _OptimizerGroup):
        for part in optimizer.parts:
            yield from parameter_states(part)
    elif isinstance(optimizer, _SharedStates):
        whole = {part: parameter for parameter, part in optimizer.parts.items()}
        yield from ((whole[of], of, states) for _, of, states in parameter_states(optimizer.own))
    else:
        of = (parameter for group in optimizer.param_groups for parameter in group["params"])
        yield from ((parameter, parameter, optimizer.state[parameter]) for parameter in of)


class _OptimizerGroup(Optimizer):
    """An optimizer made of several optimizers whose steps are taken together."""

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        super().__init__([{"params": group["params"]} for part in parts for group in part.param_groups], {})
        self.parts = parts

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Run the step of each optimizer, one after another."""
        for part in self.parts:
            part.step(closure)


class _SharedStates(Optimizer):
    """An AdamW optimizer whose states are divided among the ranks of a mesh; each rank steps some of the parameters.

    AdamW takes no DTensors beside plain tensors.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], shared: DeviceMesh, learning_rate: float) -> None:
        super().__init__([{"params": [*parameters]}], {})
        self.parts = {p: nn.Parameter(local_tensor(p.detach())) for p in parameters}
        group, all_parts = shared.get_group(), [*self.parts.values()]
        with pause_counting():  # it loads slowly, and operators run while it loads
            from torch.distributed.optim import ZeroRedundancyOptimizer
        self._optimizer: Any = ZeroRedundancyOptimizer(all_parts, _AdamW, group, lr=learning_rate, fused=True)

    @property
    def own(self) -> Optimizer:
        """The AdamW of the parameters that this rank steps."""
        return cast("Optimizer", self._optimizer.optim)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Step with the present gradients, of which no copy is kept."""
        for parameter, part in self.parts.items():
            part.grad = None if parameter.grad is None else local_tensor(parameter.grad)
        self._optimizer.step(closure)
        for part in self.parts.values():
            part.grad = None


class _AdamW(AdamW):
    """PyTorch's AdamW without its check for compilation, which would load PyTorch's compiler, longer than most runs take."""

    step = torch.no_grad()(inspect.unwrap(AdamW.step))
    zero_grad = inspect.unwrap(AdamW.zero_grad)
    add_param_group = inspect.unwrap(AdamW.add_param_group)


def _adamw(parameters: Iterable[nn.Parameter], shared: DeviceMesh | None, learning_rate: float) -> Optimizer:
    """Return AdamW with states shared over a mesh, or without sharing but with parameter groups by mesh."""
    if shared is not None and shared.size() > 1:
        return _SharedStates([*parameters], shared, learning_rate)
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(parameter.device_mesh if isinstance(parameter, DTensor) else None, []).append(parameter)
    return _AdamW([{"params": each} for each in groups.values()], lr=learning_rate, fused=True)


def accumulate(module: nn.Module, passes: int, loss: Loss, tokens: Tensor, targets: Tensor) -> list[Tensor]:
    """Run forward and backward of each pass; return the loss of each as its share of the rank's mean.

    Args:
        module: The whole model.
        passes: The number of passes; only the last backward pass reduces gradients.
        loss: A function of logits and targets.
        tokens: [sequences of the rank, T]
        targets: A tensor of the same shape.
    """
    losses = []
    for index, (x, y) in enumerate(zip(tokens.chunk(passes), targets.chunk(passes), strict=True)):
        with _gradient_reduction(module, last=index == passes - 1):
            logits = module(x)  # they live until the next pass, as in any training loop
            share = loss(logits, y) / passes
            torch.autograd.backward(share)
        losses.append(share.detach())
    return losses


def _gradient_reduction(module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
    return module.no_sync() if isinstance(module, DistributedDataParallel) and not last else nullcontext()
