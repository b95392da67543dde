"""Gradients cut to a norm that all ranks share: each adds up its own parts, then those of the axes that cut them."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from emu.model.parallel.where import Held, local


def clip_gradients(
    parameters: Mapping[str, nn.Parameter], held: Mapping[str, Held], mesh: DeviceMesh | None, limit: float
) -> Tensor:
    """Scale all gradients so that the norm of them all, as one vector, is at most the limit; the norm before.

    Args:
        parameters: Of this rank, by name.
        held: Which part of each is here, and the axes along which others hold other parts.
        mesh: Of all axes; None on one rank alone.
        limit: Above 0.
    """
    gradients = {name: local(p.grad) for name, p in parameters.items() if p.grad is not None}
    squares = torch.zeros((), dtype=torch.float32)
    for axes in sorted({held[name].axes for name in gradients}):
        norms = torch._foreach_norm([g for name, g in gradients.items() if held[name].axes == axes])
        squares += _over(torch.stack(norms).square().sum(), axes, mesh)
    stages = ("pp",) if mesh is not None and "pp" in (mesh.mesh_dim_names or ()) else ()
    norm = _over(squares, stages, mesh).sqrt()
    torch._foreach_mul_(list(gradients.values()), torch.clamp(limit / (norm + 1e-6), max=1.0))
    return norm


def _over(squares: Tensor, axes: tuple[str, ...], mesh: DeviceMesh | None) -> Tensor:
    """Added up along those axes."""
    for axis in axes:
        assert mesh is not None, "what one rank has is not cut"
        dist.all_reduce(squares, group=mesh.get_group(axis))
    return squares
