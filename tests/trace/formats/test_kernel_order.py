"""The order of kernels by what the threads of a host do: profiles of one rank, written by hand."""

from pathlib import Path
from typing import Any

import pytest

from emu.trace.formats.kineto.profiled_events import HOST as HOST_TIME
from emu.trace.formats.kineto.profiled_trace import read_kineto
from emu.trace.trace import Events
from tests.trace.formats.profiles import COMPUTE, HOST, Event, call, collective, kernel, profile_of, span, step, write

SIDE, THIRD = 9, 11  # streams beside that of the computation
OTHER, LAST = HOST + 1, HOST + 2  # threads beside that of the step


def by(thread: int, events: list[Event]) -> list[Event]:
    """Let another thread of the host make the calls."""
    return [{**each, "tid": thread} if each["cat"] == "cuda_runtime" else each for each in events]


def read(folder: Path, *groups: list[Event], begins: float = 0.0, host_time: bool = False) -> Events:
    """Return the events of one rank, which asks for a collective of its own after everything else."""
    asks = collective("allreduce", 700, 701, 5, 99, 4, 4, [0])
    events = [step(1, 0, 900), *(each for group in groups for each in group), *asks]
    moved = [{**each, "ts": each["ts"] + begins} for each in events]
    return read_kineto(write(folder, "rank0.json", profile_of(0, moved, world=1)), host_time=host_time).events_of(0)


def waits_of(events: Events) -> dict[str, set[str]]:
    rows = zip(events.name, events.wait_start[:-1].tolist(), events.wait_start[1:].tolist(), strict=True)
    return {name: {events.name[row] for row in events.wait[low:high].tolist()} for name, low, high in rows}


def sync(kind: str, ts: float, correlation: int, dur: float = 1, **told: Any) -> list[Event]:
    """Return a call that waits, and the note of CUDA on what it waits for."""
    note = span("cuda_sync", kind, ts, dur, SIDE, correlation=correlation, cuda_sync_kind=kind, **told)
    return [call(f"cuda{kind.replace(' ', '')}", ts, correlation, dur), note]


def on_device(number: int, events: list[Event]) -> list[Event]:
    return [{**each, "args": {**each["args"], "device": number}} if "device" in each["args"] else each for each in events]


@pytest.mark.parametrize(("begins", "waited"), [(50, set()), (105, {"short"})])
def test_a_kernel_that_ends_before_an_earlier_one_of_its_stream_counts_as_ended_with_it(tmp_path, begins, waited):
    first = [*kernel("long", 1, 10, 90, 1), *kernel("short", 3, 20, 10, 2), call("cudaStreamWaitEvent", 40, 50)]
    assert waits_of(read(tmp_path, first, kernel("side", 45, begins, 5, 3, SIDE)))["side"] == waited


def test_a_kernel_launched_at_the_very_end_of_a_wait_of_the_host_waits(tmp_path):
    ended = [*kernel("work", 1, 10, 80, 1), call("cudaDeviceSynchronize", 60, 50, dur=40)]
    assert waits_of(read(tmp_path, ended, kernel("after", 100, 101, 5, 2)))["after"] == {"synchronize"}


def test_a_wait_of_the_host_counts_from_its_end_so_that_other_threads_launch_meanwhile(tmp_path):
    events = [*kernel("work", 1, 10, 80, 1), call("cudaDeviceSynchronize", 60, 50, dur=40)]
    waits = waits_of(
        read(tmp_path, events, by(OTHER, kernel("meanwhile", 70, 75, 5, 2, SIDE)), kernel("after", 110, 111, 5, 3))
    )
    assert waits["meanwhile"] == set()
    assert waits["synchronize"] == {"work", "meanwhile"}
    assert waits["after"] == {"synchronize"}


def host_us(events: Events) -> list[float]:
    """The work of the host in microseconds, piece by piece, without what comes before the last collective."""
    return [round(1e6 * lasts, 3) for name, lasts in zip(events.name, events.lasts_s, strict=True) if name == HOST_TIME][:-1]


@pytest.mark.parametrize("begins", [0.0, 5e6])
@pytest.mark.parametrize(("starts", "second"), [(310, 290), (300.5, 289.5)])  # its launch returns at 301
def test_the_host_works_from_its_first_launch_until_each_launch_returns_or_its_kernel_starts(tmp_path, begins, starts, second):
    events = read(tmp_path, kernel("a", 10, 15, 20, 1), kernel("b", 300, starts, 5, 2), begins=begins, host_time=True)
    assert host_us(events) == [1, second]


def test_a_host_that_waits_does_not_work(tmp_path):
    """The host works until the wait begins, and again from the end of the wait."""
    waits = [*kernel("a", 10, 12, 100, 1), call("cudaDeviceSynchronize", 20, 50, dur=92)]
    assert host_us(read(tmp_path, waits, kernel("b", 120, 125, 5, 2), host_time=True)) == [1, 9, 9]


def test_what_another_thread_launches_while_one_waits_is_not_counted_again(tmp_path):
    """The launch returns after the end of the wait: the host's work goes on from there."""
    waits = [*kernel("a", 10, 12, 100, 1), call("cudaDeviceSynchronize", 20, 50, dur=92)]
    late = by(OTHER, [call("cudaLaunchKernel", 100, 2, dur=15), kernel("m", 100, 118, 2, 2, SIDE)[1]])
    assert host_us(read(tmp_path, waits, late, kernel("b", 120, 125, 5, 3), host_time=True)) == [1, 104, 6]


def test_of_kernels_after_a_wait_of_the_host_only_the_first_of_a_stream_need_wait(tmp_path):
    ended = [*kernel("work", 1, 10, 5, 1), call("cudaDeviceSynchronize", 20, 50)]
    later = [kernel(name, 30 + i, 40 + 10 * i, 5, 2 + i, stream) for i, (name, stream) in enumerate(LATER)]
    waits = waits_of(read(tmp_path, ended, *later))
    assert ["synchronize" in waits[name] for name, _ in LATER] == [True, False, True, False]


LATER = [("a", COMPUTE), ("b", COMPUTE), ("c", SIDE), ("d", SIDE)]


@pytest.mark.parametrize("device", [0, 1])
def test_a_named_event_is_after_the_last_kernel_of_the_stream_that_it_was_recorded_on(tmp_path, device):
    """Other streams have kernels too, on the same device and on another; a kernel waits for the event once."""
    parts = [kernel("work", 1, 10, 5, 1), kernel("early", 3, 12, 2, 2, SIDE), kernel("side", 5, 15, 5, 3, SIDE)]
    apart = on_device(1 - device, kernel("apart", 6, 15, 5, 4, SIDE))
    told = {"stream": COMPUTE, "wait_on_stream": SIDE, "wait_on_cuda_event_record_corr_id": 50, "device": device}
    asked = sync("Stream Wait Event", 25, 51, **told)
    after = [kernel("more", 12, 30, 5, 5, SIDE), asked, kernel("waits", 30, 40, 5, 6), kernel("next", 32, 50, 5, 7)]
    events = [on_device(device, each) for each in (*parts, *after)]
    waits = waits_of(read(tmp_path, *events, apart, [call("cudaEventRecord", 10, 50)]))
    assert {name: waits[name] for name in ("waits", "next", "more", "apart")} == {
        "waits": {"side"}, "next": set(), "more": set(), "apart": set(),
    }  # fmt: skip


TWO_THREADS = [  # the first kernel of each stream is not its last
    *kernel("begun", 1, 10, 5, 1), *kernel("mine", 3, 15, 5, 2),
    *by(OTHER, [*kernel("of_other", 5, 10, 5, 3, SIDE), *kernel("theirs", 7, 15, 5, 4, SIDE)]),
]  # fmt: skip


@pytest.mark.parametrize(("thread", "waited"), [(HOST, "mine"), (OTHER, "theirs"), (LAST, "theirs")])
def test_a_thread_that_waits_for_its_stream_waits_for_the_last_kernel_that_it_launched(tmp_path, thread, waited):
    """A thread that launched nothing waits for what was launched last."""
    waits = waits_of(read(tmp_path, TWO_THREADS, by(thread, [call("cudaStreamSynchronize", 30, 50)])))
    assert waits["synchronize"] == {waited}


@pytest.mark.parametrize(("thread", "waited"), [(HOST, "mine"), (OTHER, "theirs"), (LAST, "theirs")])
def test_a_collective_waits_for_what_its_own_thread_launched(tmp_path, thread, waited):
    asked = by(thread, collective("broadcast", 30, 40, 5, 50, 4, 4, [0]))
    assert waits_of(read(tmp_path, TWO_THREADS, asked))["broadcast"] == {waited}


@pytest.mark.parametrize(("stream", "waited"), [(COMPUTE, {"mine"}), (SIDE, {"theirs"}), (55, None)])
def test_a_wait_for_a_named_stream_is_for_that_one_whoever_waits(tmp_path, stream, waited):
    """A stream without a kernel has nothing to wait for."""
    waits = waits_of(read(tmp_path, TWO_THREADS, sync("Stream Synchronize", 30, 50, stream=stream, device=0)))
    assert waits.get("synchronize") == waited
    assert "mine" in waits["all_reduce"]  # such a note names no wait of a stream, so that these are presumed


@pytest.mark.parametrize(("recorded", "waited"), [(50, {"begun"}), (60, {"mine"}), (70, None)])
def test_a_host_that_waits_for_a_named_event_waits_for_what_was_recorded(tmp_path, recorded, waited):
    """The wait ends after both kernels; an event that was recorded before the profile has nothing to wait for."""
    records = [call("cudaEventRecord", 2, 50), call("cudaEventRecord", 4, 60)]
    told = {"wait_on_stream": COMPUTE, "wait_on_cuda_event_record_corr_id": recorded, "device": 0}
    asked = sync("Event Synchronize", 11, 51, dur=30, **told)
    waits = waits_of(read(tmp_path, TWO_THREADS, records, asked, kernel("after", 50, 51, 5, 9)))
    assert waits.get("synchronize") == waited
    assert waits["after"] == ({"synchronize"} if waited else set())


def test_a_wait_of_a_stream_is_for_the_next_kernel_of_the_thread_that_called_for_it_alone(tmp_path):
    """Another thread launches before it; its own second kernel begins when more has ended, and does not wait for that."""
    launched = [
        *kernel("base", 1, 10, 10, 1),
        call("cudaStreamWaitEvent", 40, 50),
        *by(OTHER, kernel("beside", 42, 50, 100, 2, SIDE)),
        *kernel("waits", 44, 55, 5, 3, THIRD),
        *by(OTHER, kernel("fresh", 46, 61, 2, 4)),
        *kernel("next", 48, 70, 5, 5, THIRD),
    ]
    waits = waits_of(read(tmp_path, launched))
    assert {name: waits[name] for name in ("beside", "waits", "next")} == {"beside": set(), "waits": {"base"}, "next": set()}


def test_where_no_wait_of_a_stream_has_a_name_kernels_wait_for_what_ended_while_their_stream_stood_still(tmp_path):
    """Profiles may have no calls of that kind; what ended while the stream was at work is not waited for."""
    parts = [*kernel("first", 1, 10, 5, 1), *kernel("side", 2, 20, 30, 2, SIDE), *kernel("while", 3, 21, 9, 3)]
    waits = waits_of(read(tmp_path, parts, kernel("then", 4, 51, 5, 4, SIDE), kernel("last", 5, 60, 5, 5)))
    assert {name: waits[name] for name in ("side", "while", "then", "last")} == {
        "side": {"first"}, "while": set(), "then": set(), "last": {"then"},
    }  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
def test_kernels_of_one_launch_have_the_order_of_their_starts_and_not_of_the_file(tmp_path, turned):
    told = {"device": 0, "stream": COMPUTE, "correlation": 1}
    parts = [span("kernel", name, 10 * (i + 1), 5, COMPUTE, **told) for i, name in enumerate("abc")]
    events = read(tmp_path, [call("cudaGraphLaunch", 1, 1), *(parts[::-1] if turned else parts)])
    assert events.name[:3] == ("a", "b", "c")


def test_a_profile_without_any_call_has_the_order_of_starts(tmp_path):
    """Then all kernels count as launched when they begin."""
    asks = collective("allreduce", 30, 30, 5, 4, 4, 4, [0])
    events = [*kernel("b", 20, 20, 5, 2), *kernel("a", 10, 10, 5, 1), *asks]
    alone = [step(1, 0, 900), *(each for each in events if each["cat"] == "kernel")]
    found = read_kineto(write(tmp_path, "rank0.json", profile_of(0, alone, world=1))).events_of(0)
    assert found.name == ("a", "b", "all_reduce")


@pytest.mark.parametrize(("called", "waited"), [(True, {"base"}), (False, set())])
def test_a_stream_that_is_told_to_wait_does_so_even_for_what_ended_while_it_was_at_work(tmp_path, called, waited):
    events = [*kernel("base", 1, 10, 10, 1), *kernel("busy", 3, 5, 30, 2, SIDE)]
    calls = [call("cudaStreamWaitEvent", 20 if called else 80, 50)]
    assert waits_of(read(tmp_path, events, calls, kernel("then", 22, 40, 5, 3, SIDE)))["then"] == waited


def test_the_work_of_the_host_is_of_the_step_of_the_launch_that_follows_it(tmp_path):
    """The end of a step of the host is no launch: what follows it is of the next step."""
    later = [*kernel("second", 920, 930, 5, 2), *collective("allreduce", 940, 950, 5, 3, 4, 4, [0])]
    events = read(tmp_path, kernel("first", 10, 12, 5, 1), [step(2, 900, 100)], later, host_time=True)
    hosts = [row for row, name in enumerate(events.name) if name == HOST_TIME]
    assert [int(events.step[row]) for row in hosts] == [1, 1, 2, 2]
    assert [round(1e6 * events.lasts_s[row], 3) for row in hosts] == [1, 690, 220, 20]
