"""Tensor parallelism by DTensor's styles, with or without sequence parallelism.

With sequence parallelism the activations between the products of a layer are sharded along their tokens, dimension 1: an
all_gather before the first product and a reduce_scatter after the last replace an all_reduce. Source: Korthikanti et al.,
Reducing Activation Recomputation in Large Transformer Models (2022), section 4.2.2.

The tensor-parallel styles of blocks that architectures share, beyond DTensor's plain styles.

Each style depends on the placement of activations between blocks: whole on every rank, or, with sequence parallelism, sharded
by tokens.
"""

import fnmatch
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle

from emu.errors import must_be
from emu.registry import unknown

_WHOLE, _TOKENS = Replicate(), Shard(1)


def _through(given: Placement, read: Placement, made: Placement, wanted: Placement, *, local: bool = False) -> ParallelStyle:
    """Return the style of a module whose input and output are redistributed.

    Args:
        given: The placement in which the input is given.
        read: The placement in which the module reads it.
        made: The placement in which the module makes its output.
        wanted: The placement in which the output is wanted.
        local: Whether the module gets its input as a local tensor.
    """
    return PrepareModuleInputOutput(
        input_layouts=(given,),
        desired_input_layouts=(read,),
        use_local_input=local,
        output_layouts=(made,),
        desired_output_layouts=(wanted,),
    )


def _reading(given: Placement, read: Placement, *, local: bool = False) -> ParallelStyle:
    """Return the style of a module whose input has placement `given` and must be converted to placement `read`."""
    return PrepareModuleInput(input_layouts=(given,), desired_input_layouts=(read,), use_local_output=local)


class LocalStyle(ParallelStyle):
    """The parallel style of a module that computes on local tensors; input gradients are summed over the ranks.

    Args:
        cut: A function that cuts the parameters; None: they are whole on every rank.
        after: A function of what comes out; None: it stays as it is.
    """

    def __init__(self, cut: Callable[..., None] | None = None, after: Callable[..., Tensor] | None = None) -> None:
        self._cut, self._after = cut, after

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, self._cut, _with_summed_gradients, self._after)  # type: ignore[arg-type]


def _cut_experts(_: str, module: nn.Module, mesh: DeviceMesh) -> None:
    """Cut the columns of the experts' first products and the rows of their last."""
    for name, weight in list(module.named_parameters(recurse=False)):
        cut = Shard(1) if name == "w2" else Shard(2)  # [E, in, out]
        module.register_parameter(name, nn.Parameter(distribute_tensor(weight, mesh, [cut], src_data_rank=None)))


def _with_summed_gradients(_: nn.Module, given: tuple[Tensor, ...], mesh: DeviceMesh) -> tuple[Tensor, ...]:
    """Return the inputs unchanged; in the backward their gradients are summed over all ranks of the mesh."""
    first, *rest = given
    return DTensor.from_local(first, mesh, [_WHOLE], run_check=False).to_local(grad_placements=[Partial()]), *rest


def _sum_of_ranks(_: nn.Module, out: Tensor, mesh: DeviceMesh) -> Tensor:
    return DTensor.from_local(out, mesh, [Partial()], run_check=False).redistribute(placements=[_WHOLE]).to_local()


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


# By name, for a placement of activations between the products: whole on every rank, or each rank's tokens. A style of None
# leaves a module as it is.
STYLES: Mapping[str, Callable[[Placement], ParallelStyle | None]] = {
    "colwise": lambda _: _Columns(),
    "rowwise": lambda between: RowwiseParallel(output_layouts=between),
    # Several products that read one input: their input gradients are added before one reduction, not after one each.
    "shared": lambda between: _reading(between, _WHOLE),
    "vocabulary": lambda between: RowwiseParallel(input_layouts=_WHOLE, output_layouts=between),
    "gathered": lambda between: _Columns(input_layouts=between, output_layouts=_WHOLE),
    "between": lambda between: SequenceParallel() if between.is_shard() else None,
    # An output product by the embedding's own weight, which is cut by the vocabulary already.
    "tied": lambda between: _through(between, _WHOLE, Shard(-1), _WHOLE),
    # A word table inside an embedding that adds positions; and that embedding, whose output lies between blocks.
    "words": lambda _: RowwiseParallel(input_layouts=_WHOLE, output_layouts=_WHOLE),
    "spread": lambda between: PrepareModuleOutput(output_layouts=(_WHOLE,), desired_output_layouts=(between,)),
    # A block of experts: its router and the input of the experts are whole on every rank.
    "sparse": lambda between: None if between.is_replicate() else _through(between, _WHOLE, _WHOLE, between, local=True),
    "experts": lambda _: LocalStyle(_cut_experts, _sum_of_ranks),
    # Inside a block of experts, independent of the placement between blocks: as "shared" and "rowwise".
    "inner shared": lambda _: _reading(_WHOLE, _WHOLE),
    "inner rowwise": lambda _: RowwiseParallel(output_layouts=_WHOLE),
    # A block of experts to which tokens travel: inside it every rank has its own tokens, or rows of them.
    "own tokens": lambda between: _through(between, _TOKENS, _TOKENS, between, local=True),
    "own rows": lambda _: SequenceParallel(sequence_dim=0, use_local_output=True),
    "own shared": lambda _: _reading(_TOKENS, _WHOLE),
    "own rowwise": lambda _: RowwiseParallel(output_layouts=_TOKENS),
    # A block that begins with products that are whole on every rank; and the parts that go to each rank's heads.
    "whole": lambda between: None if between.is_replicate() else _reading(between, _WHOLE, local=True),
    "summed": lambda _: LocalStyle(),
    # A norm at the end of a block, whose output is added to what came in.
    "between out": lambda between: SequenceParallel(use_local_output=True) if between.is_shard() else None,
    # A norm of each head [B, T, heads, D]: a rank has some heads, and the gradients of the weight are added.
    "heads": lambda _: SequenceParallel(sequence_dim=2, use_local_output=True),
}


def shard_tensors(module: nn.Module, mesh: DeviceMesh, shards: Mapping[str, str], *, by_tokens: bool) -> None:
    """Shard the weights of a module in place for tensor parallelism.

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
    """Return the names of the modules that match a path pattern such as `layers.*.ffn`."""
    depth = path.count(".")
    return [name for name, _ in module.named_modules() if name.count(".") == depth and fnmatch.fnmatchcase(name, path)]
