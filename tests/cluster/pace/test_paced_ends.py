"""Paced runs that end otherwise than well: deadlocks, ranks that fail, and paces that are none."""

import time

import pytest
import torch
import torch.distributed as dist

from emu.cluster.pace.timeliness import Tempo
from emu.cluster.threads import threads
from emu.errors import InputError, RunError
from tests.cluster.pace.paced_runs import DEVICE, MS, now, run


class TestEnds:
    """Paced runs that end with an error."""

    def test_a_deadlock_is_named_though_messages_are_under_way(self) -> None:
        def program(rank: int) -> None:
            dist.all_reduce(torch.ones(20 * MS), async_op=True)
            if rank == 0:
                dist.barrier()

        with pytest.raises(RunError, match=r"deadlock: rank 0 waits in barrier .* for rank 1"):
            run(program)

    def test_a_rank_that_asks_for_ever_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads, "_MOST_TIMED_POLLS", 20)

        def program(rank: int) -> None:
            if rank == 0:
                work = dist.barrier(async_op=True)
                while not work.is_completed():
                    pass

        with pytest.raises(RunError, match="deadlock: rank 0 asks for ever whether a request is done"):
            run(program)

    def test_a_rank_that_fails_ends_the_others_where_they_wait(self) -> None:
        def program(rank: int) -> None:
            work = dist.all_reduce(torch.ones(5000 * MS), async_op=True)
            if rank == 1:
                raise ValueError("of its own")
            work.wait()

        began = now()
        with pytest.raises(RunError, match="rank 1: ValueError: of its own"):
            run(program)
        assert now() - began < 5

    def test_a_rank_that_sleeps_again_and_again_ends_with_the_others(self) -> None:
        def program(rank: int) -> None:
            time.sleep(0.01)
            if rank == 1:
                raise ValueError("of its own")
            while True:
                time.sleep(0.001)

        with pytest.raises(RunError, match="rank 1: ValueError: of its own"):
            run(program)

    def test_after_it_time_sleep_is_python_s_own(self) -> None:
        before = time.sleep
        run(lambda _: time.sleep(0))
        assert time.sleep is before

    @pytest.mark.parametrize("factor", [0, -1.0, float("inf"), float("nan")])
    def test_a_pace_that_is_none_is_refused(self, factor: float) -> None:
        with pytest.raises(InputError, match="pace: --pace must be above 0, and finite, got "):
            Tempo(factor, DEVICE)
