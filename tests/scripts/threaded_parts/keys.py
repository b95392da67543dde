"""Steps that leave values at stores."""

import time
from datetime import timedelta

import torch.distributed as dist


def made(lane):
    """Return a store that the ranks of a lane share, none of its keys written."""
    kind, name = lane.draw.choice(["default", "tcp", "file", "prefix", "prefix of a prefix"]), lane.new("store")
    if kind == "tcp":
        return tcp(lane)
    if kind == "file":
        return dist.FileStore(str(lane.folder / name), lane.n)
    store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store().clone())  # each asks one thing at a time
    if kind.endswith("prefix"):
        store = dist.PrefixStore("inner", store)
    return store


def tcp(lane):
    """Return a store that the first rank serves, at a port that the system has free."""
    waits, port = lane.draw.random() < 0.5, [0]
    if lane.me == 0:
        store = dist.TCPStore("127.0.0.1", 0, lane.n, True, wait_for_workers=False)
        port = [store.port]
    dist.broadcast_object_list(port, src=lane.ranks[0], group=lane.group)
    if lane.me != 0:
        store = dist.TCPStore("127.0.0.1", port[0], lane.n, False, timedelta(seconds=60), wait_for_workers=waits)
    return store


def handover(lane, store):
    waits = lane.draw.random() < 0.5
    if lane.me == 0:
        lane.nap()
        store.set("a", f"from {lane.rank}")
    elif waits:
        store.wait(["a"])
    lane.note(store.get("a"))


def along(lane, store):
    if lane.me:
        lane.note(store.get(f"to {lane.me}"))
    store.set(f"to {lane.me + 1}", f"from {lane.rank}")


def counter(lane, store):
    """Ask again and again how many have come."""
    store.add("count", 1)
    while store.add("count", 0) < lane.n:
        time.sleep(0.0005)
    lane.note(store.add("count", 0))


def asked(lane, store):
    """Ask again and again whether a key is there."""
    if lane.me == 0:
        lane.nap()
        store.set("there", "1")
    while not store.check(["there"]):
        lane.nap()
    lane.note(store.get("there"))


def compared(lane, store):
    """Each in its turn replaces what the one before it has left."""
    if lane.me == 0:
        lane.note(store.compare_set("token", "", "0"))
    else:
        while store.compare_set("token", str(lane.me - 1), str(lane.me)) != str(lane.me).encode():
            time.sleep(0.0005)
    lane.note(lane.me)


def listed(lane, store):
    store.set(f"value {lane.me}", f"{lane.rank * 10}")
    names = [f"value {i}" for i in range(lane.n)]
    lane.draw.shuffle(names)
    lane.note(*store.multi_get(names))


def removed(lane, store):
    if lane.me == 0:
        store.set("x", "1")
        store.set("y", "2")
        lane.note(store.delete_key("x"), store.delete_key("never"), store.check(["x"]))
        store.set("removed", "1")
    store.wait(["removed"], timedelta(seconds=60))
    lane.note(store.check(["x"]), store.check(["y"]), store.get("y"))


def late(lane, store):
    """A key that nobody writes is not there in its time."""
    try:
        store.wait(["never"], timedelta(milliseconds=lane.draw.choice([20, 40])))
    except Exception as error:
        lane.note(type(error).__name__)


def in_a_thread(lane, store):
    """A thread waits for a key while the one that has started it goes on."""
    got = []
    other = store.clone()  # of which a wait holds up nobody else's
    waiting = lane.thread(lambda: got.append(other.get("from the last")))
    if lane.me == lane.n - 1:
        lane.nap()
        store.set("from the last", "here")
    waiting.join()
    lane.note(got[0])


def of_the_rank(lane, store):
    """A store of one process, whose threads hand a value to each other."""
    mine, got = dist.HashStore(), []
    waiting = lane.thread(lambda: got.append(mine.get("k")))
    lane.nap()
    mine.set("k", f"{lane.rank}")
    waiting.join()
    lane.note(got[0], mine.num_keys(), mine.add("n", 3), mine.add("n", -1))


_WAYS = (handover, along, counter, asked, compared, listed, removed, late, in_a_thread, of_the_rank)


def stored(lane):
    """One of them, with a store of its own, which lives until all have done."""
    store = made(lane)
    lane.draw.choice(_WAYS)(lane, store)
    dist.barrier(lane.group)


STEPS = (stored,)
