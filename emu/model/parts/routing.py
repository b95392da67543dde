"""Which experts each token goes to, and in which order the tokens lie before them.

N tokens, E experts, K of them a token, R = N * K rows that go to experts, or E * C where an expert takes C rows at most.
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
class Routing:
    """How tokens are routed."""

    experts: int
    top_k: int
    scores: str = "softmax"  # over all experts; or "sigmoid", of each by itself
    normalised: bool = True  # the weights of a token add up to 1
    scale: float = 1.0  # of the weights
    groups: int = 1  # of experts that lie on one node
    top_groups: int = 1  # that a token may go to
    corrected: bool = False  # a bias for each expert, which no gradient changes, takes part in the choice
    balance: float = 0.0  # coefficient of the balancing loss of its authors

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
    """Scores of each expert, the best of them, and what each is weighed with.

    The balancing loss of its authors, times `balances`, gets its gradient from any backward pass, as if it were added to the
    loss: so that it need not travel to where the loss is. 0: it takes no part.
    """

    correction: Tensor | None

    def __init__(self, hidden: int, c: Routing) -> None:
        super().__init__()
        self.c = c
        self.gate = nn.Linear(hidden, c.experts, bias=False)
        self.register_buffer("correction", torch.zeros(c.experts) if c.corrected else None, persistent=c.corrected)
        self.balances = 0.0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[N, hidden] -> the experts [N, K] of each token, and their weights [N, K]."""
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
            weights = _Added.apply(weights, added)  # type: ignore[no-untyped-call]
        return chosen, weights

    def _choose(self, scores: Tensor) -> Tensor:
        """[N, E] -> [N, K]; of groups the best by their two best experts, and no others, are open to a token."""
        ranked = scores if self.correction is None else scores + self.correction
        if self.c.groups > 1:
            grouped = ranked.unflatten(-1, (self.c.groups, -1))  # type: ignore[no-untyped-call]
            best = grouped.topk(2, -1)[0].sum(-1).topk(self.c.top_groups, -1)[1]
            closed = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter_(1, best, False)
            ranked = grouped.masked_fill(closed[..., None], float("-inf")).flatten(-2)
        return ranked.topk(self.c.top_k, -1)[1]


class _Added(torch.autograd.Function):
    """What comes in first; backward a loss beside it gets the gradient 1. Source: Megatron-LM, MoEAuxLossAutoScaler."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, loss: Tensor) -> Tensor:
        ctx.like = torch.ones_like(loss)
        return weights.view_as(weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, ctx.like


def imbalance(scores: Tensor, chosen: Tensor) -> Tensor:
    """E times the sum over experts of the share of choices that fell on each, times its mean score: 1 where all are even.

    Source: Fedus et al. (2021), equations 4 to 6; of several choices a token, Shazeer et al. as in Mixtral's own code.
    """
    n = scores.size(-1)
    share = torch.zeros(n, dtype=scores.dtype).index_add(0, chosen.flatten(), torch.ones(chosen.numel(), dtype=scores.dtype))
    mean = (scores / scores.sum(-1, keepdim=True)).mean(0)
    return n * (share / chosen.numel() * mean).sum()


def balance(module: nn.Module, times: float) -> None:
    """Let the balancing losses of all routers of a model take part in its loss, so many times; 0: none does."""
    for each in module.modules():
        if isinstance(each, Router):
            each.balances = times


class Sent(NamedTuple):
    """Rows in the order of their experts."""

    tokens: Tensor  # [R] whose row each is
    choices: Tensor  # [R] which of the N * K choices it comes from
    counts: Tensor  # [E] rows of each expert
    filled: Tensor | None  # [R] whether a row is a token's, and not there to fill an expert up; None: all are


def rows_of(tokens: int, c: Routing, capacity: float = 0.0) -> int:
    """Rows that go to all experts together.

    Args:
        tokens: N.
        c: How tokens are routed.
        capacity: What an expert takes, as a multiple of its even share; 0: all that come.
    """
    return c.experts * ceil(capacity * tokens * c.top_k / c.experts) if capacity else tokens * c.top_k


def dispatch(chosen: Tensor, c: Routing, capacity: float = 0.0) -> Sent:
    """Sort the choices [N, K] by expert, the tokens of one expert in their own order.

    With a capacity every expert has as many rows: its last tokens above that are dropped, and rows that none fills weigh 0.
    """
    flat = chosen.flatten()
    counts = torch.zeros(c.experts, dtype=flat.dtype).scatter_add_(0, flat, torch.ones_like(flat))
    choices = flat.argsort(stable=True)
    if not capacity:
        return Sent(choices // c.top_k, choices, counts, None)
    places = torch.arange(rows_of(len(chosen), c, capacity) // c.experts)
    first = (counts.cumsum(0) - counts)[:, None]
    choices = choices[(first + places).clamp_(max=len(flat) - 1).flatten()]
    filled = (places < counts[:, None]).flatten()
    return Sent(choices // c.top_k, choices, torch.full_like(counts, len(places)), filled)


def combine(rows: Tensor, weights: Tensor, sent: Sent, tokens: int) -> Tensor:
    """What the experts gave [R, hidden], each row times its weight of [N, K], summed up by token: [N, hidden]."""
    weights = weights.flatten().index_select(0, sent.choices)
    if sent.filled is not None:
        weights = weights * sent.filled
    weighed = rows * weights[:, None]
    return rows.new_zeros(tokens, rows.size(-1)).scatter_add(0, sent.tokens[:, None].expand_as(weighed), weighed)
