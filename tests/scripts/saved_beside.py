"""A checkpoint that PyTorch saves beside the training; arguments: THREAD or PROCESS, and a folder."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.fsdp import fully_shard


def main(kind, folder):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    fully_shard(model)
    group, weights = dist.new_group(backend="gloo"), lambda: [p.full_tensor().clone() for p in model.parameters()]
    optimizer, saving, kept = torch.optim.SGD(model.parameters(), lr=0.1), None, {}
    for step in range(4):
        model(torch.ones(2, 4) * dist.get_rank()).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 2:
            if saving is not None:
                saving.result()
            kept[step] = weights()
            state = {"model": get_model_state_dict(model)}
            how = getattr(AsyncCheckpointerType, kind)
            saving = dcp.async_save(state, checkpoint_id=f"{folder}/{step}", process_group=group, async_checkpointer_type=how)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    saving.result()
    dist.barrier()
    for step, expected in kept.items():
        state = {"model": get_model_state_dict(model)}
        dcp.load(state, checkpoint_id=f"{folder}/{step}")
        set_model_state_dict(model, state["model"])
        assert all(map(torch.equal, weights(), expected)), step
    if dist.get_rank() == 0:
        torch.save(expected, f"{folder}/expected")


if __name__ == "__main__":
    main(*sys.argv[1:])
