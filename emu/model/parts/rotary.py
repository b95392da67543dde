"""Position embeddings: rotary ones, in which pair i of token t is rotated by the angle t * theta**(-2i/D), and learned ones.

B sequences, T tokens, H heads, D rotated elements of a head. A module's tokens have the positions 0, 1, ... of a sequence,
unless others are set. Learned positions are added to word embeddings; a tied output product has the weights of the word
embedding. Sources: Su et al., RoFormer (2021), equation 15; Radford et al., Language Models are Unsupervised Multitask Learners
(2019); Press and Wolf, Using the Output Embedding to Improve Language Models (2017).
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from emu.errors import must_be
from emu.model.operator import ModelOperator, Tokens, lookup
from emu.model.stack.passes import element_wise


@dataclass(frozen=True, slots=True)
class RotaryScaling:
    """The slowdown of angles for a longer context.

    Source: Dubey et al., The Llama 3 Herd of Models (2024), section 3.4.2, and the model code published with it.
    """

    factor: float  # the divisor of slow angles
    slow: float  # angles with fewer turns than this in the old context are slow
    fast: float  # angles with more turns than this stay; between the two the change is linear
    context: int  # tokens of the old context

    def __post_init__(self) -> None:
        if not 0 < self.slow < self.fast:
            raise must_be("model", "slow", f"above 0 and below fast, {self.fast:g}", f"{self.slow:g}")


def rotation(tokens: int, dim: int, theta: float, stretch: RotaryScaling | None = None) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of the angles of rotary embeddings, [T, D/2] each, for positions 0 to T - 1.

    Args:
        tokens: The number of positions, T.
        dim: The size of a head, D; pair i of it turns by theta^(-2i/D) at each position.
        theta: The base of the angles.
        stretch: The scaling for longer contexts, as Llama 3.1 has it; None: none.
    """
    speeds = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if stretch is not None:
        turns = stretch.context * speeds / (2 * math.pi)
        kept = ((turns - stretch.slow) / (stretch.fast - stretch.slow)).clamp(0, 1)
        speeds = speeds * (kept + (1 - kept) / stretch.factor)
    angles = torch.outer(torch.arange(tokens, dtype=torch.float64), speeds)
    return angles.cos().to(torch.get_default_dtype()), angles.sin().to(torch.get_default_dtype())


class PositionedModule(nn.Module):
    """A module with tables of one row for each position; it reads as many rows as a sequence has tokens."""

    tables: tuple[str, ...] = ()  # the names of the buffers that are tables
    cos: Tensor
    sin: Tensor

    def add_rotation(self, tokens: int, dim: int, theta: float, stretch: RotaryScaling | None = None) -> None:
        """Create the cosine and sine tables for rotating `dim` elements of each head."""
        self.tables = ("cos", "sin")
        for name, table in zip(self.tables, rotation(tokens, dim, theta, stretch), strict=True):
            self.register_buffer(name, table, persistent=False)

    def angles(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines for the tokens of x [B, T, ..]; all heads of a token share them."""
        return self.cos[: x.size(1), None], self.sin[: x.size(1), None]

    def place(self, positions: Tensor) -> None:
        """Keep only the table rows of the given positions [T], for the tokens that the module processes from now on."""
        for name in self.tables:
            self.register_buffer(name, self.get_buffer(name)[positions], persistent=False)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the adjacent pairs (x[2i], x[2i + 1]) of the last dimension, of size D, by angles.

    A checkpoint that pairs x[i] with x[i + D/2] needs the rows of its projections permuted.

    Args:
        x: [..., D] the queries or keys.
        cos: The cosines of the angles; they broadcast to [..., D/2].
        sin: The sines of the angles; they broadcast to [..., D/2].
    """
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)  # type: ignore[no-untyped-call]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def rotate_part(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x with the first elements of each head rotated by the given angles; other elements are unchanged."""
    turned = 2 * cos.size(-1)
    if turned == x.size(-1):
        return rotate(x, cos, sin)
    first, rest = x.split((turned, x.size(-1) - turned), -1)  # type: ignore[no-untyped-call]
    return torch.cat((rotate(first, cos, sin), rest), -1)


def angles_bytes(tokens: Tokens, turned: int) -> int:
    """Return the bytes of the float32 cosines and sines that a module stores for `turned` elements of a head."""
    return 4 * tokens.length * turned


def rotation_operators(
    name: str, tokens: Tokens, heads: int, dim: int, turned: int = 0, *, cut: bool = True
) -> tuple[ModelOperator, ...]:
    """Return the operators of the rotation of queries or keys.

    They are the rotation, and a copy if only some elements of each head are rotated.

    Args:
        name: The name of the operators.
        tokens: The tokens of this rank.
        heads: The heads of queries or keys.
        dim: The elements of a head.
        turned: The number of rotated elements of a head; 0: all.
        cut: True if tensor parallelism shards the heads.
    """
    turned = turned or dim
    angles = tokens.length * turned // 2
    whole = element_wise(name, "rotation", tokens.n * heads * turned, constants=angles, cut=cut)
    if turned == dim:
        return (whole,)
    return whole, element_wise(f"{name}_part", "part of a rotation", tokens.n * heads * dim, cut=cut)


class LearnedEmbedding(PositionedModule):
    """An embedding with a row for each entry of the vocabulary and a row for each position."""

    numbers: Tensor
    tables = ("numbers",)

    def __init__(self, vocab: int, positions: int, hidden: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.register_buffer("numbers", torch.arange(positions), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return [B, T, hidden] the sums of token and position embeddings, for tokens [B, T]."""
        return self.words(tokens) + self.positions(self.numbers[: tokens.size(1)])  # type: ignore[no-any-return]


class TiedOutput(nn.Module):
    """An output product with the weights of an embedding; logits may be scaled."""

    def __init__(self, words: nn.Embedding, scale: float = 1.0) -> None:
        super().__init__()
        self.words, self.scale = words, scale

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., hidden] to [..., vocab]."""
        logits = functional.linear(x, self.words.weight)
        return logits if self.scale == 1 else logits * self.scale


TIED_SHARDS = {"embedding": "spread", "embedding.words": "words", "output": "tied"}


def learned_operators(tokens: Tokens, vocab: int, positions: int, hidden: int) -> tuple[ModelOperator, ...]:
    """Return the operators of an embedding of tokens and positions, which is called `embedding`."""
    rows, placed = tokens.length * hidden, lookup("embedding.positions", tokens.length, positions, hidden, cut="")
    return (
        lookup("embedding.words", tokens.n, vocab, hidden),
        replace(placed, ahead=placed.eager.forward, table_bytes=8 * positions),
        element_wise("embedding.sum", "positions", tokens.n * hidden, constants=rows),
    )
