"""The writer of profiles in the form of PyTorch's profiler: one file for each rank, with virtual times.

A virtual host launches kernels in the order of the trace, each as late as its device lets it, and takes no time itself. Times
are microseconds: a start to a billionth of one, which is a tick.
"""

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emu.arrays import F64, I64
from emu.errors import InputError, WriteError, must_be
from emu.files import has_ending, write_file
from emu.trace.formats.kineto.json_events import EVENTS, json_entries
from emu.trace.formats.kineto.profiled_request import axis_label
from emu.trace.formats.kineto.rank_layout import HostCall, RoleLayout, role_layout
from emu.trace.formats.kineto.request_arguments import (
    kernel_name,
    operator_arguments,
    request_arguments,
    shape_arguments,
)
from emu.trace.replay.replay import TraceLayout, brief_replay
from emu.trace.report.request_times import Arrivals
from emu.trace.trace import Trace
from emu.units import TICKS_PER_US

MOST_RANKS = 1024  # limit of the ranks, which have a file each
_CALL_US = 0.01  # time between two calls of the host
_HOST = 100_000  # the number of the host's process
_THREAD = _HOST, _HOST  # its only thread
_KEPT = 16  # limit of the texts that are kept for other ranks with the same events
Event = dict[str, Any]


def write_profile(layout: TraceLayout, path: Path) -> None:
    """Write the profile of a trace that is timed on its fabric: one file, or one for each rank, such as `step.rank3.json.gz`.

    Files that Emu wrote of an older trace of this name are removed.

    Args:
        layout: The trace, with the fabric, the device and the algorithms that time it.
        path: The file; of several ranks each file has the rank before the ending of its name.

    Raises:
        InputError: there are more than 1,024 ranks, or the trace cannot be timed.
        WriteError: a file cannot be written.
    """
    trace = layout.trace
    if trace.n_ranks > MOST_RANKS:
        mend = "save it as a .trace, which has each role once"
        raise must_be("trace", "ranks of a profile", f"at most {MOST_RANKS:,}, as each has a file", trace.n_ranks, mend)
    for rank, profile in enumerate(_profiles(layout)):
        text = profile.encode()
        target = path if trace.n_ranks == 1 else rank_path(path, rank)
        write_file("--trace", target, gzip.compress(text, 6, mtime=0) if has_ending(path, ".gz") else text)
    _remove_older(path, trace.n_ranks)


def _remove_older(path: Path, ranks: int) -> None:
    """Remove files that Emu wrote for an older trace of this name with more ranks.

    Args:
        path: The file that the user names.
        ranks: The number of ranks of the new trace.

    Raises:
        WriteError: one cannot be removed.
    """
    head, _, tail = rank_path(path, 0).name.rpartition("rank0")
    written = re.compile(re.escape(head) + r"rank(\d+)" + re.escape(tail))
    found = [(int(of[1]), file) for file in path.parent.iterdir() if (of := written.fullmatch(file.name))]
    stale = [file for rank, file in found if rank >= ranks or ranks == 1] + [path] * (ranks > 1 and path.is_file())
    for file in filter(_is_own, stale):
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise WriteError(f"--trace: cannot remove {str(file)!r}, of an older trace: {error.strerror}") from None


def _is_own(path: Path) -> bool:
    """Return whether Emu wrote a profile, judged by its first event."""
    try:
        first = next((value for key, value in json_entries(path) if key == EVENTS), None) if path.is_file() else None
    except InputError:
        return False
    return first == next(_tracks())


def rank_path(path: Path, rank: int) -> Path:
    """Return the file of a rank: `step.rank3.json.gz` for `step.json.gz`, so that programs still know the ending."""
    ending = next(end for end in (".pt.trace.json.gz", ".pt.trace.json", ".json.gz", ".json") if has_ending(path, end))
    return path.with_name(f"{path.name[: -len(ending)]}.rank{rank}{path.name[-len(ending) :]}")


@dataclass(frozen=True, eq=False, slots=True)
class _RankTimes:
    """The times at which a rank's calls and events begin, and how long events last, in microseconds; C calls, E events."""

    call_us: F64  # [C] when each call begins
    start_us: F64  # [E] when each event begins
    lasts_us: F64  # [E] how long each event lasts


def _profiles(layout: TraceLayout) -> Iterator[str]:
    """Yield the profile of each rank as text; ranks with equal times differ only in NCCL's kernels."""
    trace = layout.trace
    replayed, timeline = brief_replay(layout)
    coming = Arrivals.of(replayed, timeline)
    roles = [role_layout(events) for events in trace.events]
    shapes = [shape_arguments(events, layout.dtype) for events in trace.events]
    known: dict[tuple[int, bytes, bytes], str] = {}
    for rank in range(trace.n_ranks):
        own = slice(*replayed.first_event[rank : rank + 2].tolist())
        number, came, left = int(trace.role_of_rank[rank]), coming.came[own], timeline.end_fs[replayed.ends[own]]
        times, key = _times(roles[number], came, left), (number, came.tobytes(), left.tobytes())
        if key not in known:
            if len(known) >= _KEPT:
                known.clear()
            known[key] = _texts(
                [*_tracks(), *_host(roles[number], times), *_computations(roles[number], times, shapes[number])]
            )
        head, asked = _head(trace, rank, layout.device.name), _texts(_requests(roles[number], times, layout.dtype, trace, rank))
        yield f'{json.dumps(head)[:-1]}, "traceEvents": [{known[key]}{"," * bool(asked)}{asked}]}}'


def _texts(events: Iterable[Event]) -> str:
    """Return events as JSON text that can stand in the middle of a list."""
    return ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)


def _times(role: RoleLayout, came_fs: I64, left_fs: I64) -> _RankTimes:
    """Return the times of a rank; each call of the host is as late as the events that it launches allow."""
    rows = np.array([call.row for call in role.calls], np.int64)
    least = np.minimum.accumulate(came_fs[rows][::-1])[::-1] / TICKS_PER_US
    ahead = _CALL_US * len(rows)
    calls = least + _CALL_US * np.arange(len(rows))
    return _RankTimes(calls, came_fs / TICKS_PER_US + ahead, (left_fs - came_fs) / TICKS_PER_US)


def _head(trace: Trace, rank: int, device: str) -> Event:
    """Return the fields of a rank's profile besides its list of events."""
    groups = [
        {"pg_name": str(n), "pg_desc": axis_label(group.axis), "pg_size": len(group.ranks), "ranks": list(group.ranks)}
        for n, group in sorted((n, trace.groups[n]) for n in set(trace.group_of[rank]))
    ]
    told = {"backend": "nccl", "rank": rank, "world_size": trace.n_ranks, "pg_count": len(groups), "pg_config": groups}
    properties = [{"id": 0, "name": device}]
    return {"schemaVersion": 1, "deviceProperties": properties, "distributedInfo": told, "displayTimeUnit": "ms"}


def _tracks() -> Iterator[Event]:
    """Yield the events that name the host's process and the device."""
    for pid, label in ((_HOST, "CPU"), (0, "GPU 0")):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "emu"}}
        yield {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": 0, "args": {"labels": label}}


def _span(category: str, name: str, place: tuple[int, int], times: tuple[float, float], args: Event) -> Event:
    start, lasts = (round(float(of), 9) for of in times)
    return {"ph": "X", "cat": category, "name": name, "pid": place[0], "tid": place[1], "ts": start, "dur": lasts, "args": args}


def _host(role: RoleLayout, times: _RankTimes) -> Iterator[Event]:
    """Yield the spans of steps on the host, then the calls of the host."""
    steps = role.events.step[[call.row for call in role.calls]]
    numbers, first = np.unique(steps, return_index=True)
    begins = times.call_us[first].tolist()
    end = float(times.call_us.max(initial=0.0)) + 2 * _CALL_US
    for number, begin, until in zip(numbers.tolist(), begins, [*begins, end][1:], strict=True):
        yield _span("user_annotation", f"ProfilerStep#{number}", _THREAD, (begin, until - begin), {})
    yield from _calls(role, times)


def _calls(role: RoleLayout, times: _RankTimes) -> Iterator[Event]:
    """Yield the calls of the host with their operators and waits; the number of a call is its correlation id."""
    recorded = dict[int, int]()
    for number, (call, start) in enumerate(zip(role.calls, times.call_us.tolist(), strict=True), 1):
        around = operator_arguments(role.events, call.row) if call.what == HostCall.LAUNCH and _asks(role, call.row) else None
        if around is not None:
            yield _span("cpu_op", around[0], _THREAD, (start - _CALL_US / 4, _CALL_US * 3 / 4), around[1])
        yield _span("cuda_runtime", call.what.value, _THREAD, (start, _CALL_US / 4), {"correlation": number})
        if call.what == HostCall.RECORD:
            recorded[call.row] = number
        elif call.what == HostCall.WAIT:
            yield _wait(role, call.row, call.waited, start, (number, recorded[call.waited]))


def _wait(role: RoleLayout, row: int, waited: int, start: float, links: tuple[int, int]) -> Event:
    """Return the wait of one stream for an event of another; `links` are the correlations of the wait and of the record."""
    stream, other = int(role.stream[row]), int(role.stream[waited])
    told = {"cuda_sync_kind": "Stream Wait Event", "device": 0, "context": 1, "stream": stream, "correlation": links[0]}
    args = {**told, "wait_on_stream": other, "wait_on_cuda_event_record_corr_id": links[1], "wait_on_cuda_event_id": links[1]}
    return _span("cuda_sync", "Stream Wait Event", (0, stream), (start, 0.0), args)


def _asks(role: RoleLayout, row: int) -> bool:
    return bool(role.events.group[row] >= 0)


def _computations(role: RoleLayout, times: _RankTimes, shapes: Sequence[Event]) -> Iterator[Event]:
    """Yield the kernels of a rank that compute, each with its work."""
    for number, row in _launches(role, asks=False):
        yield _kernel(role, times, number, row, shapes[row])


def _requests(role: RoleLayout, times: _RankTimes, dtype: str, trace: Trace, rank: int) -> Iterator[Event]:
    """Yield the profile entries of a rank's NCCL kernels, each with the arguments of its request."""
    of_rank = trace.group_of[rank]
    for number, row in _launches(role, asks=True):
        group = of_rank[int(role.events.group[row])]
        yield _kernel(role, times, number, row, request_arguments(role.events, row, dtype, group, trace.groups[group]))


def _launches(role: RoleLayout, *, asks: bool) -> Iterator[tuple[int, int]]:
    """Yield the number of each call that launches a request, or a computation, and the row of that event."""
    for number, call in enumerate(role.calls, 1):
        if call.what == HostCall.LAUNCH and _asks(role, call.row) == asks:
            yield number, call.row


def _kernel(role: RoleLayout, times: _RankTimes, number: int, row: int, told: Event) -> Event:
    stream = int(role.stream[row])
    args = {"device": 0, "context": 1, "stream": stream, "correlation": number, **told}
    when = float(times.start_us[row]), float(times.lasts_us[row])
    return _span("kernel", kernel_name(role.events, row), (0, stream), when, args)
