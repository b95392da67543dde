"""Tensor parallelism by DTensor's styles, and what sequence parallelism makes of them.

With sequence parallelism the activations between the products of a layer are cut along their tokens, dimension 1: an
all_gather before the first product and a reduce_scatter after the last stand where an all_reduce stood.
Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models (2022), section 4.2.2.
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
from emu.model.parts.styles import PART_STYLES
from emu.registry import unknown


class _Columns(ColwiseParallel):
    """As PyTorch's, but that the last dimension of what comes out is counted as DTensor counts it, from the front.

    Else PyTorch takes it for another, and redistributes each output and its gradient to where they are.
    """

    @staticmethod
    def _prepare_output_fn(
        output_layouts: Sequence[Placement], use_local_output: bool, mod: nn.Module, outputs: DTensor, device_mesh: DeviceMesh
    ) -> Tensor:
        counted = tuple(Shard(each.dim % outputs.ndim) if isinstance(each, Shard) else each for each in output_layouts)
        prepare: Callable[..., Tensor] = ColwiseParallel._prepare_output_fn
        return prepare(counted, use_local_output, mod, outputs, device_mesh)


# By name, of what lies between the products: whole on every rank, or each rank's tokens.
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
        module: Whole, with equal weights on every rank: each keeps its own shard, none is sent.
        mesh: Of tensor parallelism alone.
        shards: Style by module path, as `Model.shards`.
        by_tokens: Whether what lies between the products is cut, too.

    Raises:
        InputError: a path of `shards` names nothing in the module, or its style is unknown.
    """
    between = Shard(1) if by_tokens else Replicate()
    found = {path: style for path, style in _styles(module, shards, between).items() if style is not None}
    parallelize_module(module, mesh, found, src_data_rank=None)


def _styles(module: nn.Module, shards: Mapping[str, str], between: Placement) -> dict[str, ParallelStyle | None]:
    found: dict[str, ParallelStyle | None] = {}
    for path, style in shards.items():
        there = named(module, path)
        if not there:
            raise must_be("model", "a path of its shards", "the name of a module", path)
        if style not in STYLES:
            raise unknown("style of a shard", style, STYLES)
        found |= {name: STYLES[style](between) for name in there}
    return found


def named(module: nn.Module, path: str) -> list[str]:
    """The names of the modules that a path such as `layers.*.ffn` stands for; not every layer has each of them."""
    depth = path.count(".")
    return [name for name, _ in module.named_modules() if name.count(".") == depth and fnmatch.fnmatchcase(name, path)]
