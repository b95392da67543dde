"""The mesh of a plan's axes, on PyTorch's default group."""

from math import prod

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from emu.model.plan import Plan

REPLICATE, SHARD = "dp_replicate", "dp_shard"  # the two halves of dp where states are sharded over a part of it


def build_mesh(plan: Plan) -> DeviceMesh:
    """The mesh of the axes that have more than one rank, slowest first; of one rank, `dp` alone.

    Where there is cp there is dp, if of one rank: gradients travel over both as one axis, whose group is not that of attention.
    """
    sizes = {"pp": plan.pp, **_data(plan), "cp": plan.cp, "tp": plan.tp}
    dims = {name: size for name, size in sizes.items() if size > 1 or (name == "dp" and plan.cp > 1)} or {"dp": 1}
    assert prod(dims.values()) == plan.world
    return init_device_mesh("cpu", tuple(dims.values()), mesh_dim_names=tuple(dims))


def _data(plan: Plan) -> dict[str, int]:
    if 1 < plan.sharded < plan.dp:
        return {REPLICATE: plan.dp // plan.sharded, SHARD: plan.sharded}
    return {"dp": plan.dp}


def part_of(mesh: DeviceMesh, *names: str) -> DeviceMesh | None:
    """Those of the named axes that the mesh has, as one of their own; None if it has none of them."""
    there = tuple(name for name in mesh.mesh_dim_names or () if name in names)
    return mesh[there] if there else None


def flat(mesh: DeviceMesh, *names: str) -> DeviceMesh | None:
    """The named axes as one, such as `dp_cp`, with a group of its own; None if the mesh has none of them."""
    part = part_of(mesh, *names)
    if part is None or part.ndim == 1:
        return part
    # Told a backend, PyTorch does not take the default group for an axis that is the whole world, as another axis may be too.
    return part._flatten("_".join(part.mesh_dim_names or ()), backend_override=dist.get_backend())
