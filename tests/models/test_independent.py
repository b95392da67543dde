"""Loss and gradient of Llama and Mixtral against their papers' formulas, written out in numpy, each head and expert by itself.

The gradient is held by the slope of that loss along a random direction in the space of all parameters.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from emu.model.model import MODELS
from models.llama import CONFIGS as LLAMA
from models.mixtral import CONFIGS as MIXTRAL

B, T = 3, 12
MODEL_CONFIGS = {"llama-tiny": LLAMA["llama-tiny"], "mixtral-tiny": MIXTRAL["mixtral-tiny"]}


def norm(x, weight, eps):
    return weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def turned(x, theta):
    """[tokens, head]: the pair of elements 2i and 2i + 1 is a complex number, turned by position * theta ** (-2i / head)."""
    head = x.shape[-1]
    z = x[:, 0::2] + 1j * x[:, 1::2]
    z = z * np.exp(1j * np.outer(np.arange(len(x)), theta ** (-np.arange(0, head, 2) / head)))
    return np.stack([z.real, z.imag], -1).reshape(x.shape)


def attention(x, w, c):
    """[tokens, hidden]: every so many heads of queries share one of keys and values."""
    head, group = c.hidden // c.heads, c.heads // c.kv_heads
    hidden = np.triu(np.full((len(x), len(x)), -np.inf), 1)
    out = []
    for h in range(c.heads):
        q = turned(x @ w("attention.wq.weight")[h * head : (h + 1) * head].T, c.rope_theta)
        of_group = slice(h // group * head, (h // group + 1) * head)
        k = turned(x @ w("attention.wk.weight")[of_group].T, c.rope_theta)
        out.append(softmax(q @ k.T / np.sqrt(head) + hidden) @ (x @ w("attention.wv.weight")[of_group].T))
    return np.concatenate(out, 1) @ w("attention.wo.weight").T


def swiglu(x, first, second, third):
    """Return the output of a gated block with weights [in, out]."""
    gate = x @ first
    return gate / (1 + np.exp(-gate)) * (x @ third) @ second


def experts(x, w, c):
    """A token goes through the two experts with the largest logits, weighed with the softmax of these two."""
    logits = x @ w("sparse.router.gate.weight").T
    out = np.zeros_like(x)
    for token, row in enumerate(logits):
        best = np.argsort(-row)[: c.top_k]
        for expert, share in zip(best, softmax(row[best]), strict=True):
            weights = [w(f"sparse.experts.{name}")[expert] for name in ("w1", "w2", "w3")]
            out[token] += share * swiglu(x[token], *weights)
    return out


def loss_of(p, c, tokens, targets):
    """The mean cross-entropy of all tokens."""
    found = []
    for row, wanted in zip(tokens, targets, strict=True):
        x = p["embedding.weight"][row]
        for layer in range(c.layers):

            def w(name, layer=layer):
                return p[f"layers.{layer}.{name}"]

            x = x + attention(norm(x, w("attention_norm.weight"), c.norm_eps), w, c)
            inner = norm(x, w("ffn_norm.weight"), c.norm_eps)
            dense = f"layers.{layer}.ffn.w1.weight" in p
            x = x + (swiglu(inner, *(w(f"ffn.w{i}.weight").T for i in (1, 2, 3))) if dense else experts(inner, w, c))
        chances = softmax(norm(x, p["norm.weight"], c.norm_eps) @ p["output.weight"].T)
        found.append(-np.log(chances[np.arange(len(row)), wanted]))
    return np.mean(found)


@pytest.mark.parametrize("name", MODEL_CONFIGS)
def test_loss_and_gradient_are_those_of_the_papers_formulas(name):
    c, generator = MODEL_CONFIGS[name], np.random.default_rng(5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        module = MODELS.find(name).build(T)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)  # as they are drawn, they are so small that every word is as likely
    p = {key: each.detach().numpy().astype(np.float64) for key, each in module.named_parameters()}
    tokens, targets = generator.integers(0, c.vocab, (2, B, T))
    loss = functional.cross_entropy(module(torch.from_numpy(tokens)).flatten(0, 1), torch.from_numpy(targets).flatten())
    loss.backward()
    assert loss.item() > 1.03 * np.log(c.vocab)
    assert loss.item() == pytest.approx(loss_of(p, c, tokens, targets), rel=1e-5)

    towards = {key: generator.standard_normal(each.shape) for key, each in p.items()}
    step = 1e-7
    ends = [
        loss_of({key: each + sign * step * towards[key] for key, each in p.items()}, c, tokens, targets) for sign in (1, -1)
    ]
    slope = sum(float((each.grad.numpy() * towards[key]).sum()) for key, each in module.named_parameters())
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4)
