"""Ranks in several processes by one clock, which is the coordinator's."""

import pytest
import torch
import torch.distributed as dist

from emu.errors import RunError
from tests.cluster.apart import run_apart
from tests.cluster.pace.paced_runs import MS, computes, now, pace, steps, took
from tests.cluster.processes.test_coordinator import train


def exchanges(rank: int) -> tuple[float, float]:
    x, began = torch.full((80 * MS,), float(rank)), now()
    reduced = took(lambda: dist.all_reduce(x))
    assert x.tolist() == [6.0] * len(x)
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
    for reduced, both in run_apart(n, per_process, exchanges, pace=of)[0]:
        assert reduced >= 6 * 0.020
        assert both >= 6 * 0.020 + 3 * 0.020
    assert of.figures().wall_messages == 2 * n


def test_results_and_trace_are_those_of_a_run_without_a_clock() -> None:
    (paced, trace), (free, same) = (run_apart(2, 1, train, pace=p) for p in (pace(computes=True), None))
    assert paced == free
    assert trace.digest() == same.digest()


def test_a_link_that_is_slow_in_a_step_shows_there() -> None:
    of = pace("link 1-4 slow 0.25 from step 2 to 2")
    assert run_apart(2, 1, steps, pace=of)[0][1][1] >= 0.020 + 0.080
    slow, back = of.figures().wall_met
    assert slow.startswith("link 1-4 has 0.25 of its speed at ")
    assert back.startswith("link 1-4 is as before at ")


def test_a_slow_npu_computes_slowly() -> None:
    _, taken = run_apart(2, 1, computes, pace=pace("npu 1 slow 0.25 at 1fs", computes=True))[0]
    assert taken >= 4 * 40 * 0.5e-3 - 2e-3


def test_what_the_system_cannot_mend_stops_the_job_with_the_cause() -> None:
    with pytest.raises(RunError, match=r"switch 4 failed, and the job cannot go on: .* cut off, as no links join"):
        run_apart(2, 1, steps, pace=pace("switch 4 at 10us"))


def test_a_deadlock_is_named() -> None:
    with pytest.raises(RunError, match=r"deadlock: rank 0 waits in barrier .* for rank 1"):
        run_apart(2, 1, waits_for_nobody, pace=pace())
