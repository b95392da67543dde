"""The order of host events of gloo's profiles: which thread waits for which request. Hand-made profiles of one rank."""

from pathlib import Path

import pytest

from emu.trace.formats.kineto.profiled_events import HOST as HOST_TIME
from emu.trace.formats.kineto.profiled_trace import read_kineto
from emu.trace.trace import Events
from tests.trace.formats.profiles import HOST, Event, span, step, write
from tests.trace.formats.test_gloo_groups import request

OTHER = HOST + 1  # a second thread of the host
GLOO = 1000  # its two threads are this one and the next


def work(name: str, ts: float, dur: float = 2, thread: int = HOST) -> Event:
    return span("cpu_op", f"aten::{name}", ts, dur, thread)


def asks(ts: float, elements: int = 8, dur: float = 1) -> Event:
    told = {"Input Dims": [[[elements]]], "Input type": ["TensorList"], "Concrete Inputs": [""]}
    return span("cpu_op", "c10d::allreduce_", ts, dur, HOST, **told)


def runs(ts: float, dur: float, elements: int = 8, thread: int = GLOO) -> Event:
    told = {"Input Dims": [[elements]], "Input type": ["float"]} if elements else {"Input type": ["float"]}
    return span("user_annotation", "gloo:all_reduce", ts, dur, thread, **told)


def read(folder: Path, *events: Event, host_time: bool = False) -> Events:
    """Return the events of a job of one rank, in a step from 1 to 100 us."""
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0]}]
    head = {"rank": 0, "world_size": 1, "pg_config": groups}
    write(folder, "rank0.json", {"distributedInfo": head, "traceEvents": [step(1, 1, 99), *events]})
    return read_kineto(folder, host_time=host_time).events_of(0)


def waits_of(found: Events, name: str) -> list[int]:
    """Return the lengths in microseconds of the events that a computation waits for."""
    row = found.name.index(f"aten::{name}")
    return sorted(round(1e6 * found.lasts_s[each]) for each in found.wait[found.wait_start[row] : found.wait_start[row + 1]])


def asked_of(found: Events) -> list[tuple[int, int]]:
    """Return the elements of each request, and how many microseconds it lasts."""
    rows = [row for row, name in enumerate(found.name) if name == "all_reduce"]
    return [(int(found.count[row]), round(1e6 * found.lasts_s[row])) for row in rows]


@pytest.mark.parametrize("first", [HOST, OTHER])
def test_every_thread_waits_for_what_has_ended_since_it_worked_last(tmp_path, first):
    """Both threads do nothing until a request has ended, and go on after it, 4 and 8 us later; either may be the first."""
    begins = {thread: 30 if thread == first else 34 for thread in (HOST, OTHER)}
    events = [
        step(1, 0, 100),
        span("cpu_op", "aten::mm", 1, 2, HOST),
        span("cpu_op", "aten::mm", 1, 4, OTHER),
        *request("all_reduce", 10, 15.5, 1000),  # it ends at 26
        *(span("cpu_op", "aten::add", begins[thread], 2, thread) for thread in (HOST, OTHER)),
    ]
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0]}]
    write(tmp_path, "rank0.json", {"distributedInfo": {"rank": 0, "world_size": 1, "pg_config": groups}, "traceEvents": events})
    found = read_kineto(tmp_path, host_time=True).events_of(0)
    [asked] = [row for row in range(len(found)) if found.name[row] == "all_reduce"]
    after = {row: round(1e6 * found.lasts_s[row]) for row in range(asked + 1, len(found)) if found.name[row] == HOST_TIME}
    assert sorted(after.values()) == [4, 8]
    waits = [found.wait[found.wait_start[row] : found.wait_start[row + 1]].tolist() for row in after]
    assert all(asked in each for each in waits)


def test_a_thread_waits_once_for_each_request_that_has_ended_by_then_whichever_was_made_first(tmp_path):
    """The first request lasts longest, and beyond the first computation; the third ends while the host asks for it."""
    requests = [asks(10), runs(11, 29, thread=GLOO + 1), asks(12), runs(13, 7), asks(44, dur=8), runs(45, 3)]
    found = read(tmp_path, *requests, work("a", 25), work("b", 30), work("c", 41), work("d", 53))
    assert [waits_of(found, name) for name in "abcd"] == [[7], [], [29], [3]]


def test_the_host_works_from_the_end_of_the_last_request_that_it_waited_for(tmp_path):
    requests = [asks(10), runs(11, 9), asks(12), runs(13, 17, thread=GLOO + 1)]
    found = read(tmp_path, work("a", 5), *requests, work("b", 36), host_time=True)
    lasts = [round(1e6 * each) for name, each in zip(found.name, found.lasts_s, strict=True) if name == HOST_TIME]
    assert lasts == [3, 2, 6]  # from 7 to 10, to 12, and from 30 to 36


@pytest.mark.parametrize("told", [8, 0])
def test_what_gloo_ran_is_of_the_operator_that_began_no_later_and_gives_as_much(tmp_path, told):
    """One request is of before the profile; gloo runs the second of the others first, and may not state what it sends."""
    early = runs(2, 1)
    mixed = [asks(10), asks(11, 16), runs(12, 2, 16), runs(15, 5, 8, GLOO + 1)]
    equal = [asks(30), runs(30, 3, told), asks(40), runs(41, 6, told, GLOO + 1)]
    behind = [asks(50), asks(52), runs(52, 4, told), runs(60, 7, told)]  # the second waits for its thread
    assert asked_of(read(tmp_path, early, *mixed, *equal, *behind)) == [
        (8, 5), (16, 2), (8, 3), (8, 6), (8, 4), (8, 7),
    ]  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
def test_of_operators_within_one_another_the_outermost_counts_unless_it_makes_a_request(tmp_path, turned):
    """Two begin together, and two touch; the second outer one asks, so that its parts stand for it."""
    outer = [work("linear", 10, 10), work("mm", 10, 4), work("t", 16, 3), work("add", 20, 4)]
    asking = [work("step", 30, 30), work("copy", 31), asks(35), runs(35.5, 4), work("mul", 50), work("far", 51, 0.5)]
    others = [work("beside", 22, 30, OTHER), work("of_gloo", 36, 1, GLOO), work("before", 0, 0.5), work("after", 101)]
    events = [*outer, *asking, *others]
    found = read(tmp_path, *(events[::-1] if turned else events))
    assert [name.removeprefix("aten::") for name in found.name] == ["linear", "add", "beside", "copy", "all_reduce", "mul"]
