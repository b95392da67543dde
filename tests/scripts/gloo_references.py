"""Saves what gloo makes of each operation, dtype and reduce operation that it takes: gloo_references.py FOLDER, as one rank."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
OPS = {
    "sum": dist.ReduceOp.SUM,
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "and": dist.ReduceOp.BAND,
    "or": dist.ReduceOp.BOR,
    "xor": dist.ReduceOp.BXOR,
}
UNEVEN = [3, 0, 5, 1]
EXCHANGES = [[1] * 16, [3] * 16, [*range(7), *range(5), 0, 9, 0, 2]]


def dtypes_and_reduces():
    for dtype in FLOATS:
        yield from ((dtype, name) for name in ("sum", "product", "min", "max"))
    for dtype in INTEGERS:
        yield from ((dtype, name) for name in OPS)
    yield from ((torch.bool, name) for name in OPS)
    yield torch.complex64, "sum"


def requests(n):
    """(operation, dtype, reduce, root, counts of the blocks); all_gather and gather take no uneven ones, gather no complex."""
    for dtype, reduce in dtypes_and_reduces():
        yield from (("all_reduce", dtype, reduce, 0, (count,)) for count in (0, 1, 23))
        yield from (("reduce", dtype, reduce, root, (count,)) for root in (0, n - 1) for count in (1, 23))
        yield from (("reduce_scatter", dtype, reduce, 0, tuple(counts)) for counts in ([1] * n, [6] * n, UNEVEN))
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
        yield from (("all_gather", dtype, "sum", 0, (count,) * n) for count in (0, 1, 7))
        yield from (("all_to_all", dtype, "sum", 0, tuple(counts)) for counts in EXCHANGES)
        for root in (0, n - 1):
            yield from (("broadcast", dtype, "sum", root, (count,)) for count in (1, 23))
            yield from (("scatter", dtype, "sum", root, (count,) * n) for count in (1, 7))
            yield from (("gather", dtype, "sum", root, (count,) * n) for count in (1, 7) if not dtype.is_complex)


def values(count, dtype, generator):
    """No product of four of them is too large or too small for a float; small integers wrap around."""
    if dtype in INTEGERS:
        return torch.randint(0 if dtype == torch.uint8 else -100, 100, (count,), generator=generator).to(dtype)
    if dtype == torch.bool:
        return torch.rand(count, generator=generator) < 0.5
    size = torch.rand(count, generator=generator) + 0.5
    sign = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    return (size * sign).to(dtype)


def flat(tensors, like):
    return torch.cat([like[:0], *tensors])


def reduced(operation, given, counts, root, rank, op):
    made = given.clone()
    if operation == "all_reduce":
        dist.all_reduce(made, op)
        return made
    if operation == "reduce":
        dist.reduce(made, root, op)
        return made if rank == root else made[:0]
    made = given.new_empty(counts[rank])
    dist.reduce_scatter(made, list(given.split(counts)), op)
    return made


def copied(operation, given, counts, root, rank):
    if operation == "broadcast":
        made = given.clone() if rank == root else given.new_empty(counts[0])
        dist.broadcast(made, root)
        return made
    if operation == "scatter":
        made = given.new_empty(counts[rank])
        dist.scatter(made, list(given.split(counts)) if rank == root else None, root)
        return made
    listed = [given.new_empty(count) for count in counts]
    if operation == "all_gather":
        dist.all_gather(listed, given)
        return flat(listed, given)
    dist.gather(given, listed if rank == root else None, root)
    return flat(listed if rank == root else [], given)


def exchanged(given, counts, rank, n):
    come, go = list(counts[rank::n]), list(counts[rank * n : rank * n + n])
    made = given.new_empty(sum(come))
    dist.all_to_all_single(made, given, come, go)
    return made


def input_count(operation, counts, root, rank, n):
    if operation == "all_to_all":
        return sum(counts[rank * n : rank * n + n])
    if operation in ("all_gather", "gather"):
        return counts[rank]
    return sum(counts) if rank == root or operation not in ("broadcast", "scatter") else 0


def main():
    folder, rank, n = Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=n)
    generator = torch.Generator().manual_seed(rank)
    saved = {}
    for request in requests(n):
        operation, dtype, reduce, root, counts = request
        given = values(input_count(operation, counts, root, rank, n), dtype, generator)
        if operation == "all_to_all":
            made = exchanged(given, counts, rank, n)
        elif operation in ("all_reduce", "reduce", "reduce_scatter"):
            made = reduced(operation, given, counts, root, rank, OPS[reduce])
        else:
            made = copied(operation, given, counts, root, rank)
        saved[request] = given, made
    torch.save(list(saved.items()), folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
