"""Which part of each whole parameter a rank holds."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


class Held(NamedTuple):
    """A part of a whole parameter."""

    part: tuple[tuple[int, int], ...]  # by dimension: from where to where
    axes: tuple[str, ...] = ()  # of the mesh, along which the ranks hold different parts
    again: bool = False  # a copy of what another stage has

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the part."""
        return tuple(end - first for first, end in self.part)

    def cut(self, whole: Tensor) -> Tensor:
        """That part of the whole."""
        return whole[tuple(slice(first, end) for first, end in self.part)]


def held_of(parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, Held]:
    """By name, what is here."""
    return {name: _held(parameter) for name, parameter in parameters}


def _held(parameter: Tensor) -> Held:
    if not isinstance(parameter, DTensor):
        return Held(tuple((0, size) for size in parameter.shape))
    mesh, placements = parameter.device_mesh, parameter.placements
    shape, offset = compute_local_shape_and_global_offset(parameter.shape, mesh, placements)
    names = mesh.mesh_dim_names or ()
    cut = zip(names, placements, mesh.shape, strict=True)
    axes = tuple(name for name, placement, size in cut if size > 1 and not placement.is_replicate())
    return Held(tuple((first, first + size) for first, size in zip(offset, shape, strict=True)), axes)


def local(tensor: Tensor) -> Tensor:
    """What of a tensor is here."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
