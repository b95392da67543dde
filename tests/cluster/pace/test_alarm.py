"""The alarm makes its calls in the order of their times, on a thread of its own; no test asks how late it is."""

import threading
import time

from emu.cluster.pace.alarm import Alarm

FAR = 1e6  # seconds


def test_calls_come_in_the_order_of_their_times_and_of_equal_ones_as_they_were_made() -> None:
    made, idle, done = list[object](), threading.Event(), list[BaseException]()
    now = time.monotonic()
    alarm = Alarm(done.append, idle.set)
    for time_s, name in ((now + 0.02, "c"), (now - 5, "a"), (now - 5, "b"), (now + FAR, "never"), (now + 0.03, "d")):
        alarm.at(time_s, lambda name=name: made.append((name, threading.current_thread().name, alarm.is_set)))
    gone = alarm.at(now + 0.01, lambda: made.append("forgotten"))
    alarm.forget(gone)
    alarm.forget(gone)
    assert alarm.is_set
    with alarm:
        last = threading.Event()
        alarm.at(now + 0.05, last.set)
        assert last.wait(60)
    assert made == [(name, "alarm", True) for name in "abcd"]
    assert time.monotonic() >= now + 0.05
    assert alarm.is_set  # one is left
    assert not idle.is_set()
    assert done == []


def test_once_no_call_is_left_it_says_so_and_one_that_comes_later_is_made() -> None:
    idle, states = threading.Semaphore(0), list[bool]()
    alarm = Alarm(lambda _: None, lambda: (states.append(alarm.is_set), idle.release()))
    with alarm:
        for _ in range(2):
            alarm.at(0.0, lambda: None)
            assert idle.acquire(timeout=60)
    assert states == [False, False]


def test_it_is_set_while_its_last_call_runs_and_not_after_it() -> None:
    within, idle = list[bool](), threading.Semaphore(0)
    alarm = Alarm(lambda _: None, idle.release)
    assert not alarm.is_set
    with alarm:
        for _ in range(2):
            alarm.at(0.0, lambda: within.append(alarm.is_set))
            assert idle.acquire(timeout=60)
            assert not alarm.is_set
    assert within == [True, True]


def test_after_a_call_that_fails_its_error_is_told_and_nothing_more_is_called() -> None:
    failed, made, error = threading.Event(), list[object](), ValueError("of its own")

    def fails() -> None:
        raise error

    def told(each: BaseException) -> None:
        made.append(each)
        failed.set()

    with Alarm(told) as alarm:
        alarm.at(1.0, fails)
        alarm.at(2.0, lambda: made.append("more"))
        assert failed.wait(60)
    assert made == [error]
    assert not alarm._calling
