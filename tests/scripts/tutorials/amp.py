"""A loop with all that a training script asks of its GPU: AMP, pinned batches, streams, events, memory: amp.py FILE."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.cuda.manual_seed_all(0)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).cuda()
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local_rank], output_device=local_rank)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.05), torch.amp.GradScaler("cuda")
    x = torch.linspace(-1, 1, 128).reshape(16, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False), pin_memory=True)
    side, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.reset_peak_memory_stats()
    losses = []
    start.record()
    for _ in range(3):
        for batch, target in loader:
            with torch.cuda.stream(side):
                batch = batch.cuda(non_blocking=True)  # noqa: PLW2901 - as such loops have it
                target = target.to("cuda", non_blocking=True)  # noqa: PLW2901
            torch.cuda.current_stream().wait_stream(side)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = nn.functional.mse_loss(model(batch), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated() > 0
    if dist.get_rank() == 0:
        torch.save(losses, sys.argv[1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
