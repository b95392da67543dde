"""Steps of a Llama in plain PyTorch, by FSDP2 over all ranks, or over dp where --tp shards each layer's tensors first.

The sizes are by default those of Llama 3 8B.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from torch.nn import functional

SIZES = {"layers": 32, "hidden": 4096, "heads": 32, "kv": 8, "ffn": 14336, "vocab": 128256, "seq": 8192, "tp": 1, "steps": 3}
parser = argparse.ArgumentParser()
for name, size in SIZES.items():
    parser.add_argument(f"--{name}", type=int, default=size)
c = parser.parse_args()
DIM = c.hidden // c.heads


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(c.hidden, c.heads * DIM, bias=False)
        self.wk = nn.Linear(c.hidden, c.kv * DIM, bias=False)
        self.wv = nn.Linear(c.hidden, c.kv * DIM, bias=False)
        self.wo = nn.Linear(c.heads * DIM, c.hidden, bias=False)
        angles = torch.outer(torch.arange(c.seq, dtype=torch.float32), 500_000.0 ** (-torch.arange(0, DIM, 2) / DIM))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def turned(self, x):
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = self.cos[: x.size(1), None], self.sin[: x.size(1), None]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (-1, DIM)) for w in (self.wq, self.wk, self.wv))
        q, k, v = (t.transpose(1, 2) for t in (self.turned(q), self.turned(k), v))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(c.hidden, c.ffn, bias=False)
        self.w2 = nn.Linear(c.ffn, c.hidden, bias=False)
        self.w3 = nn.Linear(c.hidden, c.ffn, bias=False)

    def forward(self, x):
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(c.hidden, 1e-5), nn.RMSNorm(c.hidden, 1e-5)
        self.attention, self.ffn = Attention(), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList(Layer() for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.hidden, 1e-5)
        self.output = nn.Linear(c.hidden, c.vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def styles():
    def shared():
        return PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))

    found = {"embedding": RowwiseParallel(input_layouts=Replicate()), "output": ColwiseParallel(output_layouts=Replicate())}
    for i in range(c.layers):
        attention, ffn = f"layers.{i}.attention", f"layers.{i}.ffn"
        found |= {attention: shared(), ffn: shared()}
        found |= {f"{attention}.{w}": ColwiseParallel() for w in ("wq", "wk", "wv")}
        found |= {f"{ffn}.{w}": ColwiseParallel() for w in ("w1", "w3")}
        found |= {f"{attention}.wo": RowwiseParallel(), f"{ffn}.w2": RowwiseParallel()}
    return found


dist.init_process_group()
torch.manual_seed(0)
model = Llama()
sizes, names = (dist.get_world_size() // c.tp, c.tp), ("dp", "tp")
mesh = init_device_mesh("cpu", sizes if c.tp > 1 else sizes[:1], mesh_dim_names=names if c.tp > 1 else names[:1])
if c.tp > 1:
    parallelize_module(model, mesh["tp"], styles())
for layer in model.layers:
    fully_shard(layer, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(c.steps):
    tokens = torch.randint(c.vocab, (1, c.seq + 1))
    logits = model(tokens[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.4f}")  # noqa: T201 - as scripts do
dist.destroy_process_group()
