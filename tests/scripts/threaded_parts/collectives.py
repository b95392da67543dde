"""Steps that communicate on the group of a lane."""

import torch
import torch.distributed as dist

REDUCES = (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT)


def finish(lane, ask, *given, **options):
    """Ask, at once or later."""
    if lane.draw.random() < 0.5:
        ask(*given, group=lane.group, **options)
        return
    work = ask(*given, group=lane.group, async_op=True, **options)
    for _ in range(lane.draw.choice([0, 1, 3, 1000])):  # every rank draws as much as the others
        if not work.is_completed():
            lane.nap()
    work.wait()


def all_reduce(lane):
    x = lane.data()
    finish(lane, dist.all_reduce, x, op=lane.draw.choice(REDUCES))
    lane.note(x)


def bits(lane):
    x = lane.data(dtype=torch.int64)
    finish(lane, dist.all_reduce, x, op=lane.draw.choice([dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]))
    lane.note(x)


def reduce(lane):
    x, root = lane.data(), lane.draw.choice(lane.ranks)
    finish(lane, dist.reduce, x, root)
    if lane.rank == root:
        lane.note(x)


def broadcast(lane):
    x = lane.data()
    finish(lane, dist.broadcast, x, lane.draw.choice(lane.ranks))
    lane.note(x)


def all_gather(lane):
    x = lane.data()
    parts = [torch.empty_like(x) for _ in lane.ranks]
    finish(lane, dist.all_gather, parts, x)
    lane.note(parts)


def all_gather_whole(lane):
    x = lane.data()
    whole = torch.empty(lane.n * len(x), dtype=x.dtype)
    finish(lane, dist.all_gather_into_tensor, whole, x)
    lane.note(whole)


def reduce_scatter(lane):
    x = lane.data(4 * lane.n)
    part = torch.empty(4, dtype=x.dtype)
    if lane.draw.random() < 0.5:
        finish(lane, dist.reduce_scatter, part, list(x.chunk(lane.n)))
    else:
        finish(lane, dist.reduce_scatter_tensor, part, x)
    lane.note(part)


def all_to_all(lane):
    x = lane.data(3 * lane.n)
    got = torch.empty_like(x)
    finish(lane, dist.all_to_all_single, got, x)
    lane.note(got)


def scatter(lane):
    root, x = lane.draw.choice(lane.ranks), lane.data()
    finish(lane, dist.scatter, x, [x + i for i in range(lane.n)] if lane.rank == root else None, src=root)
    lane.note(x)


def gather(lane):
    root, x = lane.draw.choice(lane.ranks), lane.data()
    parts = [torch.empty_like(x) for _ in lane.ranks] if lane.rank == root else None
    finish(lane, dist.gather, x, parts, dst=root)
    lane.note(parts)


def objects(lane):
    every, root = [None] * lane.n, lane.draw.choice(lane.ranks)
    dist.all_gather_object(every, {"rank": lane.rank, "name": lane.name}, group=lane.group)
    said = [f"from {lane.rank}", lane.me]
    dist.broadcast_object_list(said, src=root, group=lane.group)
    lane.note(*(str(each) for each in every), said)


def barrier(lane):
    lane.nap()
    finish(lane, dist.barrier)
    lane.note("passed")


def ring(lane):
    x = lane.data()
    got, tag = torch.empty_like(x), lane.draw.randrange(5)
    after, before = lane.ranks[(lane.me + 1) % lane.n], lane.ranks[lane.me - 1]
    if lane.n == 1:
        return
    if lane.draw.random() < 0.5:
        sent = dist.isend(x, after, group=lane.group, tag=tag)
        dist.recv(got, before, group=lane.group, tag=tag)
        sent.wait()
    else:
        asked = [dist.P2POp(dist.isend, x, after, lane.group), dist.P2POp(dist.irecv, got, before, lane.group)]
        for work in dist.batch_isend_irecv(asked):
            work.wait()
    lane.note(got)


def pairs(lane):
    """Messages back and forth between the first two."""
    x = lane.data()
    if lane.me < 2 <= lane.n:
        other = lane.ranks[1 - lane.me]
        for turn in range(3):
            if turn % 2 == lane.me:
                dist.send(x + turn, other, group=lane.group)
            else:
                dist.recv(x, other, group=lane.group)
    lane.note(x)


def callbacks(lane):
    x, seen = lane.data(), []
    work = dist.all_reduce(x, group=lane.group, async_op=True)
    after = work.get_future().then(lambda done: seen.append(1) or done.value()[0] * 2)
    twice = after.then(lambda done: done.value() + 1)
    lane.note(twice.wait(), x, seen)


def many(lane):
    """Several requests under way, which are awaited in another order."""
    xs = [lane.data() for _ in range(4)]
    works = [dist.all_reduce(x, group=lane.group, async_op=True) for x in xs]
    lane.draw.shuffle(works)
    for work in works:
        work.wait()
    lane.note(xs)


STEPS = (
    all_reduce,
    bits,
    reduce,
    broadcast,
    all_gather,
    all_gather_whole,
    reduce_scatter,
    all_to_all,
    scatter,
    gather,
    objects,
    barrier,
    ring,
    pairs,
    callbacks,
    many,
)
