"""The part of each whole parameter that a rank holds."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


class ParameterPart(NamedTuple):
    """The part of a whole parameter that a rank holds."""

    part: tuple[tuple[int, int], ...]  # start and end in each dimension
    axes: tuple[str, ...] = ()  # the mesh axes along which ranks hold different parts
    again: bool = False  # True for a copy of another stage's parameter

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        return tuple(end - first for first, end in self.part)

    def cut(self, whole: Tensor) -> Tensor:
        """Return this part of a whole tensor."""
        return whole[tuple(slice(first, end) for first, end in self.part)]


def parameter_parts(parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, ParameterPart]:
    """Return the part of each parameter on this rank, by name."""
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
    """Return the local part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
