"""The routing of tokens to experts, and the sorting of token rows by expert.

N tokens, E experts, K of them for each token, R = N * K rows that go to experts, or E * C if an expert takes C rows at most.
Sources: Fedus et al., Switch Transformers (2021), section 2.2 (capacity, balancing loss); DeepSeek-AI, DeepSeek-V3 Technical
Report (2024), section 2.1.2 (sigmoid scores, a bias that only chooses, node-limited groups).
"""

from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from emu.errors import must_be


@dataclass(frozen=True, slots=True)
class ExpertRouting:
    """The rules by which a router chooses the experts of each token and weighs their results."""

    experts: int
    top_k: int
    scores: str = "softmax"  # over all experts; or "sigmoid", for each expert by itself
    normalised: bool = True  # the weights of a token add up to 1
    scale: float = 1.0  # a factor of the weights
    groups: int = 1  # groups of experts, one for each node
    top_groups: int = 1  # the groups to which a token may go
    corrected: bool = False  # a bias for each expert, which no gradient changes, takes part in the choice
    balance: float = 0.0  # the coefficient of the balancing loss of the model's authors

    def __post_init__(self) -> None:
        if self.top_k > self.experts:
            raise must_be("model", "top_k", f"at most the {self.experts} experts", self.top_k)
        if self.groups == 1:
            return
        if self.experts % self.groups or self.experts < 2 * self.groups:
            raise must_be("model", "groups", f"a divisor of the {self.experts} experts, of 2 or more each", self.groups)
        open_experts = self.top_groups * self.experts // self.groups
        if self.top_groups > self.groups or self.top_k > open_experts:
            what = f"at most the {self.groups} groups, with {self.top_k} experts or more"
            raise must_be("model", "top_groups", what, self.top_groups)


class Router(nn.Module):
    """A router: for each token it returns the best experts by score, and their weights.

    The balancing loss of the model's authors, times `balances`, gets its gradient from any backward pass, as if it were added
    to the loss, so that it need not travel to the rank of the loss. With `balances` 0 it has no effect.
    """

    correction: Tensor | None

    def __init__(self, hidden: int, c: ExpertRouting) -> None:
        super().__init__()
        self.c = c
        self.gate = nn.Linear(hidden, c.experts, bias=False)
        self.register_buffer("correction", torch.zeros(c.experts) if c.corrected else None, persistent=c.corrected)
        self.balances = 0.0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map [N, hidden] to the experts [N, K] of each token and their weights [N, K]."""
        logits = self.gate(x)
        scores = logits.softmax(-1) if self.c.scores == "softmax" else logits.sigmoid()
        chosen = self._choose(scores.detach())
        weights = scores.gather(1, chosen)
        if self.c.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        if self.c.scale != 1:
            weights = weights * self.c.scale
        if self.balances and self.c.balance:
            added = self.balances * self.c.balance * imbalance(scores, chosen)
            weights = _LossGradient.apply(weights, added)  # type: ignore[no-untyped-call]
        return chosen, weights

    def _choose(self, scores: Tensor) -> Tensor:
        """Map scores [N, E] to chosen experts [N, K]; with groups, only the groups with the best pairs of experts are open."""
        ranked = scores if self.correction is None else scores + self.correction
        if self.c.groups > 1:
            grouped = ranked.unflatten(-1, (self.c.groups, -1))  # type: ignore[no-untyped-call]
            best = grouped.topk(2, -1)[0].sum(-1).topk(self.c.top_groups, -1)[1]
            closed = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter_(1, best, False)
            ranked = grouped.masked_fill(closed[..., None], float("-inf")).flatten(-2)
        return ranked.topk(self.c.top_k, -1)[1]


class _LossGradient(torch.autograd.Function):
    """An autograd function that returns its first input, and whose backward gives the second, a loss, the gradient 1.

    Source: Megatron-LM, MoEAuxLossAutoScaler.
    """

    @staticmethod
    def forward(ctx: Any, weights: Tensor, loss: Tensor) -> Tensor:
        ctx.like = torch.ones_like(loss)
        return weights.view_as(weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, ctx.like


def imbalance(scores: Tensor, chosen: Tensor) -> Tensor:
    """Return the load imbalance E * sum(share of choices * mean score) over experts; it is 1 if all are even.

    Source: Fedus et al. (2021), equations 4 to 6; for several choices a token, Shazeer et al. as in Mixtral's own code.
    """
    n = scores.size(-1)
    share = torch.zeros(n, dtype=scores.dtype).index_add(0, chosen.flatten(), torch.ones(chosen.numel(), dtype=scores.dtype))
    mean = (scores / scores.sum(-1, keepdim=True)).mean(0)
    return n * (share / chosen.numel() * mean).sum()


def set_balance(module: nn.Module, times: float) -> None:
    """Set the weight of the balancing loss of every router in a model; 0 turns it off."""
    for each in module.modules():
        if isinstance(each, Router):
            each.balances = times


class DispatchedRows(NamedTuple):
    """The rows of tokens in the order of their experts, one for each token and chosen expert."""

    tokens: Tensor  # [R] the token of each row
    choices: Tensor  # [R] the choice, of N * K, of each row
    counts: Tensor  # [E] rows of each expert
    filled: Tensor | None  # [R] False for rows that only fill up an expert; None: there are none


def rows_of(tokens: int, c: ExpertRouting, capacity: float = 0.0) -> int:
    """Return the number of rows that are sent to all experts together.

    Args:
        tokens: The number N of tokens.
        c: The rules of routing.
        capacity: The most rows of an expert, as a multiple of its even share; 0: no limit.
    """
    return c.experts * ceil(capacity * tokens * c.top_k / c.experts) if capacity else tokens * c.top_k


def dispatch(chosen: Tensor, c: ExpertRouting, capacity: float = 0.0) -> DispatchedRows:
    """Return the rows of the choices [N, K] ordered by expert, the tokens of one expert in their own order.

    With a capacity every expert has equally many rows: its last tokens above that are dropped, and empty rows weigh 0.
    """
    flat = chosen.flatten()
    counts = torch.zeros(c.experts, dtype=flat.dtype).scatter_add_(0, flat, torch.ones_like(flat))
    choices = flat.argsort(stable=True)
    if not capacity:
        return DispatchedRows(choices // c.top_k, choices, counts, None)
    places = torch.arange(rows_of(len(chosen), c, capacity) // c.experts)
    first = (counts.cumsum(0) - counts)[:, None]
    choices = choices[(first + places).clamp_(max=len(flat) - 1).flatten()]
    filled = (places < counts[:, None]).flatten()
    return DispatchedRows(choices // c.top_k, choices, torch.full_like(counts, len(places)), filled)


def combine(rows: Tensor, weights: Tensor, sent: DispatchedRows, tokens: int) -> Tensor:
    """Return [N, hidden] the sum of the experts' results of each token, each times its weight. Nothing is communicated.

    Args:
        rows: [R, hidden] the results of the experts, one row for each token and expert.
        weights: [N, K] the weight of each of a token's K experts.
        sent: The token and the expert choice of each row.
        tokens: The number of tokens, N.
    """
    weights = weights.flatten().index_select(0, sent.choices)
    if sent.filled is not None:
        weights = weights * sent.filled
    weighed = rows * weights[:, None]
    return rows.new_zeros(tokens, rows.size(-1)).scatter_add(0, sent.tokens[:, None].expand_as(weighed), weighed)
