"""A timeline as a file that ui.perfetto.dev and chrome://tracing open: a track a rank and stream, one a busy link.

Source of the format: "Trace Event Format", Google.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from emu.files import write_file
from launch.show.spans import Lane

_TICKS_PER_US = 10**9


def write_perfetto(lanes: Iterable[Lane], path: Path) -> None:
    """Write the lanes as trace events, in microseconds.

    Raises:
        WriteError: the file cannot be written.
    """
    told = json.dumps({"displayTimeUnit": "ns", "traceEvents": list(_events(lanes))}, separators=(",", ":"))
    write_file("--timeline", path, told.encode())


def _events(lanes: Iterable[Lane]) -> Iterator[dict[str, object]]:
    process: dict[str, int] = {}
    for thread, lane in enumerate(lanes):
        if lane.owner not in process:
            process[lane.owner] = len(process)
            yield _named("process", process[lane.owner], thread, lane.owner)
        pid = process[lane.owner]
        yield _named("thread", pid, thread, lane.stream)
        for name, start, end in zip(lane.names, lane.start.tolist(), lane.end.tolist(), strict=True):
            ts, dur = start / _TICKS_PER_US, (end - start) / _TICKS_PER_US
            yield {"ph": "X", "name": name, "pid": pid, "tid": thread, "ts": ts, "dur": dur}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": name}}
