"""Ranks keep to one processor of the host as long as they have it for themselves."""

import multiprocessing
import os
import subprocess
import sys
from itertools import accumulate, chain, count, repeat
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from emu.cluster.threads import processor
from emu.cluster.threads.threads import ThreadRanks

ALL = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="threads cannot choose between processors here")


def clocks(*shares):
    """A second passes between two looks, of which the process has had its share; the last share from then on."""
    moments, spent_s = count(0.0), accumulate(chain(shares, repeat(shares[-1])))
    return SimpleNamespace(perf_counter=lambda: next(moments), process_time=lambda: next(spent_s))


def where(rank, rounds=8):
    found = []
    for _ in range(rounds):
        dist.barrier()
        found.append(frozenset(os.sched_getaffinity(0)))
    return found


def test_ranks_share_a_processor_that_they_have_for_themselves(monkeypatch):
    monkeypatch.setattr(processor, "time", clocks(1.0))
    last = {places[-1] for places in ThreadRanks(3).run(where)}
    assert len(last) == 1
    assert len(*last) == 1
    assert os.sched_getaffinity(0) == ALL


def test_ranks_that_had_to_wait_for_their_processor_may_go_to_any(monkeypatch):
    monkeypatch.setattr(processor, "time", clocks(*[1.0] * 6, 0.5))
    of_first = ThreadRanks(3).run(where)[0]
    assert len(of_first[0]) == 1
    assert of_first[-1] == ALL


def test_what_a_rank_forks_may_run_beside_the_ranks(monkeypatch):
    monkeypatch.setattr(processor, "time", clocks(1.0))

    def program(rank):
        here = where(rank)[-1]
        reads, writes = os.pipe()
        if not (child := os.fork()):
            os.write(writes, bytes(sorted(os.sched_getaffinity(0))))
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writes)
        with os.fdopen(reads, "rb") as found:
            return here, set(found.read())

    for here, childs in ThreadRanks(2).run(program):
        assert len(here) == 1
        assert childs == ALL


def processors_of_spawned():
    """In a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(os.sched_getaffinity, (0,))


def processors_of_command():
    done = subprocess.run([sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"], capture_output=True, check=True)
    return {int(word) for word in done.stdout.split()}


@pytest.mark.parametrize("start", [processors_of_spawned, processors_of_command])
def test_what_a_rank_starts_anew_may_run_beside_the_ranks_which_stay(monkeypatch, start):
    monkeypatch.setattr(processor, "time", clocks(1.0))
    for before, found, after in ThreadRanks(2).run(lambda rank: (where(rank)[-1], start(), set(os.sched_getaffinity(0)))):
        assert len(before) == 1
        assert found == ALL
        assert after == before
