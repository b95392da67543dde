"""The clock of paced ranks by one that stands: when a rank is prepared, woken, answered, and how late that is told."""

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from weakref import ref

import numpy as np
import pytest
import torch.distributed as dist

from emu.backend.rank.request_work import RequestWork
from emu.cluster.pace import rank_clock
from emu.cluster.pace.alarm import Alarm
from emu.cluster.pace.rank_clock import PacedClock, RankClock
from emu.cluster.pace.timeliness import Tempo
from tests.cluster.pace.paced_runs import DEVICE
from tests.cluster.pace.stopped_clock import StoppedClock


class Work:
    """A request as the clock sees it."""

    def __init__(self, key: str) -> None:
        self.key, self.done, self.due_s = key, False, 0.0


class Strands:
    """The strands of a process; a rest ends when its time has come or its request is answered."""

    def __init__(self, clock: StoppedClock) -> None:
        self._clock, self.works = clock, dict[str, Work]()
        self.failure: BaseException | None = None
        self.alarm: object = None
        self.told, self.awake, self.waiting = list[tuple[object, ...]](), set[str](), set[str]()
        self.answered: Callable[[], None] = lambda: None
        told = self.told.append
        self.baton = SimpleNamespace(
            look=lambda: None,
            prepare=lambda rank: told(("prepare", rank, self.now)),
            rehearse=lambda: told(("rehearse", self.now)),
            has_others=lambda rank: rank == 1,
        )

    @property
    def now(self) -> float:
        return round(self._clock.now_s, 6)

    def give_up(self, error: BaseException) -> None:
        raise error

    def fail_from_outside(self, error: BaseException) -> None:
        self.failure = error

    def wake(self, key: str) -> bool:
        self.told.append(("wake", key, self.now))
        self.awake |= {key} & self.waiting
        return key in self.waiting

    def answer(self, work: "ref[Any]", due_s: float) -> bool:
        found = work()
        found.due_s, found.done = due_s, True
        self.told.append(("answer", found.key, self.now))
        return self.wake(found.key) if found.key in self.waiting else False

    def park(self, strand: int, what: Any, until_s: float | None = None) -> None:
        self.told.append(("rest", strand, what.key if isinstance(what, Work) else "a time", self.now))
        if isinstance(what, Work):
            self.waiting.add(what.key)
        while self._clock.next_s is not None and (until_s is None or self._clock.next_s < until_s):
            self._clock.until(self._clock.next_s)
            if isinstance(what, Work) and (what.key in self.awake or what.done):
                break
        else:
            self._clock.until(until_s or self._clock.now_s)
        if isinstance(what, Work):
            self.waiting.discard(what.key)


class Host:
    """A paced clock on strands of a host whose clock stands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = StoppedClock(monkeypatch)
        self.strands, self.checked = Strands(self.clock), list[int]()
        self.tempo = Tempo(1000.0, DEVICE)
        monkeypatch.setattr(rank_clock, "this_strand", lambda: SimpleNamespace(number=30))
        self.of = PacedClock(self.tempo, 4, cast("Any", self.strands), self.checked.append)
        self.of.alarm = cast("Any", self.clock)

    def asked(self, key: str, rank: int, at_s: float) -> Work:
        work = Work(key)
        self.strands.works[key] = work
        self.of.asked(rank, cast("RequestWork", work), at_s)
        return work

    def carried(self, work: Work) -> None:
        self.of.carried(work.key, cast("ref[RequestWork]", ref(work)))

    def told(self, *kinds: str) -> list[tuple[object, ...]]:
        return [each for each in self.strands.told if each[0] in kinds]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def test_a_rank_that_does_not_wait_is_prepared_looked_for_and_answered_when_it_is_due(host: Host) -> None:
    work = host.asked("a", 2, 100.0)
    host.of.expected("a", 105.0)
    host.clock.until(101)
    host.carried(work)
    host.clock.until(104.9999)
    assert host.strands.told == [("prepare", 2, 104.9985), ("wake", "a", 104.9995)]
    assert not work.done
    host.clock.until(106)
    assert host.told("answer") == [("answer", "a", 105.0)]
    assert work.due_s == 105.0
    late = host.tempo.kept.late
    assert (late.messages, late.in_time, late.worst_s) == (1, 1, pytest.approx(0, abs=1e-6))
    host.of.expected("a", 107.0)  # it has been answered
    host.of.due("a", 107.0, 1.0)
    assert host.clock.next_s is None


def test_a_request_whose_data_come_late_is_answered_then_and_told_as_late(host: Host) -> None:
    work = host.asked("a", 0, 100.0)
    host.of.due("a", 105.0, 0.25)
    host.clock.until(106)
    assert host.told("answer", "wake") == []
    host.carried(work)
    assert host.told("answer") == [("answer", "a", 106.0)]
    assert work.due_s == 105.0
    assert host.tempo.kept.late.worst_s == pytest.approx(1.25)
    assert host.tempo.kept.late.in_time == 0
    other = host.asked("b", 0, 104.0)
    host.of.due("b", 134.0, 0.25)
    host.carried(other)
    host.clock.until(140)
    assert host.tempo.kept.late.in_time == 1  # within 2 % of 30 s


def test_what_is_expected_may_be_put_off_and_taken_back(host: Host) -> None:
    work = host.asked("a", 0, 100.0)
    host.carried(work)
    for time_s in (103.0, 108.0, 108.0):
        host.of.expected("a", time_s)
    host.clock.until(107)
    assert host.told("answer", "wake") == []
    host.of.expected("a", None)
    host.clock.until(109)
    assert host.told("answer", "wake") == []
    host.of.expected("a", 110.0)
    host.clock.until(111)
    assert host.told("answer") == [("answer", "a", 110.0)]


def test_of_ranks_that_go_on_together_the_first_alone_is_prepared(host: Host) -> None:
    for key, rank, due_s in (("a", 0, 105.0), ("b", 1, 105.0003), ("c", 2, 105.01), ("d", 3, None)):
        host.asked(key, rank, 100.0)
        host.of.expected(key, due_s)
    host.clock.until(106)
    assert host.told("prepare") == [("prepare", 0, 104.9985), ("prepare", 2, 105.0085)]
    late = host.asked("e", 3, 106.0)
    host.of.expected("e", 106.0002)  # too soon for any preparation
    host.carried(late)
    host.clock.until(107)
    assert len(host.told("prepare")) == 2


def test_a_rank_that_waits_is_woken_shortly_before_and_goes_on_when_its_answer_is_due(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank is woken half a millisecond early, rehearses, and looks at the clock, which goes on by itself meanwhile."""
    work = host.asked("a", 1, 100.0)
    host.carried(work)
    host.of.expected("a", 105.0)
    monkeypatch.setattr(rank_clock, "now_s", lambda: running(host.clock))
    host.of.block(cast("RequestWork", work), 1, None)
    assert [each[0] for each in host.strands.told] == ["rest", "prepare", "wake", "rehearse", "answer"]
    assert host.strands.told[0][1:3] == (30, "a")
    assert host.checked == [1]
    assert host.clock.now_s >= 105.0
    assert host.clock.now_s < 105.001
    assert (host.tempo.kept.late.messages, host.tempo.kept.late.in_time) == (1, 1)


def running(clock: StoppedClock) -> float:
    """A host's clock that goes on by 10 us each time that it is asked."""
    clock.now_s += 1e-5
    return clock.now_s


def test_a_rank_that_waits_longer_than_it_would_is_told_so(host: Host) -> None:
    work = host.asked("a", 3, 100.0)
    host.of.expected("a", 180.0)
    with pytest.raises(dist.DistBackendError, match="emu: rank 3 has waited for 0:00:20 for a request that is not done"):
        host.of.block(cast("RequestWork", work), 3, timedelta(seconds=20))
    assert host.clock.now_s == 120.0
    assert host.tempo.kept.late.messages == 0
    host.strands.failure = RuntimeError()
    host.of.block(cast("RequestWork", work), 3, timedelta(seconds=20))  # the run has failed: nothing is waited for
    assert host.clock.now_s == 120.0


def test_a_rank_that_asks_rests_for_a_millisecond_or_until_it_is_due_and_hears_whether_anything_still_comes(host: Host) -> None:
    work = host.asked("a", 0, 100.0)
    assert host.of.poll(cast("RequestWork", work), 0)
    assert host.clock.now_s == pytest.approx(100.001)
    host.of.expected("a", 100.0012)
    assert host.of.poll(cast("RequestWork", work), 0)
    assert host.clock.now_s == pytest.approx(100.0012)
    host.carried(work)  # now it is answered
    assert work.done
    assert not host.of.poll(cast("RequestWork", work), 0)
    other = host.asked("b", 0, 101.0)
    host.carried(other)
    assert not host.of.poll(cast("RequestWork", other), 0)  # carried, and due at a time that is not known
    host.of._sleeping = 1
    assert not host.of.poll(cast("RequestWork", Work("c")), 0)
    host.of._sleeping = 0
    assert host.of.poll(cast("RequestWork", Work("c")), 0)


def test_nobody_rests_until_a_time_that_has_come(host: Host) -> None:
    work = host.asked("a", 0, 90.0)
    for due_s in (99.0, 100.0):
        host.of.expected("a", due_s)
        assert host.of.poll(cast("RequestWork", work), 0)
    assert host.told("rest") == []
    host.of.expected("a", 100.0001)
    assert host.of.poll(cast("RequestWork", work), 0)
    assert host.told("rest") == [("rest", 30, "a time", 100.0)]


def test_a_rank_is_woken_once_its_data_are_there_and_the_time_is_near_and_answered_when_it_is_due(host: Host) -> None:
    """In turn: nothing is asked, no data, no time, too early, near and not waiting, near and waiting, due, answered."""
    work = host.asked("a", 0, 90.0)
    host.of._answer_or_wake("another")
    host.of._answer_or_wake("a")
    host.of._held["a"].due_s = 100.2
    host.clock.now_s = 100.1999
    host.of._answer_or_wake("a")
    host.of._held["a"].carried = True
    host.of._held["a"].due_s = None
    host.of._answer_or_wake("a")
    host.of._held["a"].due_s = 100.20045
    host.of._answer_or_wake("a")
    assert host.strands.told == []
    host.clock.now_s = 100.2
    host.of._answer_or_wake("a")
    assert host.strands.told == [("wake", "a", 100.2)]
    assert host.clock.next_s == 100.20045  # as nobody was woken
    host.strands.waiting.add("a")
    host.of._answer_or_wake("a")
    assert host.strands.told[1:] == [("wake", "a", 100.2)]
    assert len(host.clock._calls) == 1
    host.clock.now_s = 100.20045
    host.of._answer_or_wake("a")
    assert host.strands.told[2] == ("answer", "a", host.strands.now)
    assert work.due_s == 100.20045
    host.of._answer_or_wake("a")
    assert host.told("answer") == [("answer", "a", host.strands.now)]


def test_a_rank_that_waits_is_answered_once(host: Host) -> None:
    work = host.asked("a", 0, 90.0)
    host.strands.waiting.add("a")
    host.of.due("a", 100.0, 0.0)
    host.of._land("a")
    assert not work.done  # its data have not been moved
    host.carried(work)
    assert host.told("answer") == [("answer", "a", 100.0)]
    host.of._land("a")
    host.carried(work)
    assert host.told("answer") == [("answer", "a", 100.0)]
    assert host.tempo.kept.late.messages == 0  # it goes on later


def test_speeds_and_reports_go_to_the_devices_and_to_the_clock(host: Host) -> None:
    listeners = host.of.listeners()
    listeners.slowed(np.array([1.0, 0.25, 1.0, 1.0]))
    assert host.of._devices.speed.tolist() == [1.0, 0.25, 1.0, 1.0]
    host.asked("a", 0, 100.0)
    listeners.expected("a", 105.0)
    assert host.clock.next_s == pytest.approx(104.9985)
    listeners.due("a", 103.0, 0.5)
    assert host.clock.next_s == pytest.approx(102.9985)
    listeners.stop(error := RuntimeError())
    assert host.strands.failure is error


def test_events_are_in_virtual_time_unless_they_are_to_be_the_hosts(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, notes = host.of.of_events()
    assert notes == ["elapsed_time of events is virtual time; with --pace-events off it is this host's"]
    monkeypatch.setattr(rank_clock, "current_strand", lambda: None)
    assert seconds() == pytest.approx(100.0 / 1000)
    main = SimpleNamespace(rank=2, is_main=True, is_native=False)
    turns = list[object]()
    monkeypatch.setattr(rank_clock, "current_strand", lambda: main)
    monkeypatch.setattr(rank_clock, "take_turn", turns.append)
    host.of._devices.set_late(2, 99.5)  # its host is behind by half a second
    assert seconds() == pytest.approx(99.5 / 1000)
    assert turns == [main]
    main.is_native = True
    assert seconds() == pytest.approx(100.0 / 1000)
    host.of._tempo = Tempo(1000.0, DEVICE, events=False)
    assert host.of.of_events()[1] == []


def test_a_rank_that_sleeps_lets_others_run_and_has_no_work_left_on_its_device(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, main = list[tuple[float, int]](), SimpleNamespace(rank=2, is_main=True, is_native=False)

    def sleep(seconds: float) -> None:
        slept.append((seconds, host.of._sleeping))
        host.clock.until(host.clock.now_s + seconds)

    monkeypatch.setattr(rank_clock, "take_turn", lambda _: None)
    monkeypatch.setattr(rank_clock, "current_strand", lambda: main)
    own = host.of._in_place_of(sleep)
    host.of._devices.set_late(2, 99.0)
    own(0.5)
    assert slept == [(0.5, 1)]
    assert host.of._sleeping == 0
    assert host.of.settle(2, host.clock.now_s) == pytest.approx(100.5)  # whoever sleeps is late with nothing
    for changed in ({"is_native": True}, {"is_main": False}):
        vars(main).update({"is_native": False, "is_main": True} | changed)
        own(0.25)
        assert slept[-1] == (0.25, 0)  # beside its rank's program it says nothing of that


def test_without_a_pace_a_request_is_answered_once_its_data_have_been_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StoppedClock(monkeypatch)
    strands, checked = Strands(clock), list[int]()
    monkeypatch.setattr(rank_clock, "this_strand", lambda: SimpleNamespace(number=30))
    monkeypatch.setattr(rank_clock, "current_strand", object)
    gave_way = list[int]()
    strands.give_way = gave_way.append  # type: ignore[attr-defined]
    own, work = RankClock(cast("Any", strands), checked.append), Work("a")
    assert not own.answers_later
    own.carried("a", cast("ref[RequestWork]", ref(work)))
    assert (work.done, work.due_s) == (True, -np.inf)
    own.block(cast("RequestWork", work), 0, None)  # there are no others
    assert (checked, gave_way, strands.told[1:]) == ([], [], [])
    own.block(cast("RequestWork", work), 1, None)
    assert (checked, gave_way) == ([1], [30])
    own.block(cast("RequestWork", Work("b")), 1, None)
    assert checked == [1, 1]
    assert strands.told[-1] == ("rest", 30, "b", 100.0)
    assert own.poll(cast("RequestWork", work), 0)
    assert own.settle(0, 7.0) == 7.0
    assert "with --pace 1000 it is virtual time" in own.of_events()[1][0]
    own.listeners().expected("a", 5.0)
    own.listeners().stop(error := RuntimeError())
    assert strands.failure is error


@pytest.mark.parametrize("computes", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("switch_s", [0.005, 1e-4])
def test_while_ranks_run_their_sleep_and_their_computations_are_listened_to(
    monkeypatch: pytest.MonkeyPatch, computes: bool, recorded: bool, switch_s: float
) -> None:
    """And threads switch at least five thousand times a second; all is as before when they have ended, however they end."""
    clock, heard, compiled = StoppedClock(monkeypatch), list[object](), list[str]()
    monkeypatch.setattr(rank_clock, "compile_solver", lambda: compiled.append("once"))
    of = PacedClock(Tempo(1000.0, DEVICE, computes=computes), 4, cast("Any", Strands(clock)), lambda _: None)
    recording = SimpleNamespace(with_listener=lambda call: nullcontext(heard.append(call)))
    sleep, before_s = time.sleep, sys.getswitchinterval()
    sys.setswitchinterval(switch_s)
    try:
        for pacer, error in ((None, None), (object(), ValueError("of a rank"))):
            of.pacer = cast("Any", pacer)
            with (
                pytest.raises(ValueError, match="of a rank") if error else nullcontext(),
                of.runs(cast("Any", recording if recorded else None)),
            ):
                assert time.sleep is not sleep
                assert sys.getswitchinterval() == pytest.approx(min(switch_s, 2e-4), abs=2e-6)
                assert of.alarm._thread.is_alive()
                if error:
                    raise error
            assert time.sleep is sleep
            assert sys.getswitchinterval() == pytest.approx(switch_s, abs=4e-6)
            assert not of.alarm._thread.is_alive()
            assert heard == [of._devices.computed] * (computes and recorded)
            heard.clear()
            of.alarm = Alarm(lambda _: None)
    finally:
        sys.setswitchinterval(before_s)
    assert compiled == ["once"]
