"""The meshes of a plan's axes, on PyTorch's default group: of the layers that all tokens see, and of experts."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from emu.model.plan.plan import Plan
from emu.model.plan.ranks import EXPERT_AXES, REPLICATE, SHARD


class Meshes(NamedTuple):
    """One set of ranks, seen twice."""

    dense: DeviceMesh
    experts: DeviceMesh | None  # of the same ranks; None where tokens stay on their rank

    def group(self, axis: str) -> ProcessGroup:
        """Of an axis of either."""
        own = set(self.experts.mesh_dim_names or ()) - {"pp"} if self.experts is not None else ()
        mesh = self.experts if self.experts is not None and axis in own else self.dense
        return mesh.get_group(axis)


def build_meshes(plan: Plan) -> Meshes:
    """Those of a plan; of experts only where its tokens travel to them."""
    return Meshes(build_mesh(plan), _expert_mesh(plan) if plan.exchanges else None)


def build_mesh(plan: Plan) -> DeviceMesh:
    """The mesh of the axes that have more than one rank, slowest first; of one rank, `dp` alone.

    Where there is cp there is dp, if of one rank: gradients travel over both as one axis, whose group is not that of attention.
    And where FSDP2 shards, which without a mesh would take all ranks of the world.
    """
    return _mesh(
        {"pp": plan.pp, **_data(plan), "cp": plan.cp, "tp": plan.tp}, "dp" if plan.cp > 1 or plan.sharding == "fsdp" else ""
    )


def _expert_mesh(plan: Plan) -> DeviceMesh:
    """With `edp` even where it is one rank: FSDP2 then divides the gradients of experts there as elsewhere."""
    return _mesh({axis: plan.sizes[axis] for axis in reversed(EXPERT_AXES)}, "edp", dist.get_backend())


def _mesh(sizes: Mapping[str, int], always: str = "", backend: str | None = None) -> DeviceMesh:
    """Told a backend, PyTorch does not take the default group for an axis that is the whole world, as another may be too."""
    dims = {name: size for name, size in sizes.items() if size > 1 or name == always} or {"dp": 1}
    told: Any = dict.fromkeys(dims, backend) if backend else None
    return init_device_mesh("cpu", tuple(dims.values()), mesh_dim_names=tuple(dims), backend_override=told)


def _data(plan: Plan) -> dict[str, int]:
    if 1 < plan.sharded < plan.dp:
        return {REPLICATE: plan.dp // plan.sharded, SHARD: plan.sharded}
    return {"dp": plan.dp}


def part_of(mesh: DeviceMesh | None, *names: str) -> DeviceMesh | None:
    """Those of the named axes that the mesh has, as one of their own; None if it has none of them."""
    there = tuple(name for name in (mesh.mesh_dim_names if mesh is not None else None) or () if name in names)
    return mesh[there] if mesh is not None and there else None


def flat(mesh: DeviceMesh, *names: str) -> DeviceMesh | None:
    """The named axes as one, such as `dp_cp`, with a group of its own, as in `_mesh`; None if the mesh has none of them.

    Both halves of dp are dp.
    """
    part = part_of(mesh, *names)
    if part is None or part.ndim == 1:
        return part
    name = "_".join(part.mesh_dim_names or ()).replace(f"{REPLICATE}_{SHARD}", "dp")
    return part._flatten(name, backend_override=dist.get_backend())
