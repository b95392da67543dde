"""A pipeline of two stages as PyTorch's tutorial has it, by deleting layers or by tracing: pipelining.py manual|traced FILE."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, SplitPoint, pipeline


class Model(nn.Module):
    def __init__(self, vocab=50, width=16, layers=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleDict({str(i): nn.Linear(width, width) for i in range(layers)})
        self.output = nn.Linear(width, vocab)

    def forward(self, x):
        h = self.embed(x) if self.embed else x
        for layer in self.layers.values():
            h = torch.relu(layer(h))
        return self.output(h) if self.output else h


def loss_of(outputs, targets):
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def manual_model_split(model, rank, device, group):
    for i in range(2, 4) if rank == 0 else range(2):
        del model.layers[str(i)]
    if rank == 0:
        model.output = None
    else:
        model.embed = None
    return PipelineStage(model.to(device), rank, int(os.environ["WORLD_SIZE"]), device, group=group)


def tracer_model_split(model, rank, device, group, example):
    pipe = pipeline(module=model, mb_args=(example,), split_spec={"layers.2": SplitPoint.BEGINNING})
    return pipe.build_stage(rank, device, group)


def main():
    way, file = sys.argv[1:]
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{rank}") if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group()
    group = dist.new_group()
    torch.manual_seed(0)
    model = Model()
    x = torch.arange(64).reshape(8, 8).remainder(50).to(device)
    y = x.flip(1)
    if way == "manual":
        stage = manual_model_split(model, rank, device, group)
    else:
        stage = tracer_model_split(model, rank, device, group, x.chunk(4)[0])
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=loss_of)
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.1)
    found = []
    for _ in range(2):
        losses = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=losses)
            found.append(torch.stack(losses).mean().item())
        optimizer.step()
        optimizer.zero_grad()
    if rank == 1:
        torch.save(found, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
