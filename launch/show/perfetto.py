"""A timeline as a file for ui.perfetto.dev and chrome://tracing: a track for each rank and stream, and for each busy link.

Source of the format: "Trace Event Format", Google.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from emu.files import write_file
from launch.show.lanes import Lane

_TICKS_PER_US = 10**9


def write_perfetto(lanes: Iterable[Lane], path: Path) -> None:
    """Write the lanes as trace events, with times in microseconds.

    Raises:
        WriteError: the file cannot be written.
    """
    told = json.dumps({"displayTimeUnit": "ns", "traceEvents": list(_events(lanes))}, separators=(",", ":"))
    write_file("--timeline", path, told.encode())


def _events(lanes: Iterable[Lane]) -> Iterator[dict[str, object]]:
    """Yield the trace events of all lanes: the names of tracks, and the spans on them."""
    process: dict[str, int] = {}
    for thread, lane in enumerate(lanes):
        if lane.owner not in process:
            process[lane.owner] = len(process)
            yield _name_event("process", process[lane.owner], thread, lane.owner)
        pid = process[lane.owner]
        yield _name_event("thread", pid, thread, lane.stream)
        for name, start, end in zip(lane.names, lane.start.tolist(), lane.end.tolist(), strict=True):
            ts, dur = start / _TICKS_PER_US, (end - start) / _TICKS_PER_US
            yield {"ph": "X", "name": name, "pid": pid, "tid": thread, "ts": ts, "dur": dur}


def _name_event(what: str, pid: int, tid: int, name: str) -> dict[str, object]:
    """Return the trace event that names a process or a thread."""
    return {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": name}}
