"""The devices of paced ranks by a clock that stands: what each rank waits for, and what it is late with."""

import numpy as np
import pytest

from emu.backend.rank.operator_counter import Operator
from emu.cluster.pace.device_queues import DeviceQueues
from emu.cluster.pace.timeliness import Tempo
from emu.trace.device.device import Device
from tests.cluster.pace.stopped_clock import StoppedClock

# A TFLOP/s in bfloat16, which float32 is timed as, and half of it in float32: at a pace of 1000, 1e6 FLOPs take a millisecond.
DEVICE = Device("a-device", {"float32": 5e11, "bfloat16": 1e12}, hbm_Bps=1e15, gemm_share=1.0, unhidden_share=0.0)
MS = 10**6


def product(flops: int) -> Operator:
    return Operator("aten.mm", "float32", flops, 4, 1)


class Ranks:
    """Two ranks on their devices, and the rests that they took: the rank, and until when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, late_s: float = 0.0, *, computes: bool = True) -> None:
        self.clock, self.rests, self.late_s = StoppedClock(monkeypatch), list[tuple[int, float]](), late_s
        self.tempo = Tempo(1000.0, DEVICE, "bfloat16", computes=computes)
        self.of = DeviceQueues(self.tempo, 2, self.rest)

    def rest(self, rank: int, until_s: float) -> None:
        self.rests.append((rank, pytest.approx(until_s)))
        self.clock.until(until_s + self.late_s)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch)


def test_short_operators_are_awaited_together_once_their_device_is_a_millisecond_behind(ranks: Ranks) -> None:
    ranks.of.computed(0, product(MS // 2))
    ranks.of.computed(1, product(3 * MS // 4))
    ranks.clock.until(100.0002)
    ranks.of.computed(0, product(MS // 2))  # to 100.001 s, which is 0.8 ms from now
    assert ranks.rests == []
    ranks.of.computed(0, product(MS // 2))
    assert ranks.rests == [(0, 100.0015)]
    assert ranks.of.settle(1, ranks.clock.now_s) == pytest.approx(100.0015)  # its device is done since 100.00075
    assert ranks.tempo.kept.late.compute_s == pytest.approx(0.00075)


def test_a_rank_goes_on_when_its_device_is_done_and_its_next_work_begins_anew(ranks: Ranks) -> None:
    ranks.of.computed(1, product(MS // 4))
    assert ranks.of.settle(1, 100.0) == pytest.approx(100.00025)
    assert ranks.rests == [(1, 100.00025)]
    assert ranks.of.settle(1, 100.5) == 100.5  # it was given nothing
    ranks.clock.until(101)
    ranks.of.computed(1, product(MS // 2))
    assert ranks.of.settle(1, 101.0) == pytest.approx(101.0005)
    assert ranks.tempo.kept.late.compute_s == 0


def test_what_the_host_is_late_with_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rest ends 20 ms too late."""
    ranks = Ranks(monkeypatch, late_s=0.02)
    ranks.of.computed(0, product(5 * MS))
    assert ranks.rests == [(0, 100.005)]
    assert ranks.of.settle(0, 100.025) == pytest.approx(100.025)  # as nothing was said to be late yet
    ranks.of.set_late(0, 100.005)
    assert ranks.of.settle(0, 100.026) == pytest.approx(100.006)
    ranks.of.computed(0, product(2 * MS))  # since 100.005
    assert ranks.rests[1:] == []  # it is past already
    assert ranks.of.settle(0, 100.025) == pytest.approx(100.007)
    assert ranks.rests[1:] == [(0, 100.007)]
    ranks.of.set_late(0, 200.0)  # nobody is early
    assert ranks.of.settle(0, 100.03) == 100.03


def test_a_slow_device_takes_longer_and_one_rank_s_is_not_the_other_s(ranks: Ranks) -> None:
    ranks.of.speed = np.array([0.25, 1.0])
    ranks.of.computed(0, product(MS // 8))
    ranks.of.computed(1, product(MS // 8))
    assert ranks.of.settle(1, 100.0) == pytest.approx(100.000125)
    assert ranks.of.settle(0, 100.0) == pytest.approx(100.0005)


def test_a_device_that_goes_on_has_no_work_from_before(ranks: Ranks) -> None:
    ranks.of.computed(0, product(3 * MS // 4))
    ranks.clock.until(100.01)
    ranks.of.set_late(0, 100.004)
    ranks.of.goes_on(0)
    ranks.of.computed(0, product(MS // 2))
    assert ranks.of.settle(0, 100.0095) == pytest.approx(100.0045)


def test_where_computations_take_the_host_s_time_a_rank_that_goes_on_has_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, computes=False)
    ranks.of.goes_on(0)
    assert ranks.of.settle(0, 99.0) == 99.0
