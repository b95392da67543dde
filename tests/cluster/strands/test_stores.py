"""PyTorch's stores on ranks of one process: who waits for a key lets the others run."""

import gc
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from emu.cluster.threads.threads import ThreadRanks
from emu.errors import RunError
from tests.cluster.apart import run_apart

N = 3
NEXT_PORT = 29_700


def made(kind, rank, tmp_path):
    if kind == "tcp":
        return dist.TCPStore("127.0.0.1", NEXT_PORT, N, is_master=rank == 0)
    if kind == "file":
        return dist.FileStore(str(tmp_path / "store"), N)
    return dist.distributed_c10d._get_default_store()


@pytest.mark.parametrize("kind", ["tcp", "file", "default"])
@pytest.mark.parametrize("prefix", [False, True])
def test_ranks_wait_for_one_another_s_keys(kind, prefix, tmp_path):
    def program(rank):
        store = made(kind, rank, tmp_path)
        store = dist.PrefixStore("a", store) if prefix else store
        if rank == N - 1:  # all others wait for it, though it runs last
            store.set("last", "here")
        found = [store.get("last"), store.add("sum", rank)]
        store.set(f"rank {rank}", str(rank))
        store.wait([f"rank {each}" for each in range(N)])
        dist.barrier()
        return found[0], store.add("sum", 0), store.check(["last"]), store.check(["never"])

    assert ThreadRanks(N).run(program) == [(b"here", 3, True, False)] * N


def test_a_store_that_waits_for_all_workers_waits_for_them():
    order = []

    def program(rank):
        if rank:
            order.append(rank)
        dist.TCPStore("127.0.0.1", NEXT_PORT, N, is_master=rank == 0, wait_for_workers=True)
        if rank == 0:
            order.append(rank)

    ThreadRanks(N).run(program)
    assert order == [1, 2, 0]


def test_values_change_as_in_pytorch_s_own():
    def program(rank):
        if rank:
            return None
        own, native = dist.HashStore(), NATIVE()
        found = []
        for store in (own, native):
            store.set("a", "1")
            told = [store.compare_set("a", "1", "2"), store.compare_set("a", "1", "3"), store.add("n", 5), store.num_keys()]
            store.append("a", "x")
            store.multi_set(["b", "c"], ["4", "5"])
            told += [
                store.multi_get(["b", "c"]),
                store.get("a"),
                store.delete_key("a"),
                store.delete_key("a"),
                store.check(["a"]),
            ]
            found.append(told)
        assert found[0] == found[1]
        return len(found[0])

    assert ThreadRanks(2).run(program) == [9, None]


NATIVE = dist.HashStore


def test_threads_of_a_rank_wait_for_keys_of_each_other():
    def program(rank):
        store = dist.HashStore()
        thread = threading.Thread(target=lambda: store.set("answer", str(rank)))
        thread.start()
        return store.get("answer")

    assert ThreadRanks(N).run(program) == [str(rank).encode() for rank in range(N)]


def test_a_key_that_nobody_writes_is_named_at_once_with_rank_and_line():
    def program(rank):
        if rank == 1:
            dist.distributed_c10d._get_default_store().wait(["never"])
        dist.barrier()

    with pytest.raises(RunError, match=r"deadlock: .*rank 1 waits for key '.*never' of a store \(.*test_stores.py:\d+\)"):
        ThreadRanks(N).run(program)


def test_a_wait_that_the_program_has_limited_ends_as_in_pytorch():
    def program(rank):
        store = dist.TCPStore("127.0.0.1", NEXT_PORT, is_master=rank == 0)
        if rank == 0:
            with pytest.raises(dist.DistStoreError, match=r"wait timeout after 50ms, keys: /?never"):
                store.wait(["never"], timedelta(milliseconds=50))
        dist.barrier()
        return True

    assert all(ThreadRanks(2).run(program))


def test_a_second_store_at_a_port_is_refused():
    def program(rank):
        dist.TCPStore("127.0.0.1", NEXT_PORT, is_master=True, wait_for_workers=False)

    with pytest.raises(RunError, match=f"port {NEXT_PORT}"):
        ThreadRanks(2).run(program)


def test_a_store_without_a_server_is_named_at_once():
    with pytest.raises(RunError, match=r"deadlock: rank 0 waits for key '127.0.0.1:\d+' of a store"):
        ThreadRanks(1).run(lambda _: dist.TCPStore("127.0.0.1", NEXT_PORT, is_master=False))


def reopened(rank):
    """Return what a rank finds in a store that is opened again at the port of one that has been dropped."""
    found = []
    for turn in range(3):
        store = dist.TCPStore("127.0.0.1", NEXT_PORT + 1, N, is_master=rank == 0, timeout=timedelta(seconds=20))
        found += [store.check([f"turn {each}"]) for each in range(turn)]
        store.set(f"key {rank}", "here")
        store.set(f"turn {turn}", "1")
        store.wait([f"key {each}" for each in range(N)])
        del store
        dist.barrier()
    return found


def queued(rank):
    """Return what the last rank takes from queues of a store, and its keys."""
    store = dist.TCPStore("127.0.0.1", NEXT_PORT + 2, N, is_master=rank == 0)
    if rank < N - 1:
        store.queue_push(f"of {rank}", f"value {rank}")
        dist.barrier()
        return None
    values = [store.queue_pop(f"of {each}") for each in range(N - 1)]
    dist.barrier()
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("of 0", block=False)
    store.set_timeout(timedelta(seconds=0.1))
    with pytest.raises(dist.DistStoreError, match="wait timeout after 100ms, keys: of 0"):
        store.queue_pop("of 0")
    store.set("key", "value")
    return values, store.queue_len("of 1"), store.list_keys(), store.num_keys()


QUEUED = [None] * (N - 1) + [([f"value {each}".encode() for each in range(N - 1)], 0, ["key"], 2)]


def test_a_store_is_opened_anew_at_the_port_of_one_that_was_dropped():
    assert ThreadRanks(N).run(reopened) == [[False] * 3] * N


def test_a_store_has_queues_and_lists_its_keys():
    assert ThreadRanks(N).run(queued) == QUEUED


@pytest.mark.parametrize("per_process", [1, 2])
def test_also_in_processes(per_process):
    assert run_apart(N, per_process, reopened)[0] == [[False] * 3] * N
    assert run_apart(N, per_process, queued)[0] == QUEUED


def test_a_queue_that_nobody_fills_is_a_deadlock():
    def program(rank):
        if rank == 0:
            dist.TCPStore("127.0.0.1", NEXT_PORT, 1, is_master=True).queue_pop("empty")

    with pytest.raises(RunError, match=r"deadlock: rank 0 waits for queue 'empty' of a store"):
        ThreadRanks(2).run(program)


def test_the_store_of_a_rendezvous_can_be_asked_for_again(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(NEXT_PORT + 3))

    def program(rank):
        stores = [next(dist.rendezvous(f"env://?rank={rank}&world_size={N}"))[0] for _ in range(3)]
        stores[rank].set(f"{rank}", "here")
        return [store.get(f"{(rank + 1) % N}") for store in stores]

    assert ThreadRanks(N).run(program) == [[b"here"] * 3] * N


def test_a_store_that_pytorch_alone_holds_is_still_there():
    def program(rank):
        store = dist.PrefixStore("a", dist.TCPStore("127.0.0.1", NEXT_PORT + 4, N, is_master=rank == 0))
        gc.collect()
        dist.barrier()
        store.set(f"{rank}", "here")
        return store.get(f"{(rank + 1) % N}")

    assert ThreadRanks(N).run(program) == [b"here"] * N
