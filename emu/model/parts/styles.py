"""How tensor parallelism shards the blocks that architectures share, where DTensor's plain styles do not say it.

Each is given the placement of what lies between the blocks: whole on every rank, or, with sequence parallelism, its tokens.
"""

from collections.abc import Callable, Mapping

from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)
from torch.distributed.tensor.parallel.style import ParallelStyle

_WHOLE = Replicate()


def _tied(between: Placement) -> ParallelStyle:
    return PrepareModuleInputOutput(
        input_layouts=(between,),
        desired_input_layouts=(_WHOLE,),
        output_layouts=(Shard(-1),),
        desired_output_layouts=(_WHOLE,),
    )


PART_STYLES: Mapping[str, Callable[[Placement], ParallelStyle]] = {
    # An output product by the embedding's own weight, which is cut by the vocabulary already.
    "tied": _tied,
    # A table of words inside an embedding that adds more to them; and that embedding, which gives what lies between.
    "words": lambda _: RowwiseParallel(input_layouts=_WHOLE, output_layouts=_WHOLE),
    "spread": lambda between: PrepareModuleOutput(output_layouts=(_WHOLE,), desired_output_layouts=(between,)),
    # A norm of each head [B, T, heads, D]: a rank has some heads, and the gradients of the weight are added.
    "heads": lambda _: SequenceParallel(sequence_dim=2, use_local_output=True),
}
