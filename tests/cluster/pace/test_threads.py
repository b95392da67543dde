"""Ranks as threads by this host's clock: nothing comes before its time; how late it may be is not asserted on a busy host."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from emu.cluster import threads
from emu.cluster.local import LocalCluster
from emu.cluster.pace.pace import Pace, Tempo
from emu.collective.algorithm import Choice
from emu.errors import InputError, RunError
from emu.fabric.run import CapacityEvent
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device

DEVICE = Device("a-device", {"float32": 1e12, "bfloat16": 1e12}, hbm_Bps=1e12, gemm_share=1.0, unhidden_share=0.0)
SWITCH = build_topology("switch:n=4,bandwidth=1GB/s,latency=500ns")
MS = 500  # float32 elements, timed as bfloat16, that take a millisecond at a pace of 1000
CHOICE = Choice.parse(("all_reduce=ring", "all_to_all=at-once", "broadcast=binomial"))
now = time.monotonic


def pace(*, computes: bool = False, **more: Any) -> Pace:
    return Pace(Tempo(1000, DEVICE, computes=computes), SWITCH, **more)


def run(program: Callable[[int], Any], n: int = 2, *, of: Pace | None = None) -> list[Any]:
    return LocalCluster(of or pace()).run(n, CHOICE, program)


def took(do: Callable[[], object]) -> float:
    began = now()
    do()
    return now() - began


def test_no_answer_comes_before_its_virtual_arrival() -> None:
    of = pace()

    def program(rank: int) -> list[float]:
        x = torch.full((80 * MS,), float(rank))
        times = [took(lambda: dist.all_reduce(x)), took(lambda: dist.all_to_all_single(torch.empty(80 * MS), x))]
        assert x.tolist() == [6.0] * len(x)
        return times

    reduced, exchanged = zip(*run(program, 4, of=of), strict=True)
    assert max(reduced) >= 6 * 0.020 + 6e-3  # who asks last finds what others have sent before
    assert max(exchanged) >= 3 * 0.020
    told = of.tempo.told()
    assert (told.pace, told.computes, told.wall_messages) == (1000, False, 8)
    assert 0 <= told.wall_in_time <= 8


def test_latency_is_held_to_its_end() -> None:
    far = Pace(Tempo(1000, DEVICE, computes=False), build_topology("switch:n=2,bandwidth=50GB/s,latency=20us"))

    def program(rank: int) -> float:
        x = torch.ones(2)
        return took(lambda: dist.send(x, 1) if rank == 0 else dist.recv(x, 0))

    assert run(program, of=far)[1] >= 0.040


def test_a_rank_that_does_not_wait_computes_meanwhile() -> None:
    def program(rank: int) -> tuple[float, list[float], bool]:
        began = now()
        work = dist.all_reduce(torch.ones(30 * MS), async_op=True)
        asked = [now() - began]
        while not work.is_completed():
            asked.append(now() - began)
        return now() - began, asked, work.wait()

    for all_s, asked, waited in run(program):
        assert all_s >= 0.030
        assert waited
        assert asked[0] < all_s


def test_requests_of_two_groups_share_a_link() -> None:
    alone_s = 0.020

    def program(rank: int) -> tuple[float, float]:
        groups = [dist.new_group([0, 2]), dist.new_group([1, 2])]
        dist.barrier()
        began = now()
        x = torch.ones(20 * MS)
        if rank < 2:
            dist.send(x, 2, group=groups[rank])
        elif rank == 2:
            for work in [dist.irecv(x.clone(), source, group=groups[source]) for source in (0, 1)]:
                work.wait()
        return began, now()

    began, ended = zip(*run(program, 3), strict=True)
    assert max(ended) - min(began) >= 2 * alone_s


def test_a_link_that_is_halved_in_the_middle_shows_in_the_program_s_own_clock() -> None:
    into_1 = int(np.flatnonzero(SWITCH.links.dst == 1)[0])

    def program(rank: int) -> float:
        x = torch.ones(30 * MS)
        return took(lambda: dist.send(x, 1) if rank == 0 else dist.recv(x, 0))

    assert max(run(program, of=pace(changes=(CapacityEvent(into_1, 10**10, 0.5e9),)))) >= 0.030 + 0.020 - 0.010


def test_a_wait_that_takes_longer_than_its_timeout_raises_what_pytorch_does() -> None:
    def program(rank: int) -> tuple[float, str]:
        work = dist.all_reduce(torch.ones(100 * MS), async_op=True)
        began = now()
        with pytest.raises(dist.DistBackendError) as error:
            work.wait(timedelta(milliseconds=20))
        early = now() - began
        work.wait()
        return early, str(error.value)

    for early, said in run(program):
        assert early >= 0.020
        assert "has waited for 0:00:00.020000 for a request that is not done" in said


def test_computation_takes_the_device_s_time() -> None:
    def program(rank: int) -> tuple[float, float]:
        a = torch.ones(50, 100)
        product = took(lambda: [a @ a.T for _ in range(60)])  # of 5e5 FLOPs each, at 1e9 FLOP/s
        request = took(lambda: dist.all_reduce(torch.ones(2)))
        return product, request

    of = pace(computes=True)
    for product, _ in run(program, of=of):
        assert product >= 60 * 0.5e-3 - 1e-3  # the last of them is waited for with what follows
    assert of.tempo.told().computes


def test_a_rank_that_sleeps_lets_the_others_run_and_is_waited_for() -> None:
    order: list[str] = []

    def program(rank: int) -> tuple[float, float]:
        began = now()
        if rank == 0:
            time.sleep(0.05)
        order.append(f"rank {rank}")
        dist.barrier()
        return began, now()

    (began, _), (_, ended) = run(program)
    assert order == ["rank 1", "rank 0"]
    assert ended >= began + 0.05


def test_losses_and_weights_are_those_of_a_run_without_a_clock() -> None:
    def program(rank: int) -> list[float]:
        torch.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(nn.Linear(16, 16))
        optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
        for _ in range(3):
            loss = model(torch.full((4, 16), float(rank + 1))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    (paced, trace), (free, same) = (LocalCluster(p).record(2, CHOICE, program) for p in (pace(computes=True), None))
    assert paced == free
    assert trace.digest() == same.digest()


class TestEnds:
    """What ends otherwise than well."""

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

    def test_after_it_time_sleep_is_python_s_own(self) -> None:
        before = time.sleep
        run(lambda _: time.sleep(0))
        assert time.sleep is before

    @pytest.mark.parametrize("factor", [0, -1.0, float("inf"), float("nan")])
    def test_a_pace_that_is_none_is_refused(self, factor: float) -> None:
        with pytest.raises(InputError, match="pace: --pace must be above 0, and finite, got "):
            Tempo(factor, DEVICE)
