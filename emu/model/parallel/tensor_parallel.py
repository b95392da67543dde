"""Tensor parallelism by DTensor's styles, with or without sequence parallelism.

With sequence parallelism the activations between the products of a layer are sharded along their tokens, dimension 1: an
all_gather before the first product and a reduce_scatter after the last replace an all_reduce. Source: Korthikanti et al.,
Reducing Activation Recomputation in Large Transformer Models (2022), section 4.2.2.
"""

import fnmatch
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle

from emu.errors import must_be
from emu.model.parts.sharding_styles import PART_STYLES
from emu.registry import unknown


class _Columns(ColwiseParallel):
    """PyTorch's ColwiseParallel, with the last dimension of outputs counted from the front, as DTensor counts it.

    Otherwise PyTorch takes it for another dimension, and redistributes each output and its gradient to where they are already.
    """

    @staticmethod
    def _prepare_output_fn(
        output_layouts: Sequence[Placement], use_local_output: bool, mod: nn.Module, outputs: DTensor, device_mesh: DeviceMesh
    ) -> Tensor:
        counted = tuple(Shard(each.dim % outputs.ndim) if isinstance(each, Shard) else each for each in output_layouts)
        prepare: Callable[..., Tensor] = ColwiseParallel._prepare_output_fn
        return prepare(counted, use_local_output, mod, outputs, device_mesh)


# By name, for a placement of activations between the products: whole on every rank, or each rank's tokens.
STYLES: Mapping[str, Callable[[Placement], ParallelStyle | None]] = {
    "colwise": lambda _: _Columns(),
    "rowwise": lambda between: RowwiseParallel(output_layouts=between),
    # Several products that read one input: their input gradients are added before one reduction, not after one each.
    "shared": lambda between: PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
    "vocabulary": lambda between: RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
    "gathered": lambda between: _Columns(input_layouts=between, output_layouts=Replicate()),
    "between": lambda between: SequenceParallel() if between.is_shard() else None,
    **PART_STYLES,
}


def shard_tensors(module: nn.Module, mesh: DeviceMesh, shards: Mapping[str, str], *, by_tokens: bool) -> None:
    """Shard a module in place.

    Args:
        module: A whole module, with equal weights on every rank: each keeps its own shard, and none is sent.
        mesh: The mesh of tensor parallelism alone.
        shards: The style of each module path, see `Model.shards`.
        by_tokens: True if activations between the products are sharded too.

    Raises:
        InputError: a path of `shards` names nothing in the module, or its style is unknown.
    """
    between = Shard(1) if by_tokens else Replicate()
    found = {path: style for path, style in _styles(module, shards, between).items() if style is not None}
    parallelize_module(module, mesh, found, src_data_rank=None)


def _styles(module: nn.Module, shards: Mapping[str, str], between: Placement) -> dict[str, ParallelStyle | None]:
    found: dict[str, ParallelStyle | None] = {}
    for path, style in shards.items():
        there = module_names(module, path)
        if not there:
            raise must_be("model", "a path of its shards", "the name of a module", path)
        if style not in STYLES:
            raise unknown("style of a shard", style, STYLES)
        found |= {name: STYLES[style](between) for name in there}
    return found


def module_names(module: nn.Module, path: str) -> list[str]:
    """Return the names of the modules that match a path such as `layers.*.ffn`; not every layer has each of them."""
    depth = path.count(".")
    return [name for name, _ in module.named_modules() if name.count(".") == depth and fnmatch.fnmatchcase(name, path)]
