"""What is trained, as plain data: one list of operators, read by parameters, FLOPs and memory alike; and the registry.

Everything an operator says is of the whole model and one sequence; `tp` cuts what is sharded. A multiply-add is 2 FLOPs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, TypeVar

from emu.registry import Registry

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class ModelOperator:
    """One operator of a model, with what one sequence asks of it."""

    name: str  # the module's path, e.g. "layers.*.attention.wq"
    times: int = 1  # how often the model has it
    parameters: int = 0
    flops_forward: int = 0
    flops_backward: int = 0
    writes: int = 0  # elements that go out
    cut_in: bool = False  # tensor parallelism cuts what comes in
    cut_out: bool = False  # ... and what goes out; parameters and FLOPs are cut if either is
    lookup: bool = False  # its parameters are looked up, not multiplied: model FLOPs leave them out

    def share(self, tp: int) -> int:
        """Into how many shards its parameters and FLOPs are cut."""
        return tp if self.cut_in or self.cut_out else 1


def product(name: str, seq: int, n_in: int, n_out: int, times: int = 1, cut: str = "") -> ModelOperator:
    """A matrix product without bias: forward one product, backward two.

    Args:
        name: The module's path.
        seq: Tokens a sequence.
        n_in: Elements a token that come in.
        n_out: Elements a token that go out.
        times: How often the model has it.
        cut: "out" where tensor parallelism cuts its outputs, "in" where its inputs.
    """
    flops = 2 * seq * n_in * n_out
    return ModelOperator(name, times, n_in * n_out, flops, 2 * flops, seq * n_out, cut_in=cut == "in", cut_out=cut == "out")


def attention(name: str, seq: int, heads: int, head_dim: int, times: int = 1) -> ModelOperator:
    """Scaled dot-product attention as a flash kernel runs it: two products forward, five backward, no causal halving."""
    one = 2 * seq * seq * heads * head_dim
    return ModelOperator(name, times, 0, 2 * one, 5 * one, seq * heads * head_dim, cut_in=True, cut_out=True)


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the catalogue: its sizes, its operators, how it is built and how it is sharded."""

    name: str
    layers: int
    hidden: int
    heads: int
    head_dim: int
    vocab: int
    max_seq: int
    operators: Callable[[int], tuple[ModelOperator, ...]]  # of one sequence of so many tokens
    build: Callable[[int], Any]  # a torch.nn.Module [batch, tokens] -> logits [batch, tokens, vocab], for so many tokens
    tp_divides: Mapping[str, int] = field(default_factory=dict)  # what tp must divide, by name
    shards: Mapping[str, str] = field(default_factory=dict)  # module path -> a style of emu.model.parallel

    def parameters(self, tp: int = 1) -> int:
        """Of the model, or of one tensor-parallel shard."""
        return sum(o.times * (o.parameters // o.share(tp)) for o in self.operators(1))

    def flops(self, seq: int, tp: int = 1) -> tuple[int, int]:
        """FLOPs of products and attention, forward and backward, that one rank executes for one sequence."""
        rows = [(o, o.times, o.share(tp)) for o in self.operators(seq)]
        forward = sum(n * (o.flops_forward // cut) for o, n, cut in rows)
        return forward, sum(n * (o.flops_backward // cut) for o, n, cut in rows)

    def flops_per_token(self, seq: int) -> int:
        """Model FLOPs a token: 6 * parameters without the input embedding + 12 * L * h * s, attention not halved.

        Source: Chowdhery et al., PaLM (2022), appendix B; h is heads * head_dim.
        """
        multiplied = sum(o.times * o.parameters for o in self.operators(1) if not o.lookup)
        return 6 * multiplied + 12 * self.layers * self.heads * self.head_dim * seq

    def activations(self, seq: int, tp: int = 1) -> int:
        """Elements that the outputs of all operators of one sequence take, forward; partial sums, before and after."""
        rows = [(o, 2 if tp > 1 and o.cut_in and not o.cut_out else 1) for o in self.operators(seq)]
        return sum(o.times * copies * ceil(o.writes / (tp if o.cut_out else 1)) for o, copies in rows)


MODELS: Registry[Model] = Registry("model", "models")


def model(configs: Mapping[str, C]) -> Callable[[Callable[[str, C], Model]], Callable[[str, C], Model]]:
    """File one model for each named configuration of an architecture."""

    def file(describe: Callable[[str, C], Model]) -> Callable[[str, C], Model]:
        for name, config in configs.items():
            MODELS.file(name, describe(name, config))
        return describe

    return file
