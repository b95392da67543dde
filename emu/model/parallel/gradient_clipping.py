"""Gradient clipping to a norm over all ranks: each rank sums its own parts, then the axes that shard the parts sum these."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from emu.model.parallel.mesh import Meshes, ParameterPart, local_tensor


def clip_gradients(
    parameters: Mapping[str, nn.Parameter], held: Mapping[str, ParameterPart], meshes: Meshes | None, limit: float
) -> Tensor:
    """Scale all gradients so that their common norm is at most the limit; return the norm before.

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
    """Return the sum of the squares along some axes."""
    for axis in axes:
        assert meshes is not None, "what one rank has is not cut"
        dist.all_reduce(squares, group=meshes.group(axis))
    return squares
