"""The pieces of Llama against formulas written another way."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from emu.model.model import MODELS
from emu.model.parts.attention_block import Attention
from emu.model.parts.feed_forward import FeedForward
from emu.model.parts.rotary import rotate, rotation
from models.llama import CONFIGS, Config, llama

SMALL = Config(layers=2, hidden=48, heads=6, kv_heads=2, ffn=80, vocab=64, max_seq=32)


@pytest.fixture(autouse=True)
def _seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        yield


def test_the_8b_has_the_published_number_of_parameters():
    assert MODELS.find("llama3-8b").parameters() == 8_030_261_248
    with torch.device("meta"):
        assert sum(p.numel() for p in llama("llama3-8b", CONFIGS["llama3-8b"]).build(8).parameters()) == 8_030_261_248


def test_rotation_is_a_complex_product():
    x = torch.randn(2, 3, 10, 8, dtype=torch.float64)
    cos, sin = rotation(10, 8, 500_000.0)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    angle = torch.arange(10.0, dtype=torch.float64)[:, None] * 500_000.0 ** (-torch.arange(0, 8, 2) / 8.0)
    expected = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
    torch.testing.assert_close(rotate(x, cos.double(), sin.double()), expected, rtol=1e-6, atol=1e-6)


def test_rotated_scores_depend_on_distance_alone():
    cos, sin = rotation(12, 8, 10_000.0)
    q, k = (torch.randn(8).expand(1, 1, 12, 8) for _ in range(2))
    scores = rotate(q, cos, sin) @ rotate(k, cos, sin).transpose(-1, -2)
    for distance in range(-11, 12):
        diagonal = scores[0, 0].diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)


def test_grouped_attention_is_attention_with_each_key_head_repeated():
    heads = SMALL.attention
    attention = Attention(heads, 16)
    x = torch.randn(2, 16, SMALL.hidden)
    cos, sin = rotation(16, heads.head_dim, SMALL.rope_theta)
    q, k, v = (w(x).view(2, 16, -1, heads.head_dim).transpose(1, 2) for w in (attention.wq, attention.wk, attention.wv))
    k, v = (t.repeat_interleave(SMALL.heads // SMALL.kv_heads, dim=1) for t in (rotate(k, cos, sin), v))
    scores = rotate(q, cos, sin) @ k.transpose(-1, -2) / heads.head_dim**0.5
    scores = scores.masked_fill(torch.ones(16, 16).triu(1).bool(), float("-inf"))
    expected = attention.wo((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 16, -1))
    torch.testing.assert_close(attention(x), expected)


def test_feed_forward_is_swiglu():
    ffn, x = FeedForward(SMALL.hidden, SMALL.ffn), torch.randn(5, SMALL.hidden)
    gate = x @ ffn.w1.weight.T
    torch.testing.assert_close(ffn(x), (gate * gate.sigmoid() * (x @ ffn.w3.weight.T)) @ ffn.w2.weight.T)


def test_norms_divide_by_the_root_mean_square():
    norm, x = llama("small", SMALL).build(8).norm, torch.randn(5, SMALL.hidden)
    nn.init.uniform_(norm.weight)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), expected)


def test_a_token_sees_only_what_came_before():
    module, tokens = llama("small", SMALL).build(16), torch.randint(64, (1, 16))
    later = tokens.clone()
    later[0, 9:] = (later[0, 9:] + 1) % 64
    torch.testing.assert_close(module(tokens)[:, :9], module(later)[:, :9])
    assert not torch.allclose(module(tokens)[:, 9:], module(later)[:, 9:])


def test_first_loss_is_that_of_guessing():
    module, tokens = MODELS.find("llama-tiny").build(64), torch.randint(256, (4, 64))
    loss = functional.cross_entropy(module(tokens).flatten(0, 1), tokens.flatten())
    assert abs(loss.item() - torch.tensor(256.0).log().item()) < 0.1
