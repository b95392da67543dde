"""A model of Hugging Face's transformers in a plain loop, with its losses saved: huggingface.py llama|gpt2 ddp|fsdp2 FILE."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

CONFIGS = {
    "llama": LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    ),
    "gpt2": GPT2Config(
        vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    ),
}


def tokens():
    return torch.randint(64, (16, 16), generator=torch.Generator().manual_seed(1))


def layers(model):
    return model.model.layers if hasattr(model, "model") else model.transformer.h


def made(name):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[name])


def train(model, batches, mean):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for (batch,) in batches:
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(loss.detach()))
    return losses


def mean(loss):
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    return loss.item()


def main():
    name, way, file = sys.argv[1:]
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    model = made(name).to("cuda")
    if way == "ddp":
        model = DistributedDataParallel(model, device_ids=[local_rank])
    else:
        for layer in layers(model):
            fully_shard(layer)
        fully_shard(model)
    data = TensorDataset(tokens())
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))
    losses = train(model, ([batch.to("cuda")] for (batch,) in loader), mean)
    if dist.get_rank() == 0:
        torch.save(losses, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
