"""Ranks as threads by this host's clock: nothing comes before its time; how late it may be is not asserted on a busy host."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn

from emu.cluster.pace.rank_clock import PacedClock
from emu.cluster.pace.timeliness import Pace, Tempo, TimelinessRecord
from emu.cluster.pace.traffic import Traffic
from emu.cluster.threads.threads import LocalCluster
from emu.topology.catalogue import build_topology
from tests.cluster.pace.paced_runs import CHOICE, DEVICE, MS, SWITCH, US, now, pace, run, time_sleep, took


def test_no_answer_comes_before_its_virtual_arrival() -> None:
    of = pace()

    def program(rank: int) -> tuple[float, float]:
        x, began = torch.full((80 * MS,), float(rank)), now()
        reduced = took(lambda: dist.all_reduce(x))
        dist.all_to_all_single(torch.empty(80 * MS), x)
        assert x.tolist() == [6.0] * len(x)
        return reduced, now() - began

    reduced, both = zip(*run(program, 4, of=of), strict=True)
    assert max(reduced) >= 6 * 0.020 + 6e-3  # who asks last finds what others have sent before
    assert max(both) >= 6 * 0.020 + 6e-3 + 3 * 0.020
    told = of.figures()
    assert (told.pace, told.computes, told.wall_messages) == (1000, False, 8)
    assert 0 <= told.wall_in_time <= 8


def test_what_an_answer_is_late_with_the_next_one_is_not_late_with_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that takes 40 ms to let a rank go on: of five messages of 100 ms the last is late by once as much."""
    monkeypatch.setattr(TimelinessRecord, "message", lambda *_: time_sleep(0.04))

    def program(rank: int) -> float:
        x, began = torch.ones(100 * MS), now()
        for _ in range(5):
            dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        return now() - began

    assert 5 * 0.100 <= max(run(program)) < 5 * (0.100 + 0.040)


def test_an_answer_that_is_put_off_when_its_rank_has_been_woken_for_it_comes_when_it_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_off = set[object]()
    look = PacedClock._look_at_the_clock

    def puts_off(self: PacedClock, key: object) -> None:
        if key not in put_off:
            put_off.add(key)
            self.expected(key, now() + 0.02)
        look(self, key)

    monkeypatch.setattr(PacedClock, "_look_at_the_clock", puts_off)
    x = torch.ones(20 * MS)
    assert min(run(lambda rank: took(lambda: dist.send(x, 1) if rank == 0 else dist.recv(x, 0)))) >= 0.020
    assert len(put_off) == 2


def test_an_answer_that_was_expected_does_not_come_while_what_it_waits_for_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def program(rank: int) -> float:
        x = torch.ones(120 * MS)
        return took(lambda: dist.send(x, 1) if rank == 0 else dist.recv(x, 0))

    run(program)  # all is loaded from then on
    told = [[(0, 0, 80 * US), (0, 1, 80 * US)]]  # and from the next event on nothing
    monkeypatch.setattr(Traffic, "expected", lambda _: told.pop() if told else [])
    assert min(run(program, of=pace("link 2-4 slow 0.5 at 50us"))) >= 0.119  # of a link that nobody uses


def test_a_rank_that_sleeps_goes_by_the_host_s_clock_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimelinessRecord, "message", lambda *_: time_sleep(0.02))

    def program(rank: int) -> float:
        x = torch.ones(40 * MS)

        def talk() -> None:
            dist.send(x, 1) if rank == 0 else dist.recv(x, 0)

        talk()
        return took(lambda: (time.sleep(0), talk()))  # the message begins as the sleep ends, a busy host goes on later

    assert min(run(program)) >= 0.040


def test_what_a_rank_computes_after_a_sleep_takes_its_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the rank was late with a message before, a device is given nothing in the past by one that sleeps."""
    monkeypatch.setattr(TimelinessRecord, "message", lambda *_: time_sleep(0.02))

    def program(rank: int) -> float:
        dist.barrier()
        a = torch.ones(50, 100)
        return took(lambda: (time.sleep(0), [a @ a.T for _ in range(80)]))  # of 5e5 FLOPs each, at 1e9 FLOP/s

    assert min(run(program, of=pace(computes=True))) >= 80 * 0.5e-3 - 1e-3


def test_a_request_that_the_last_to_ask_knows_all_of_is_answered() -> None:
    def program(rank: int) -> float:
        x = torch.ones(20 * MS)
        if rank == 0:
            time.sleep(0.01)
        return took(lambda: dist.gather(x, [torch.empty_like(x) for _ in range(2)] if rank == 0 else None, 0))

    assert run(program)[0] >= 0.020


def test_a_message_takes_the_bytes_of_the_dtype_that_it_ran_in_where_no_other_is_given() -> None:
    def program(rank: int) -> float:
        x = torch.ones(20 * MS)
        return took(lambda: dist.send(x, 1) if rank == 0 else dist.recv(x, 0))

    assert run(program, of=Pace(Tempo(1000, DEVICE, computes=False), SWITCH))[1] >= 0.040


def test_latency_is_held_to_its_end() -> None:
    far = Pace(Tempo(1000, DEVICE, "bfloat16", computes=False), build_topology("switch:n=2,bandwidth=50GB/s,latency=20us"))

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
        began = now()
        dist.barrier()
        x = torch.ones(20 * MS)
        if rank < 2:
            dist.send(x, 2, group=groups[rank])
        elif rank == 2:
            for work in [dist.irecv(x.clone(), source, group=groups[source]) for source in (0, 1)]:
                work.wait()
        return began, now()

    began, ended = zip(*run(program, 3), strict=True)
    assert max(ended) - min(began) >= 2 * alone_s


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
    assert of.figures().computes


def test_ddp_goes_on_with_its_backward_while_a_bucket_is_under_way() -> None:
    def program(rank: int) -> tuple[float, float]:
        first, last = nn.Linear(8, 1000, bias=False), nn.Linear(1000, 300, bias=False)
        model = nn.parallel.DistributedDataParallel(nn.Sequential(first, last), bucket_cap_mb=1)
        model(torch.ones(1, 8)).sum().backward()  # after which DDP orders its buckets anew
        time.sleep(0)  # what was late in it is over
        at, began = list[float](), now()
        last.weight.register_post_accumulate_grad_hook(lambda _: at.append(now()))
        first.weight.register_post_accumulate_grad_hook(lambda _: at.append(now()))
        model(torch.ones(1, 8)).sum().backward()
        return at[1] - at[0], now() - began

    for meanwhile, whole in run(program, of=pace(computes=True, factor=500_000 * 1e-3)):
        assert whole >= 0.300  # 300,000 elements of float32, timed as bfloat16
        assert meanwhile < 0.200


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

    (paced, trace), (free, same) = (LocalCluster(p).run_traced(2, CHOICE, program) for p in (pace(computes=True), None))
    assert paced == free
    assert trace.digest() == same.digest()
