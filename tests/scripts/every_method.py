"""Calls every collective of torch.distributed once and saves what came out: python every_method.py FOLDER."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

OPS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX, "product": dist.ReduceOp.PRODUCT}


def tensor(rank, shape, dtype):
    count = torch.Size(shape).numel()
    return (torch.arange(count).reshape(shape) * 3 % 7 + rank + 1).to(dtype)


def reductions(rank, n, dtype):
    for name, op in OPS.items():
        whole = tensor(rank, (5, 3), dtype)
        dist.all_reduce(whole, op)
        yield f"all_reduce {name}", [whole]
        rooted = tensor(rank, (7,), dtype)
        dist.reduce(rooted, n - 1, op)
        yield f"reduce {name}", [rooted] if rank == n - 1 else []
        share = torch.empty(2, 2, dtype=dtype)
        dist.reduce_scatter_tensor(share, tensor(rank, (2 * n, 2), dtype), op)
        yield f"reduce_scatter_tensor {name}", [share]
        share = torch.empty(3, dtype=dtype)
        dist.reduce_scatter(share, [tensor(rank + r, (3,), dtype) for r in range(n)], op)
        yield f"reduce_scatter {name}", [share]


def copies(rank, n, dtype):
    mine = tensor(rank, (3, 2), dtype)
    for root in (0, n - 1):
        there = tensor(rank, (5,), dtype)
        dist.broadcast(there, root)
        yield f"broadcast {root}", [there]
        listed = [torch.empty(3, 2, dtype=dtype) for _ in range(n)] if rank == root else None
        dist.gather(mine, listed, root)
        yield f"gather {root}", listed or []
        there = torch.empty(4, dtype=dtype)
        dist.scatter(there, [tensor(r, (4,), dtype) for r in range(n)] if rank == root else None, root)
        yield f"scatter {root}", [there]
    listed = [torch.empty(3, 2, dtype=dtype) for _ in range(n)]
    dist.all_gather(listed, mine)
    yield "all_gather", listed
    whole = torch.empty(3 * n, 2, dtype=dtype)
    dist.all_gather_into_tensor(whole, mine)
    yield "all_gather_into_tensor", [whole]
    inside = torch.zeros(4 * n, dtype=dtype)
    inside[4 * rank : 4 * rank + 4] = tensor(rank, (4,), dtype)
    dist.all_gather_into_tensor(inside, inside[4 * rank : 4 * rank + 4])
    yield "all_gather_into_tensor in place", [inside]


def exchanges(rank, n, dtype):
    even = torch.empty(2 * n, 2, dtype=dtype)
    dist.all_to_all_single(even, tensor(rank, (2 * n, 2), dtype))
    yield "all_to_all_single", [even]
    to, come = [rank + d for d in range(n)], [rank + s for s in range(n)]
    uneven = torch.empty(sum(come), 3, dtype=dtype)
    dist.all_to_all_single(uneven, tensor(rank, (sum(to), 3), dtype), come, to)
    yield "all_to_all_single uneven", [uneven]
    right, left = (rank + 1) % n, (rank - 1) % n
    there = torch.empty(6, dtype=dtype)
    sending = dist.isend(tensor(rank, (6,), dtype), right, tag=3)
    dist.recv(there, left, tag=3)
    sending.wait()
    yield "send and recv", [there]
    there = torch.empty(2, 3, dtype=dtype)
    batch = [dist.P2POp(dist.isend, tensor(rank, (2, 3), dtype), left), dist.P2POp(dist.irecv, there, right)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    yield "batch_isend_irecv", [there]


def groups(rank, n, dtype):
    pair = dist.new_group([0, n - 1], backend="gloo")
    both = tensor(rank, (4,), dtype)
    if rank in (0, n - 1):
        dist.all_reduce(both, group=pair)
        dist.broadcast(both, src=n - 1, group=pair)
    yield "subgroup", [both]
    awaited = tensor(rank, (8,), dtype)
    dist.all_reduce(awaited, async_op=True).wait()
    yield "async", [awaited]
    made = functional.all_gather_tensor(tensor(rank, (2, 2), dtype), 0, dist.group.WORLD)
    yield "functional all_gather", [made + 0]
    made = functional.all_reduce(tensor(rank, (3,), dtype), "sum", dist.group.WORLD)
    yield "functional all_reduce", [made + 0]
    made = functional.reduce_scatter_tensor(tensor(rank, (2 * n,), dtype), "sum", 0, dist.group.WORLD)
    yield "functional reduce_scatter", [made + 0]


def objects(rank, n):
    gathered = [None] * n
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    listed = [rank, "from rank", None] if rank else ["root", 0, {"a": 1}]
    dist.broadcast_object_list(listed, 0)
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(n)] if rank == 0 else None, 0)
    on_root = [None] * n if rank == 1 else None
    dist.gather_object(rank * 10, on_root, 1)
    dist.barrier()
    return repr((gathered, listed, mine, on_root))


def main():
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    saved = {"objects": objects(rank, n)}
    for dtype in (torch.float32, torch.int64):
        for part in (reductions, copies, exchanges, groups):
            saved |= {f"{name} {dtype}": tensors for name, tensors in part(rank, n, dtype)}
    torch.save(saved, Path(sys.argv[1]) / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
