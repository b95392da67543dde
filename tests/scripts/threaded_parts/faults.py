"""Things that a thread waits for in vain; every run must say so at once, with the rank and the line."""

import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist


def lock(lane):
    """A lock that nobody lets go."""
    held = threading.Lock()
    lane.thread(held.acquire).join()
    with held:
        pass


def itself(lane):
    """A lock that the thread has itself."""
    held = threading.Lock()
    with held, held:
        pass


def crossed(lane):
    """Two threads, each of which waits for the lock of the other."""
    one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def take(first, then):
        with first:
            both.wait()
            with then:
                pass

    thread = lane.thread(take, one, two)
    take(two, one)
    thread.join()


def nothing(lane):
    """A queue that nobody fills."""
    queue.Queue().get()


def simple(lane):
    """Another queue that nobody fills, the simple one."""
    queue.SimpleQueue().get()


def event(lane):
    """A moment that does not come."""
    threading.Event().wait()


def condition(lane):
    """A condition that nobody tells."""
    told = threading.Condition()
    with told:
        told.wait()


def few(lane):
    """A barrier to which too few come."""
    threading.Barrier(2).wait()


def joined(lane):
    """A thread that does not end."""
    lane.thread(threading.Event().wait).join()


def future(lane):
    """A result that nobody makes."""
    Future().result()


def pooled(lane):
    """A worker that waits for what only itself could do."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: pool.submit(int).result()).result()


def key(lane):
    """A key that nobody writes."""
    dist.distributed_c10d._get_default_store().get("never")


def own_key(lane):
    """A key of a store of one process that nobody writes."""
    dist.HashStore().get("never")


def collective(lane):
    """A request that no other rank makes."""
    dist.all_reduce(torch.ones(1))


def message(lane):
    """A message that nobody sends."""
    dist.recv(torch.ones(1), (lane.rank + 1) % dist.get_world_size())


FAULTS = {
    each.__name__: each
    for each in (
        lock,
        itself,
        crossed,
        nothing,
        simple,
        event,
        condition,
        few,
        joined,
        future,
        pooled,
        key,
        own_key,
        collective,
        message,
    )
}
