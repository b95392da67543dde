"""A thread that is blocked in native code lets others run, and has its turn again before it does anything else in Python."""

import ctypes
import logging
import os
import random
import socket
import threading
import time
from contextlib import contextmanager
from functools import reduce

import numpy as np
import pytest
import torch
import torch.distributed as dist

from emu.cluster.rank_state.script_state import Environment
from emu.cluster.strands.next_instruction import at_next_instruction, thread_state
from emu.cluster.threads.threads import ThreadRanks

BLOCKED_S, SPUN_S = 1.6, 2.5  # a thread that is blocked for a second lets others run


@contextmanager
def closed(pair):
    """Two ends that are closed at the end."""
    with pair[0], pair[1]:
        yield pair


def sleeps():
    ctypes.CDLL(None).usleep(int(BLOCKED_S * 1e6))


def fails():
    with closed(socket.socketpair()) as (near, _):
        near.settimeout(BLOCKED_S)
        with pytest.raises(TimeoutError):
            near.recv(1)


def drawn():
    """Return a number of each random generator and the variable RANK; each rank has these for itself."""
    return torch.rand(1).item(), np.random.rand(), random.random(), os.environ["RANK"]  # noqa: NPY002


def spin(for_s):
    until_s = time.perf_counter() + for_s
    while time.perf_counter() < until_s:
        pass


def seeded(rank):
    torch.manual_seed(rank)
    np.random.seed(rank)  # noqa: NPY002
    random.seed(rank)


def expected(rank):
    """Return the first two results of `drawn` on a rank."""
    seeded(rank)
    return [(*drawn()[:3], str(rank)) for _ in range(2)]


@pytest.mark.parametrize("block", [sleeps, fails])
def test_a_thread_that_returns_from_native_code_draws_its_own_rank_s_numbers(block, monkeypatch):
    monkeypatch.setenv("RANK", "none")

    def program(rank):
        def work():
            block()
            told.append(drawn())

        seeded(rank)
        told, thread = [], threading.Thread(target=work)
        if rank == 0:
            thread.start()
        dist.barrier()
        if rank == 1:
            spin(SPUN_S)  # with the baton, as the thread of rank 0 has stepped aside
        dist.barrier()
        if rank == 0:
            thread.join()
        return [*told, *(drawn() for _ in range(1 + rank))]

    found = ThreadRanks(2, own=[Environment()]).run(program)
    assert found == [expected(0), expected(1)]


def test_a_rank_waits_for_a_lock_of_the_system_that_a_thread_has_which_is_back_from_native_code():
    """Such as a handler of `logging`, made before the ranks."""
    lock = logging.Handler().lock

    def program(rank):
        def work():
            with lock:
                sleeps()

        thread = threading.Thread(target=work)
        if rank == 0:
            thread.start()
        dist.barrier()
        if rank == 1:
            time.sleep(0.01)  # until the thread has it
            with lock:
                return "had it"
        thread.join()
        return "ended"

    found = ThreadRanks(2, patience_s=20.0).run(program)
    assert found == ["ended", "had it"]


class Blocked:
    """A thread that reads a pipe, and is caught as it goes on."""

    def __init__(self, body):
        self.told, self._states = [], []
        self.near, self.far = os.pipe()
        self.thread = threading.Thread(target=self._run, args=(body,))
        self.thread.start()
        while not self._states:
            time.sleep(0.01)
        time.sleep(0.1)  # until it is blocked
        self.was_caught = at_next_instruction(self.thread, self._states[0], lambda: self.told.append("caught"))

    def _run(self, body):
        self._states.append(thread_state())
        body(self)

    def ended(self):
        os.write(self.far, b"x")
        self.thread.join()
        os.close(self.near)
        os.close(self.far)
        return self.told


class TestResumption:
    def test_it_is_caught_before_the_next_instruction_of_the_same_line_and_once(self):
        def body(blocked):
            os.read(blocked.near, 1), blocked.told.append("after")
            blocked.told.append("next line")

        blocked = Blocked(body)
        assert blocked.was_caught
        assert blocked.told == []
        assert blocked.ended() == ["caught", "after", "next line"]

    def test_it_is_caught_where_native_code_raises(self):
        def body(blocked):
            with closed(socket.socketpair()) as (near, _):
                near.settimeout(0.3)
                try:
                    near.recv(1)
                except TimeoutError:
                    blocked.told.append("raised")

        assert Blocked(body).ended() == ["caught", "raised"]

    def test_it_is_caught_where_native_code_calls_python(self):
        def body(blocked):
            reduce(lambda *_: blocked.told.append("called"), map(os.read, [blocked.near], [1]), None)

        assert Blocked(body).ended() == ["caught", "called"]

    def test_a_trace_function_of_all_threads_is_there_again(self):
        def body(blocked):
            os.read(blocked.near, 1)
            blocked.told.append(threading.gettrace())

        assert Blocked(body).ended() == ["caught", None]

    def test_a_thread_that_has_ended_has_nothing_left_to_do(self):
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
        assert not at_next_instruction(thread, 0, int)
