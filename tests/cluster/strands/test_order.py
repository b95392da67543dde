"""Threads that ranks start go on in the same order in every run, whatever the speed of the host."""

import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace

import psutil
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from emu.cluster import child_processes
from emu.cluster.threads.threads import ThreadRanks
from tests.cluster.strands.test_strands import N, reduced


def test_two_threads_of_each_rank_that_share_a_group_ask_in_one_order_on_all_ranks():
    def program(rank):
        got = []

        def saves():  # as a checkpoint beside the training does
            for number in range(3):
                parts = [torch.zeros(1, dtype=torch.int64) for _ in range(N)]
                dist.all_gather(parts, torch.tensor([10 * number + rank]))
                got.append(torch.cat(parts).tolist())

        for step in range(4):
            thread = threading.Thread(target=saves)
            thread.start()
            for _ in range(3):
                total = torch.full((step + 1,), float(rank))
                dist.all_reduce(total)
                assert total.tolist() == [3.0] * (step + 1)
            thread.join()
        return got

    assert ThreadRanks(N).run(program) == [[[10 * n, 10 * n + 1, 10 * n + 2] for n in range(3)] * 4] * N


def test_a_thread_that_sleeps_goes_on_after_the_same_turn_however_long_turns_take_here():
    def program(rank):
        told, group = [], dist.new_group()
        thread = threading.Thread(target=lambda: (time.sleep(0.02), told.append("awake")))
        thread.start()
        for number in range(250):
            until_s = time.perf_counter() + random.SystemRandom().random() * 2e-3
            while time.perf_counter() < until_s:
                pass
            told.append(reduced(group) + number)
        thread.join()
        return told

    first, *others = [ThreadRanks(N).run(program) for _ in range(2)]
    assert all(0 < told.index("awake") < 250 for told in first)
    assert all(other == first for other in others)


def test_a_thread_does_not_go_on_before_its_time_has_come_by_the_hosts_clock():
    def program(rank):
        slept_s = []

        def sleep():
            began_s = time.perf_counter()
            time.sleep(0.05)
            slept_s.append(time.perf_counter() - began_s)

        thread, group = threading.Thread(target=sleep), dist.new_group()
        thread.start()
        for _ in range(1000):
            reduced(group)
        thread.join()
        return slept_s[0]

    assert min(ThreadRanks(N).run(program)) >= 0.05


class Slow(Dataset):
    """Items that take a process as long as it happens."""

    def __len__(self):
        return 4

    def __getitem__(self, number):
        until_s = time.perf_counter() + random.SystemRandom().random() * 0.05
        while time.perf_counter() < until_s:
            pass
        return number


def test_what_processes_bring_comes_after_the_same_turn_however_fast_they_are():
    def program(rank):
        told, over = [], threading.Event()

        def count():
            while not over.wait(0.001):
                told.append("turn")

        thread = threading.Thread(target=count)
        loader = DataLoader(Slow(), batch_size=None, num_workers=1, timeout=10)
        thread.start()
        for item in loader:
            told.append(f"item {item}")
            reduced()
        over.set()
        thread.join()
        return told

    first, *others = [ThreadRanks(N).run(program) for _ in range(2)]
    assert [item for item in first[0] if item != "turn"] == [f"item {number}" for number in range(4)]
    assert all(other == first for other in others)


def test_sets_of_threads_and_futures_have_the_order_in_which_these_were_made():
    def program(rank):
        junk, threads, futures = [], set(), set()
        with ThreadPoolExecutor(4) as pool:
            for number in range(12):
                junk.append(bytearray(random.SystemRandom().randrange(2000)))  # so that addresses differ from run to run
                threads.add(threading.Thread(target=int, name=str(number)))
                futures.add(pool.submit(int, number))
            return [thread.name for thread in threads], [future.result() for future in futures]

    assert ThreadRanks(N).run(program) == [([str(number) for number in range(12)], list(range(12)))] * N


WORKS = (
    "import threading, time\nthreading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()\ntime.sleep(60)"
)


@pytest.mark.parametrize(("code", "works"), [(WORKS, True), ("import time\ntime.sleep(60)", False)])
def test_a_process_is_at_work_whichever_of_its_threads_runs(code, works):
    with subprocess.Popen([sys.executable, "-c", code]) as started:
        process, until_s = psutil.Process(started.pid), time.monotonic() + 30
        try:
            while (process.status(), child_processes.is_at_work(process)) != (psutil.STATUS_SLEEPING, works):
                assert time.monotonic() < until_s, (process.status(), child_processes.is_at_work(process))
                time.sleep(0.01)
        finally:
            started.kill()


def test_a_process_that_is_kept_from_looking_at_others_does_not_take_them_for_idle(monkeypatch):
    looked_s = count(0.0, 10.0)  # the machine is so busy that it looks once in ten seconds
    monkeypatch.setattr(child_processes, "time", SimpleNamespace(monotonic=lambda: next(looked_s)))
    idle = child_processes.Idle()
    assert max(idle.time_s() for _ in range(5)) <= 5 * child_processes.Idle.LONGEST_S
