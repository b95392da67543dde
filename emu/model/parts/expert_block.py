"""A feed-forward block of experts: a router, grouped weights of the experts, and in some models a shared expert.

N tokens, E experts, K of them for each token, R rows that go to experts, h elements of a token. The operators are those of
tokens spread evenly over experts. The memory traffic of the router and of both permutations is that which PyTorch's counting
mode sees; a fused kernel moves each row once in and once out.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from emu.errors import must_be
from emu.model.operator import FORWARD, INPUT, PERMUTATION, ROUTER, Amount, ModelOperator, Passes, RowSum, Tokens, product
from emu.model.parts.feed_forward import ACTIVATIONS, GATES
from emu.model.parts.token_routing import ExpertRouting, Router, combine, dispatch, rows_of
from emu.model.stack.passes import element_wise


class Experts(nn.Module):
    """The weights [E, in, out] of all experts: gated or plain as those of `FeedForward`, without biases."""

    def __init__(self, experts: int, hidden: int, ffn: int, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.w1 = nn.Parameter(torch.empty(experts, hidden, ffn))
        self.w2 = nn.Parameter(torch.empty(experts, ffn, hidden))
        if activation in GATES:
            self.w3 = nn.Parameter(torch.empty(experts, hidden, ffn))
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.02)

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Map rows [R, hidden], ordered by expert, with the number of rows of each expert [E], to [R, hidden]."""
        ends = counts.cumsum(0).to(torch.int32)
        inner = _grouped_product(rows, self.w1, ends)
        if self.activation in GATES:
            inner = GATES[self.activation](inner) * _grouped_product(rows, self.w3, ends)
        else:
            inner = ACTIVATIONS[self.activation](inner)
        return _grouped_product(inner, self.w2, ends)


def _grouped_product(rows: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    to_local = getattr(weight, "to_local", None)  # of a DTensor, whose class would take most of a second to load
    return functional.grouped_mm(rows, to_local() if to_local else weight, offs=ends)


class ExpertBlock(nn.Module):
    """A block that sends each token through the experts that its router chooses, plus a shared expert if there is one."""

    def __init__(self, hidden: int, c: ExpertRouting, experts: Experts, shared: nn.Module | None = None) -> None:
        super().__init__()
        self.c, self.capacity = c, 0.0
        self.router, self.experts, self.shared = Router(hidden, c), experts, shared
        self.exchange: nn.Module | None = None  # brings rows to the ranks of their experts, and back; None: all are here

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, T, hidden] to [B, T, hidden]."""
        flat = x.flatten(0, -2)
        chosen, weights = self.router(flat)
        sent = dispatch(chosen, self.c, self.capacity)
        rows = flat.index_select(0, sent.tokens)
        rows = self.exchange(self.experts, rows, sent.counts) if self.exchange else self.experts(rows, sent.counts)
        out = combine(rows, weights, sent, len(flat)).view_as(x)
        return out if self.shared is None else out + self.shared(x)


def limit_capacity(module: nn.Module, capacity: float) -> None:
    """Limit every expert of a model to `capacity` times its even share of tokens; 0: no limit."""
    for each in module.modules():
        if isinstance(each, ExpertBlock):
            each.capacity = capacity


# The sharding of a block: the router is whole on every rank; each expert's columns, then rows, are sharded.
SPARSE_SHARDS = {"": "sparse", ".experts": "experts"}
SHARED_SHARDS = {  # for a gated block for all tokens
    ".shared": "inner shared",
    ".shared.w1": "colwise",
    ".shared.w3": "colwise",
    ".shared.w2": "inner rowwise",
}


def sparse_operators(
    name: str, tokens: Tokens, hidden: int, ffn: int, c: ExpertRouting, activation: str, shared: tuple[ModelOperator, ...] = ()
) -> tuple[ModelOperator, ...]:
    """Return the operators of the `ExpertBlock` of this name.

    Args:
        name: The name of the module.
        tokens: The tokens of the rank.
        hidden: The width of the model.
        ffn: The width of an expert.
        c: The rules of routing.
        activation: The activation of the experts.
        shared: The operators of the shared block, if there is one.

    Raises:
        InputError: PyTorch's grouped product takes rows of multiples of 16 bytes only.
    """
    for size, what in ((hidden, "hidden"), (ffn, "columns of an expert")):
        if size % 4:
            raise must_be("model", what, "a multiple of 4, with experts", size)
    n, rows = tokens.n, rows_of(tokens.n, c, tokens.capacity)
    readers = 2 if shared else 1  # readers beside the first: the choice of rows, and the shared block
    together = element_wise(f"{name}.sum", "sum of blocks", n * hidden)
    return (
        # Its gradients are added last.
        replace(element_wise(f"{name}.inputs", "sum of gradients", readers * n * hidden), sequence=True, routed=True),
        replace(product(f"{name}.router.gate", n, hidden, c.experts), sequence=True, routed=True),
        _scores(f"{name}.router.scores", n, c),
        _dispatch(f"{name}.dispatch", n, rows, hidden, c, filled=tokens.capacity > 0),
        *_experts(f"{name}.experts", rows, hidden, ffn, c, activation),
        _combine(f"{name}.combine", n, rows, hidden, n * c.top_k, filled=tokens.capacity > 0),
        *((*shared, replace(together, sequence=True, routed=True)) if shared else ()),
    )


def _experts(name: str, rows: int, hidden: int, ffn: int, c: ExpertRouting, activation: str) -> tuple[ModelOperator, ...]:
    middle = element_wise(f"{name}.{activation.replace(' ', '_')}", activation, rows * ffn, cut=True)
    found = [product(f"{name}.w1", rows, hidden, ffn, "out", reads_with="experts")]
    if activation in GATES:
        found.append(product(f"{name}.w3", rows, hidden, ffn, "out", kept=True, reads_with="experts"))
        found.append(element_wise(f"{name}.inputs", "sum of gradients", rows * hidden))
    found += [middle, product(f"{name}.w2", rows, ffn, hidden, "in")]
    return tuple(of_experts(each, c.experts, c.top_k) for each in found)


def of_experts(operator: ModelOperator, experts: int, active: int) -> ModelOperator:
    """Return the operator with a matrix for each expert, each over its rows of the operator's rows.

    A grouped product is one kernel: its rows are those of all experts together, and it reads where each expert's rows end.
    """
    ends = Amount(fixed_bytes=4 * experts) if operator.shape else Amount()

    def amount(a: Amount) -> Amount:
        return replace(a, parameters=experts * a.parameters) + (ends if a.flops else Amount())

    return operator.changed(amount, parameters=experts * operator.parameters, experts=experts, active=active)


def _scores(name: str, n: int, c: ExpertRouting) -> ModelOperator:
    """Return the operator of the scores, the choice of the best, and their weights."""
    e, k, groups = c.experts, c.top_k, c.groups if c.groups > 1 else 0
    chosen = c.top_groups if groups else 0
    weighed, unweighed = (3 * k + 2, 14 * k + 5) if c.normalised else (0, 0)
    scaled = 2 * k if c.scale != 1 else 0
    # A choice reads all scores and gathers K of them; groups are ranked by their two best, and all others closed.
    forward = 3 * e + 3 * k + weighed + scaled + (2 * e if c.corrected else 0) + (3 * e + 6 * groups + chosen if groups else 0)
    indices = 16 * k + 18 * groups + 17 * chosen
    backward = 6 * e + k + unweighed + scaled
    eager = Passes(
        Amount(whole=n * forward, fixed_bytes=n * indices),
        Amount(whole=n * backward, fixed_bytes=8 * n * k),
        saved=Amount(whole=n * (e + (k + 1 if c.normalised else 0)), fixed_bytes=8 * n * k),
    )
    if c.balance:
        more = _balance_passes(n, c)
        eager = Passes(eager.forward + more.forward, eager.backward_input + more.backward, saved=eager.saved + more.saved)
    fused = Passes(
        Amount(whole=n * (e + k), fixed_bytes=8 * n * k),
        Amount(whole=n * (2 * e + k), fixed_bytes=8 * n * k),
        saved=eager.saved,
    )
    correction = 4 * e if c.corrected else 0
    out = Amount(whole=n * k)
    return ModelOperator(name, ROUTER, 0, eager, fused, out, sequence=True, routed=True, unfused=eager, table_bytes=correction)


def _balance_passes(n: int, c: ExpertRouting) -> Passes:
    """Return the passes of the balancing loss of n tokens: shares of the choices, mean scores, and their product."""
    e, k = c.experts, c.top_k
    return Passes(
        Amount(whole=n * (4 * e + 2 * k + 2) + 10 * e + 6, fixed_bytes=8 * n * k),
        Amount(whole=n * (18 * e + 5) + 3 * e + 5),
        saved=Amount(whole=n + e),
    )


def _dispatch(name: str, n: int, rows: int, hidden: int, c: ExpertRouting, *, filled: bool) -> ModelOperator:
    """Return the operator that counts and sorts choices by expert and reads each row; backward it sums each token's rows.

    The arguments are as in `_combine`; `c` has the rules of routing.
    """
    choices, read = n * c.top_k, min(n, rows)
    sorting = 64 * choices + 52 * c.experts + (65 * rows - 16 * choices if filled else 0)
    eager = Passes(
        Amount(whole=(rows + read) * hidden, fixed_bytes=sorting + 8 * rows),
        Amount(whole=(rows + 3 * n) * hidden, fixed_bytes=8 * rows),
        saved=Amount(fixed_bytes=16 * rows + 4 * c.experts),
    )
    once = Amount(whole=(rows + read) * hidden, fixed_bytes=8 * rows)
    fused = Passes(once, once, saved=Amount(fixed_bytes=8 * rows))
    out, added = Amount(whole=rows * hidden), RowSum(INPUT, rows, n, hidden)
    return ModelOperator(name, PERMUTATION, 0, eager, fused, out, sequence=True, routed=True, unfused=eager, sum_of_rows=added)


def _combine(name: str, n: int, rows: int, hidden: int, choices: int, *, filled: bool) -> ModelOperator:
    """Return the operator that adds each expert output, times its weight, to its token.

    Args:
        name: The name of the operator.
        n: The tokens.
        rows: The rows of all experts.
        hidden: The width of the model.
        choices: The choices of all tokens, each of one expert.
        filled: Whether experts have a fixed capacity, so that some rows have no token.
    """
    read = min(rows, choices)  # of the weights
    masked = (2, 2, 1) if filled else (0, 0, 0)  # weights of rows without a token are set to 0
    eager = Passes(
        Amount(whole=3 * (rows + n) * hidden + (2 + masked[0]) * rows + read, fixed_bytes=16 * rows + masked[2] * rows),
        Amount(whole=(7 * rows + min(n, rows)) * hidden + (6 + masked[1]) * rows, fixed_bytes=16 * rows + masked[2] * rows),
        saved=Amount(whole=rows * hidden + rows, fixed_bytes=masked[2] * rows),
    )
    fused = Passes(
        Amount(whole=(rows + n) * hidden + rows, fixed_bytes=8 * rows),
        Amount(whole=(2 * rows + n) * hidden + 2 * rows, fixed_bytes=8 * rows),
        saved=Amount(whole=rows * hidden + rows),
    )
    # The weights are put in the order of the rows before the rows exist.
    weights = Amount(whole=(1 + masked[0]) * rows + read, fixed_bytes=8 * rows + masked[2] * rows)
    weighed = weights + Amount(whole=(2 * rows + n) * hidden + rows)
    out = Amount(whole=n * hidden)
    every = ModelOperator(name, PERMUTATION, 0, eager, fused, out, sequence=True, routed=True, unfused=eager)
    return replace(every, ahead=weights, until_saved=weighed, sum_of_rows=RowSum(FORWARD, rows, n, hidden))
