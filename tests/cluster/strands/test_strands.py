"""Threads that ranks start: they belong to their rank, take turns, and are taken down beside it."""

import contextvars
import multiprocessing
import os
import queue
import re
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from emu.backend.rank.record import Recording
from emu.cluster.script_run import run_script
from emu.cluster.threads.threads import ThreadRanks
from emu.collective.choice import Choice
from emu.errors import RunError
from emu.trace.trace import Kind

N = 3


def reduced(group=None):
    tensor = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def test_a_thread_has_the_groups_of_its_rank():
    def program(rank):
        group, found = dist.new_group(), []
        thread = threading.Thread(target=lambda: found.append((dist.get_rank(), dist.get_world_size(), reduced(group))))
        thread.start()
        own = reduced()
        thread.join()
        return [*found, own]

    assert ThreadRanks(N).run(program) == [[(rank, N, 6.0), 6.0] for rank in range(N)]


def test_a_group_that_a_thread_makes_is_found_by_functional_collectives_of_the_other():
    def program(rank):
        made = []
        thread = threading.Thread(target=lambda: made.append(dist.new_group()))
        thread.start()
        thread.join()
        from torch.distributed._functional_collectives import all_reduce  # noqa: PLC0415 - it takes long to load

        return all_reduce(torch.ones(1), "sum", made[0]).wait().item()

    assert ThreadRanks(N).run(program) == [float(N)] * N


@pytest.mark.parametrize("ask", ["map", "submit", "callback"])
def test_a_pool_s_collectives_are_those_of_its_rank(ask):
    def program(rank):
        groups, found = [dist.new_group() for _ in range(4)], []
        with ThreadPoolExecutor(2) as pool:
            if ask == "map":
                return list(pool.map(reduced, groups))
            futures = [pool.submit(reduced, group) for group in groups]
            if ask == "callback":
                futures[-1].add_done_callback(lambda future: found.append(future.result()))
            return [future.result() for future in futures] + found

    expected = [6.0] * (5 if ask == "callback" else 4)
    assert ThreadRanks(N).run(program) == [expected] * N


def test_what_waits_hands_on_the_turn_and_the_order_is_the_same_every_time():
    def program(rank):
        told, items, begun, lock = [], queue.Queue(maxsize=1), threading.Event(), threading.Lock()

        def produce():
            begun.set()
            for number in range(4):
                with lock:
                    told.append(("put", number))
                items.put((number, reduced(group)))
            items.put(None)

        group = dist.new_group()
        thread = threading.Thread(target=produce)
        thread.start()
        begun.wait()
        while (item := items.get()) is not None:
            told.append(item)
            time.sleep(0.001)
        thread.join(timeout=10)
        assert not thread.is_alive()
        return told

    first, *others = [ThreadRanks(N).run(program) for _ in range(5)]
    assert all(other == first for other in others)
    assert [item for item in first[0] if item[0] != "put"] == [(number, 6.0) for number in range(4)]


def test_a_queue_of_a_manager_is_asked_again_and_again_while_a_pool_of_a_copy_of_multiprocessing_works(tmp_path):
    """Hugging Face's datasets do so, with a copy that is called `multiprocess`."""
    copied, text = tmp_path / "site-packages" / "multiprocess", "multiprocessing"
    shutil.copytree(Path(multiprocessing.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    for file in copied.glob("*.py"):
        file.write_text(re.sub(rf"\b{text}\.", "multiprocess.", file.read_text()))
    (tmp_path / "script.py").write_text(
        """
import os, queue, sys
sys.path.insert(0, "site-packages")
import torch.distributed as dist, multiprocess
dist.init_process_group()
if dist.get_rank() == 0:
    context = multiprocess.get_context("fork")
    with context.Pool(2) as pool, context.Manager() as manager:
        told, found = manager.Queue(), []
        asked = [pool.apply_async(told.put, (number,)) for number in range(4)]
        for _ in range(100):
            try:
                found.append(told.get(timeout=0.05))
            except queue.Empty:
                if all(each.ready() for each in asked):
                    break
        assert sorted(found) == [0, 1, 2, 3], found
dist.barrier()
"""
    )
    before = os.getcwd()  # noqa: PTH109
    os.chdir(tmp_path)
    try:
        assert run_script(tmp_path / "script.py", [], 2)[1] == 0
    finally:
        os.chdir(before)
        for name in [name for name in sys.modules if name.partition(".")[0] == "multiprocess"]:
            del sys.modules[name]


def test_a_thread_finds_the_environment_folder_and_random_state_of_its_rank(tmp_path):
    (tmp_path / "script.py").write_text(
        """
import os, threading, torch, torch.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
os.makedirs(str(rank), exist_ok=True); os.chdir(str(rank))
torch.manual_seed(rank)
expected = torch.rand(3, generator=torch.Generator().manual_seed(rank)).tolist()
def work():
    for number in range(3):
        dist.barrier()
        assert os.environ["RANK"] == str(rank) and os.path.basename(os.getcwd()) == str(rank)
        assert torch.rand(1).item() == expected[number]
        open(f"{number}", "w").close()
thread = threading.Thread(target=work)
thread.start()
"""
    )
    before = os.getcwd()  # noqa: PTH109
    os.chdir(tmp_path)
    try:
        assert run_script(tmp_path / "script.py", [], N)[1] == 0
    finally:
        os.chdir(before)
    # The thread is waited for at the end of its rank, as Python does.
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.glob("[0-9]/*")) == [
        f"{r}/{n}" for r in range(N) for n in range(3)
    ]


def test_a_daemon_thread_ends_with_its_rank_and_idle_workers_do_not_hold_it_up():
    ended = []

    def program(rank):
        def beat():
            try:
                while True:
                    threading.Event().wait(0.01)
            finally:
                ended.append(rank)

        threading.Thread(target=beat, daemon=True).start()
        pool = ThreadPoolExecutor(2)
        pool.submit(reduced)
        pool.submit(time.sleep, 0)
        return reduced(dist.new_group())

    before = threading.active_count()
    assert ThreadRanks(N).run(program) == [6.0] * N
    deadline = time.monotonic() + 20
    while len(ended) < N or threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_error_in_a_thread_is_shown_and_ends_the_thread_alone(monkeypatch):
    shown = []
    monkeypatch.setattr(threading, "excepthook", lambda told: shown.append(str(told.exc_value)))

    def program(rank):
        def fail():
            raise ValueError("in a thread")

        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        return reduced()

    assert ThreadRanks(N).run(program) == [6.0] * N
    assert shown == ["in a thread"] * N


def test_a_call_that_does_not_agree_in_a_thread_ends_the_run():
    def program(rank):
        thread = threading.Thread(target=lambda: dist.all_reduce(torch.ones(1 + rank)))
        thread.start()
        thread.join()

    with pytest.raises(RunError, match="mismatch on group world"):
        ThreadRanks(2).run(program)


def test_context_variables_and_what_a_thread_keeps_for_itself_are_its_own():
    here, variable = threading.local(), contextvars.ContextVar("variable", default=0)

    def program(rank):
        here.value, found = rank, []
        variable.set(rank + 10)

        def look():
            found.append((hasattr(here, "value"), variable.get()))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return found[0], here.value

    assert ThreadRanks(N).run(program) == [((False, 0), rank) for rank in range(N)]


def waits_of(events, number):
    """The events that one waits for, and those that come before it on its stream."""
    start, end = events.wait_start[number : number + 2]
    return events.wait[start:end].tolist()


def events_of(program, ranks=2):
    recording = Recording(ranks)
    ThreadRanks(ranks, Choice(), recording).run(program)
    return recording.trace()


class TestTrace:
    """A thread's events, on a stream of their own, after what came before its start and before what comes after its end."""

    @staticmethod
    def products_and_reductions(join):
        def program(rank):
            group, a, b = dist.new_group(), torch.ones(8, 8), torch.ones(4)
            a @ a

            def work():
                a @ a
                dist.all_reduce(b, group=group)

            if join == "join":
                thread = threading.Thread(target=work)
                thread.start()
                a + a
                thread.join()
            else:
                with ThreadPoolExecutor(1) as pool:
                    future = pool.submit(work)
                    a + a
                    future.result()
            a * a

        return program

    @pytest.mark.parametrize("join", ["join", "result"])
    def test_it_forks_at_its_start_and_joins_at_its_end(self, join):
        trace = events_of(self.products_and_reductions(join))
        events = trace.events_of(0)
        number = {(name, stream): i for i, (name, stream) in enumerate(zip(events.name, events.stream.tolist(), strict=True))}
        before, inside = number["aten.mm", 0], next(i for (name, stream), i in number.items() if name == "aten.mm" and stream)
        reduction = next(i for i in range(len(events)) if events.kind[i] == Kind.COLLECTIVE)
        after, beside = number["aten.mul", 0], number["aten.add", 0]
        assert before in waits_of(events, inside)
        assert reduction in waits_of(events, after)
        assert reduction not in waits_of(events, beside)
        assert inside in waits_of(events, reduction)

    def test_the_same_program_gives_the_same_trace(self):
        digests = {events_of(self.products_and_reductions("result"), 3).digest() for _ in range(20)}
        assert len(digests) == 1
