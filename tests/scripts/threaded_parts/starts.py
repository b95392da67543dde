"""The ways in which threads are started and awaited, and groups are made."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def joined(draw, bodies):
    """Threads, some of them daemons, that are awaited in any order."""
    threads = [threading.Thread(target=body, daemon=draw.random() < 0.5) for body in bodies]
    for thread in threads:
        thread.start()
    yield
    draw.shuffle(threads)
    for thread in threads:
        while draw.random() < 0.3 and thread.is_alive():
            thread.join(0.002)
        thread.join()


def told(draw, bodies):
    """Daemons that tell a queue when they have done."""
    ends = queue.Queue()
    for body in bodies:
        threading.Thread(target=lambda body=body: (body(), ends.put(1)), daemon=True).start()
    yield
    for _ in bodies:
        ends.get()


def timed(draw, bodies):
    """Timers."""
    timers = [threading.Timer(draw.choice([0, 0.002]), body) for body in bodies]
    for timer in timers:
        timer.start()
    yield
    for timer in timers:
        timer.join()


class _Own(threading.Thread):
    def __init__(self, body, after):
        super().__init__()
        self.body, self.after = body, after

    def run(self):
        if self.after is not None:  # which is started and awaited by this one
            self.after.start()
        self.body()
        if self.after is not None:
            self.after.join()


def nested(draw, bodies):
    """Threads of a class of the program's own, each of which starts the next."""
    thread = None
    for body in bodies[::-1]:
        thread = _Own(body, thread)
    if thread is not None:
        thread.start()
    yield
    if thread is not None:
        thread.join()


def pooled(draw, bodies):
    """A pool with as many workers or fewer, the results of which are asked for in different ways."""
    with ThreadPoolExecutor(draw.randint(1, len(bodies) + 1)) as pool:
        asked = [pool.submit(body) for body in bodies]
        yield
        for future in as_completed(asked) if draw.random() < 0.5 else asked:
            future.result()


def mapped(draw, bodies):
    """A pool that maps the bodies."""
    pool = ThreadPoolExecutor(len(bodies) + 1)
    found = pool.map(lambda body: body(), bodies)
    yield
    list(found)
    pool.shutdown(wait=draw.random() < 0.5)


def chained(draw, bodies):
    """Each is called back as the one before it has ended, on a worker's thread."""
    with ThreadPoolExecutor(2) as pool:
        last = threading.Event()
        rest = [*bodies, last.set]

        def go_on(_):
            body = rest.pop(0)
            if rest:
                pool.submit(body).add_done_callback(go_on)
            else:
                body()

        pool.submit(int).add_done_callback(go_on)
        yield
        last.wait()


WAYS = (joined, told, timed, nested, pooled, mapped, chained)


def groups(draw, rank, lists, counts, is_local):
    """Return the group of each list of ranks, in order; None where the rank is no member, or makes it later on a thread.

    Args:
        draw: All ranks draw the same.
        rank: This one.
        lists: Of the members.
        counts: How many groups each rank has: PyTorch names those by it that members make alone, so it must be equal.
        is_local: Whether members may make groups alone: not where groups end before, or a name would come twice.
    """
    order, found = list(range(len(lists))), [None] * len(lists)
    draw.shuffle(order)
    for i in order:
        ways = ["all", "local", "later" if i == order[-1] else "local"]
        way = draw.choice(ways if is_local and len({counts[each] for each in lists[i]}) == 1 else ["all"])
        if way == "all" or (way == "local" and rank in lists[i]):
            group = local(lists[i]) if way == "local" else dist.new_group(list(lists[i]))
            found[i] = group if rank in lists[i] else None
        counts.update(lists[i])
    return found


def local(ranks):
    """Return a group that its members make alone."""
    return dist.new_group(list(ranks), use_local_synchronization=True)


def parts(draw, rank, n):
    """Return the ranks and the groups of disjoint parts of the world, by a mesh or by a split."""
    if n == 4 and draw.random() < 0.5:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        lists = {"a": [(0, 2), (1, 3)], "b": [(0, 1), (2, 3)]}
        return [(ranks, mesh.get_group(name)) for name in draw.sample("ab", 2) for ranks in lists[name] if rank in ranks]
    at = draw.randint(1, n - 1)
    both = [tuple(range(at)), tuple(range(at, n))]
    return [(ranks, group) for ranks, group in zip(both, _split(both), strict=True) if rank in ranks]


def _split(lists):
    if dist.get_backend() == "gloo":  # which PyTorch does not let split a group where there is no GPU
        return [dist.new_group(list(ranks)) for ranks in lists]
    return [dist.split_group(split_ranks=[list(ranks) for ranks in lists])] * 2
