"""Steps that take what PyTorch and its checkpoints do in threads of their own."""

import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def checkpoint(lane):
    """Saved at once or beside the program, and read again."""
    state, at = (
        {"x": lane.data(4, torch.float32), "rank": {f"own {lane.rank}": torch.tensor([lane.rank])}},
        lane.folder / lane.new("dcp"),
    )
    state["x"] = torch.arange(4.0)  # what is not sharded is the same everywhere
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if lane.draw.random() < 0.5:
            dcp.save(state, checkpoint_id=at, process_group=lane.group)
        else:
            saving = dcp.async_save(state, checkpoint_id=at, process_group=lane.group)
            lane.nap()
            saving.result()
        dist.barrier(lane.group)
        found = {"x": torch.zeros(4), "rank": {f"own {lane.rank}": torch.zeros(1, dtype=torch.int64)}}
        dcp.load(found, checkpoint_id=at, process_group=lane.group)
    lane.note(found["x"], found["rank"][f"own {lane.rank}"], sorted(each.name[:3] for each in at.iterdir()))


def trained(lane):
    """Gradients that are averaged while the backward goes on."""
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.arange(4.0).reshape(2, 2))
    parallel = DistributedDataParallel(model, process_group=lane.group)
    for _ in range(2):
        parallel(torch.ones(1, 2) * (lane.me + 1)).sum().backward()
    lane.note([round(each, 3) for each in model.weight.grad.flatten().tolist()])


def loaded(lane):
    """Batches that a thread brings, or processes."""
    data = TensorDataset(torch.arange(6.0) + lane.rank)
    workers = lane.draw.choice([0, 1, 2])
    if dist.get_backend() == "gloo":  # whose threads a fork may come upon at a bad moment; the batches are the same
        workers = 0
    lane.note([batch[0] for batch in DataLoader(data, batch_size=2, num_workers=workers)])


STEPS = (checkpoint, trained)
ALONE = (loaded,)  # it forks, which no program ought to do beside threads
