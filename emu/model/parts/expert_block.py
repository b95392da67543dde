"""A feed-forward block of experts: a router, the experts' weights in groups, and in some models an expert for all tokens.

N tokens, E experts, R rows that go to them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from emu.model.parts.feed_forward import ACTIVATIONS, GATES
from emu.model.parts.token_routing import ExpertRouting, Router, combine, dispatch


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
    """A block that sends each token through the experts that its router chose, and through the shared block if there is one."""

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
    """Let every expert of a model take at most `capacity` times its even share of tokens; 0: no token is dropped."""
    for each in module.modules():
        if isinstance(each, ExpertBlock):
            each.capacity = capacity
