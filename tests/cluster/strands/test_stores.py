"""PyTorch's stores on ranks of one process: who waits for a key lets the others run."""

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from emu.cluster.threads.threads import ThreadRanks
from emu.errors import RunError

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
