"""The device meshes of a plan's axes on PyTorch's default group, and the part of each parameter on a rank."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from emu.model.plan.plan import EXPERT_AXES, REPLICATE, SHARD, Plan


class ParameterPart(NamedTuple):
    """The block of a whole parameter that a rank holds: its range in each dimension.

    `axes` are the mesh axes along which ranks hold different blocks.
    """

    part: tuple[tuple[int, int], ...]  # start and end in each dimension
    axes: tuple[str, ...] = ()  # the mesh axes along which ranks hold different parts
    again: bool = False  # True for a copy of another stage's parameter

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the block."""
        return tuple(end - first for first, end in self.part)

    def cut(self, whole: Tensor) -> Tensor:
        """Return this block of a whole tensor, as a view."""
        return whole[tuple(slice(first, end) for first, end in self.part)]


def parameter_parts(parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, ParameterPart]:
    """Return the range of each parameter that this rank holds, in each dimension, by the name of the parameter."""
    return {name: _part_of(parameter) for name, parameter in parameters}


def _part_of(parameter: Tensor) -> ParameterPart:
    if not isinstance(parameter, DTensor):
        return ParameterPart(tuple((0, size) for size in parameter.shape))
    mesh, placements = parameter.device_mesh, parameter.placements
    shape, offset = compute_local_shape_and_global_offset(parameter.shape, mesh, placements)
    names = mesh.mesh_dim_names or ()
    cut = zip(names, placements, mesh.shape, strict=True)
    axes = tuple(name for name, placement, size in cut if size > 1 and not placement.is_replicate())
    return ParameterPart(tuple((first, first + size) for first, size in zip(offset, shape, strict=True)), axes)


def local_tensor(tensor: Tensor) -> Tensor:
    """Return the local tensor of a DTensor, or the tensor itself if it is a plain one."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Meshes(NamedTuple):
    """The two device meshes of a plan's ranks: one for dense layers, one for experts."""

    dense: DeviceMesh
    experts: DeviceMesh | None  # a mesh of the same ranks; None if tokens stay on their rank

    def group(self, axis: str) -> ProcessGroup:
        """Return the process group of an axis, from the mesh that has it."""
        own = set(self.experts.mesh_dim_names or ()) - {"pp"} if self.experts is not None else ()
        mesh = self.experts if self.experts is not None and axis in own else self.dense
        return mesh.get_group(axis)


def build_meshes(plan: Plan) -> Meshes:
    """Return the meshes of a plan; the mesh of experts exists only if tokens travel to them."""
    return Meshes(build_mesh(plan), _expert_mesh(plan) if plan.exchanges else None)


def build_mesh(plan: Plan) -> DeviceMesh:
    """Return the mesh of the axes with more than one rank, slowest first; for a single rank, `dp` alone.

    With cp there is always dp, even of one rank: gradients travel over both as one axis, whose group is not that of attention.
    With FSDP2 there is dp too; without a mesh it would take all ranks of the world.
    """
    return _mesh(
        {"pp": plan.pp, **_data(plan), "cp": plan.cp, "tp": plan.tp}, "dp" if plan.cp > 1 or plan.shards_weights else ""
    )


def _expert_mesh(plan: Plan) -> DeviceMesh:
    """Return the device mesh of the expert axes; it always has `edp`, so that FSDP2 divides experts' gradients."""
    return _mesh({axis: plan.sizes[axis] for axis in reversed(EXPERT_AXES)}, "edp", dist.get_backend())


def _mesh(sizes: Mapping[str, int], always: str = "", backend: str | None = None) -> DeviceMesh:
    """Return a mesh of the given axes; with a backend, PyTorch does not reuse the default group for an axis of all ranks."""
    dims = {name: size for name, size in sizes.items() if size > 1 or name == always} or {"dp": 1}
    backends: Any = dict.fromkeys(dims, backend) if backend else None
    return init_device_mesh("cpu", tuple(dims.values()), mesh_dim_names=tuple(dims), backend_override=backends)


def _data(plan: Plan) -> dict[str, int]:
    if 1 < plan.shard_ranks < plan.dp:
        return {REPLICATE: plan.dp // plan.shard_ranks, SHARD: plan.shard_ranks}
    return {"dp": plan.dp}


def sub_mesh(mesh: DeviceMesh | None, *names: str) -> DeviceMesh | None:
    """Return the sub-mesh of the given axes; None if the mesh has none of them."""
    there = tuple(name for name in (mesh.mesh_dim_names if mesh is not None else None) or () if name in names)
    return mesh[there] if mesh is not None and there else None


def flat_mesh(mesh: DeviceMesh, *names: str) -> DeviceMesh | None:
    """Return the given axes flattened to one axis, such as `dp_cp`, with its own group; None if the mesh has none.

    Both halves of dp count as dp.
    """
    part = sub_mesh(mesh, *names)
    if part is None or part.ndim == 1:
        return part
    name = "_".join(part.mesh_dim_names or ()).replace(f"{REPLICATE}_{SHARD}", "dp")
    return part._flatten(name, backend_override=dist.get_backend())
