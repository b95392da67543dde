"""Features that set each architecture apart, against formulas written another way."""

import math

import pytest
import torch
from torch.nn import functional

from emu.model.model import MODELS
from emu.model.parts.feed_forward import FeedForward
from emu.model.parts.norms import LayerNorm1p
from emu.model.parts.rotary import RotaryScaling, rotate, rotate_part, rotation
from models import deepseek, gpt_moe, grok

NAMES = [name for name, _ in MODELS if name.endswith("-tiny")]


@pytest.fixture(autouse=True)
def _seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        yield


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_model_starts_at_the_loss_of_guessing_and_sees_only_what_came_before(name):
    module, tokens = MODELS.find(name).build(32), torch.randint(256, (2, 32))
    logits = module(tokens)
    loss = functional.cross_entropy(logits.flatten(0, 1), torch.randint(256, (64,)))
    assert abs(loss.item() - math.log(256)) < 0.35
    later = tokens.clone()
    later[:, 20:] = (later[:, 20:] + 1) % 256
    changed = module(later)
    torch.testing.assert_close(changed[:, :20], logits[:, :20], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(changed[:, 20:], logits[:, 20:], atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_a_tiny_model_has_a_gradient(name):
    module, tokens = MODELS.find(name).build(32), torch.randint(256, (8, 32))
    functional.cross_entropy(module(tokens).flatten(0, 1), tokens.flatten()).backward()
    still = {name for name, p in module.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    assert still == set()


def test_slow_angles_of_a_longer_context_are_divided_and_fast_ones_left():
    """Wave lengths above 8192 / 1 tokens and below 8192 / 4: The Llama 3 Herd of Models (2024), section 3.4.2."""
    plain, long = (rotation(2, 128, 500_000.0, stretch) for stretch in (None, RotaryScaling(8.0, 1.0, 4.0, 8192)))
    angles = [torch.atan2(sin[1], cos[1]).double() for cos, sin in (plain, long)]
    lengths = 2 * math.pi / angles[0]
    fast, slow = lengths < 8192 / 4, lengths > 8192
    between = ~fast & ~slow
    torch.testing.assert_close(angles[1][fast], angles[0][fast])
    torch.testing.assert_close(angles[1][slow], angles[0][slow] / 8, rtol=1e-4, atol=0)
    share = (8192 / lengths[between] - 1) / 3
    torch.testing.assert_close(angles[1][between], angles[0][between] * (share + (1 - share) / 8), rtol=1e-4, atol=0)
    assert between.any()


def test_a_part_of_each_head_is_turned_and_the_rest_left():
    cos, sin = (t[:, None] for t in rotation(6, 8, 10_000.0))
    x = torch.randn(2, 6, 3, 20)
    turned = rotate_part(x, cos, sin)
    assert torch.equal(turned[..., 8:], x[..., 8:])
    assert torch.equal(turned[..., :8], rotate(x[..., :8], cos, sin))


def test_layer_norm_1p_is_layer_norm_of_one_more_than_its_weight():
    norm, x = LayerNorm1p(12), torch.randn(5, 12)
    torch.testing.assert_close(norm(x), functional.layer_norm(x, (12,)))
    torch.nn.init.normal_(norm.weight)
    torch.testing.assert_close(norm(x), functional.layer_norm(x, (12,)) * (1 + norm.weight))


@pytest.mark.parametrize("activation", ["gelu", "squared relu"])
def test_a_plain_block_is_two_products_about_its_activation(activation):
    block, x = FeedForward(6, 10, activation, biased=True), torch.randn(3, 6)
    inner = x @ block.w1.weight.T + block.w1.bias
    tangent = torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3))
    active = inner * (1 + tangent) / 2 if activation == "gelu" else inner.clamp(min=0) ** 2
    torch.testing.assert_close(block(x), active @ block.w2.weight.T + block.w2.bias)


def test_gpt_adds_a_row_for_each_position_and_ends_with_the_words_of_its_embedding():
    module = MODELS.find("gpt-tiny").build(16)
    tokens = torch.randint(256, (2, 16))
    x = module.embedding(tokens)
    torch.testing.assert_close(x, module.embedding.words.weight[tokens] + module.embedding.positions.weight[:16])
    torch.testing.assert_close(module.output(x), x @ module.embedding.words.weight.T)


def test_grok_scales_its_embedding_and_its_output():
    c = grok.CONFIGS["grok-tiny"]
    module, tokens = grok.build(c, 16), torch.randint(256, (2, 16))
    words = module.embedding.words.weight
    torch.testing.assert_close(module.embedding(tokens), words[tokens] * 8)
    x = torch.randn(2, 16, 64)
    torch.testing.assert_close(module.output(x), x @ words.T * 0.5773502691896257)
    layer = module.layers[3]
    inner = x + layer.attention_out_norm(layer.attention(layer.attention_norm(x)))
    torch.testing.assert_close(layer(x), inner + layer.sparse_out_norm(layer.sparse(layer.ffn_norm(inner))))


def test_kinds_of_layers_come_in_the_order_of_the_papers():
    assert gpt_moe.CONFIGS["gpt-moe-1.1t"].kinds == ("dense", "sparse") * 96
    assert deepseek.CONFIGS["deepseek-v3"].kinds == ("dense",) * 3 + ("sparse",) * 58
    for name in ("gpt-moe-tiny", "deepseek-tiny"):
        built = MODELS.find(name).build(8)
        kinds = tuple("sparse" if hasattr(layer, "sparse") else "dense" for layer in built.layers)
        assert kinds == MODELS.find(name).kinds
