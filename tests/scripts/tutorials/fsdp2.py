"""FSDP2 as PyTorch's example has it: built on meta, sharded, trained in mixed precision, saved whole: fsdp2.py FILE."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    def reset_parameters(self):
        for part in (self.norm, self.up, self.down):
            part.reset_parameters()


class Model(nn.Module):
    def __init__(self, layers=3, width=16):
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.clone()


def main():
    rank = int(os.environ["LOCAL_RANK"])
    assert torch.accelerator.is_available()
    device = torch.device(f"{torch.accelerator.current_accelerator()}:{rank}")
    torch.accelerator.set_device_index(rank)
    dist.init_process_group(backend=dist.get_default_backend_for_device(device), device_id=device)
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    assert isinstance(model, FSDPModule)
    for param in model.parameters():
        assert param.placements == (Shard(0),)
        assert param.dtype == torch.float32
    for i, layer in enumerate(model.layers[:-1]):
        layer.set_modules_to_forward_prefetch([model.layers[i + 1]])
    model.to_empty(device=device)
    for layer in model.layers:
        layer.reset_parameters()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        model.unshard()
        loss = model(torch.rand(4, 16, device=device)).float().square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        torch.save(whole, sys.argv[1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
