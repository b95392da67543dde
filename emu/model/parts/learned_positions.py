"""Learned positions, added to word embeddings; and an output product that has the weights of the word embedding.

Sources: Radford et al., Language Models are Unsupervised Multitask Learners (2019); Press and Wolf, Using the Output Embedding
to Improve Language Models (2017).
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from emu.model.operator import ModelOperator, Tokens, lookup
from emu.model.parts.position_tables import PositionedModule
from emu.model.stack.passes import element_wise


class LearnedEmbedding(PositionedModule):
    """An embedding with a row for each word and a row for each position."""

    numbers: Tensor
    tables = ("numbers",)

    def __init__(self, vocab: int, positions: int, hidden: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.register_buffer("numbers", torch.arange(positions), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map [B, T] to [B, T, hidden]."""
        return self.words(tokens) + self.positions(self.numbers[: tokens.size(1)])  # type: ignore[no-any-return]


class TiedOutput(nn.Module):
    """An output product with the weights of an embedding."""

    def __init__(self, words: nn.Embedding) -> None:
        super().__init__()
        self.words = words

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., hidden] to [..., vocab]."""
        return functional.linear(x, self.words.weight)


TIED_SHARDS = {"embedding": "spread", "embedding.words": "words", "output": "tied"}


def learned_operators(tokens: Tokens, vocab: int, positions: int, hidden: int) -> tuple[ModelOperator, ...]:
    """Return the operators of the embedding, which is called `embedding`."""
    rows, placed = tokens.length * hidden, lookup("embedding.positions", tokens.length, positions, hidden, cut="")
    return (
        lookup("embedding.words", tokens.n, vocab, hidden),
        replace(placed, ahead=placed.eager.forward, table_bytes=8 * positions),
        element_wise("embedding.sum", "positions", tokens.n * hidden, constants=rows),
    )
