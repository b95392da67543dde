"""Gradients cut to a norm that all ranks share: each adds up its own parts, then those of the axes that cut them."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from emu.model.parallel.mesh import Meshes
from emu.model.parallel.where import Held, local


def clip_gradients(
    parameters: Mapping[str, nn.Parameter], held: Mapping[str, Held], meshes: Meshes | None, limit: float
) -> Tensor:
    """Scale all gradients so that the norm of them all, as one vector, is at most the limit; the norm before.

    Args:
        parameters: Of this rank, by name.
        held: Which part of each is here, and the axes along which others hold other parts.
        meshes: Of all axes; None on one rank alone.
        limit: Above 0.
    """
    gradients = {name: local(p.grad) for name, p in parameters.items() if p.grad is not None}
    squares = torch.zeros((), dtype=torch.float32)
    counted = {name: held[name].axes for name in gradients if not held[name].again}
    for axes in sorted(set(counted.values())):
        norms = torch._foreach_norm([gradients[name] for name, over in counted.items() if over == axes])
        squares += _over(torch.stack(norms).square().sum(), axes, meshes)
    stages = ("pp",) if meshes is not None and "pp" in (meshes.dense.mesh_dim_names or ()) else ()
    norm = _over(squares, stages, meshes).sqrt()
    torch._foreach_mul_(list(gradients.values()), torch.clamp(limit / (norm + 1e-6), max=1.0))
    return norm


def _over(squares: Tensor, axes: tuple[str, ...], meshes: Meshes | None) -> Tensor:
    """Added up along those axes."""
    for axis in axes:
        assert meshes is not None, "what one rank has is not cut"
        dist.all_reduce(squares, group=meshes.group(axis))
    return squares
