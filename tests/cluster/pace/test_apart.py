"""Ranks in several processes by one clock, which is the desk's."""

import pytest
import torch
import torch.distributed as dist

from emu.errors import RunError
from tests.cluster.apart import run_apart
from tests.cluster.pace.test_threads import MS, now, pace, took
from tests.cluster.test_desk import train


def exchanges(rank: int) -> tuple[float, float]:
    x = torch.full((80 * MS,), float(rank))
    reduced = took(lambda: dist.all_reduce(x))
    assert x.tolist() == [6.0] * len(x)
    began = now()
    work = dist.all_to_all_single(torch.empty(80 * MS), x, async_op=True)
    while not work.is_completed():
        pass
    return reduced, now() - began


def waits_for_nobody(rank: int) -> None:
    dist.all_reduce(torch.ones(2), async_op=True)
    if rank == 0:
        dist.barrier()


@pytest.mark.parametrize(("n", "per_process"), [(4, 1), (4, 3)])
def test_no_answer_comes_before_its_virtual_arrival(n: int, per_process: int) -> None:
    of = pace()
    for reduced, exchanged in run_apart(n, per_process, exchanges, pace=of)[0]:
        assert reduced >= 6 * 0.020
        assert exchanged >= 3 * 0.020
    assert of.tempo.told().wall_messages == 2 * n


def test_results_and_trace_are_those_of_a_run_without_a_clock() -> None:
    (paced, trace), (free, same) = (run_apart(2, 1, train, pace=p) for p in (pace(computes=True), None))
    assert paced == free
    assert trace.digest() == same.digest()


def test_a_deadlock_is_named() -> None:
    with pytest.raises(RunError, match=r"deadlock: rank 0 waits in barrier .* for rank 1"):
        run_apart(2, 1, waits_for_nobody, pace=pace())
