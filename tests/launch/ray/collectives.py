"""A program that calls every collective once."""

import torch
import torch.distributed as dist


def every_collective(rank, group=None):
    """Return the results of small integers, whose sums no order changes, by operation."""
    n = dist.get_world_size(group)
    given = torch.arange(12.0) * (rank + 1)
    made = {}
    for how in ("SUM", "MIN", "MAX", "PRODUCT"):
        made[how] = given.clone()
        dist.all_reduce(made[how], getattr(dist.ReduceOp, how), group=group)
    made["broadcast"] = given.bfloat16()
    dist.broadcast(made["broadcast"], 2, group=group)
    made["reduce"] = given.clone()
    dist.reduce(made["reduce"], 1, group=group)
    if rank != 1:
        made.pop("reduce")  # gloo leaves its own intermediate sums there
    gathered = [torch.empty(12) for _ in range(n)]
    dist.all_gather(gathered, given, group=group)
    made["all_gather"] = torch.stack(gathered)
    made["reduce_scatter"] = torch.empty(3)
    dist.reduce_scatter(made["reduce_scatter"], list(given.split(3)), group=group)
    made["all_to_all"] = torch.empty(n * (rank + 1))
    dist.all_to_all_single(made["all_to_all"], given[:10].clone(), [rank + 1] * n, [1, 2, 3, 4], group=group)
    on_root = [torch.empty(12) for _ in range(n)] if rank == 3 else None
    dist.gather(given, on_root, 3, group=group)
    made["gather"] = torch.stack(on_root) if on_root else torch.empty(0)
    made["scatter"] = torch.empty(3)
    dist.scatter(made["scatter"], list(given.split(3)) if rank == 2 else None, 2, group=group)
    made["flags"] = torch.tensor([rank == 1, True])
    dist.broadcast(made["flags"], 1, group=group)
    ring = torch.zeros(5, dtype=torch.int64)
    sent = dist.isend(torch.full((5,), rank), (rank + 1) % n, group=group, tag=9)
    dist.recv(ring, (rank - 1) % n, group=group, tag=9)
    sent.wait()
    made["ring"] = ring
    return made
