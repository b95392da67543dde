"""The file for Perfetto says what the lanes say, and calls links by the names of what they join."""

import json
from dataclasses import replace

from emu.fabric.run import run_graph
from emu.trace.trace import Group
from launch.show.lanes import lanes, write_perfetto
from tests.trace.laid import MS_OF_FLOATS, Words, replayed, star_of, trace_of

MS = 10**12  # ticks


def _lanes(topology):
    """Two ranks: 3 ms of computation, an all_reduce of 4 ms, then 1 ms; rank 1 computes 1 ms less at first."""
    words = Words()
    roles = [
        words.events(words.compute(ms), words.collective(4 * MS_OF_FLOATS), words.compute(1, waits=[1]), words.mark())
        for ms in (3, 2)
    ]
    trace = trace_of(*roles, role_of_rank=(0, 1), groups=(Group("tp", (0, 1)),))
    laid = replayed(trace, topology)
    return list(lanes(trace, laid, run_graph(laid.graph), topology))


def test_links_are_called_by_what_they_join():
    own = replace(star_of(2), names=("left", "right", "hub").__getitem__)
    for topology, (a, b, hub) in ((star_of(2), ("NPU 0", "NPU 1", "switch 2")), (own, ("left", "right", "hub"))):
        ends = {lane.stream.split(": ")[1] for lane in _lanes(topology) if lane.owner == "links"}
        assert ends == {f"{a} to {hub}", f"{b} to {hub}", f"{hub} to {a}", f"{hub} to {b}"}


def test_an_owner_is_a_process_a_lane_a_thread_and_times_are_microseconds(tmp_path):
    found = _lanes(star_of(2))
    write_perfetto(found, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    process = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    thread = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(process.values()) == ["rank 0", "rank 1", "links"]
    told = [
        (process[e["pid"]], thread[e["pid"], e["tid"]], e["name"], e["ts"] / 1e3, (e["ts"] + e["dur"]) / 1e3)
        for e in events
        if e["ph"] == "X"
    ]
    assert told[:2] == [("rank 0", "compute", "mm", 0, 3), ("rank 0", "compute", "mm", 7, 8)]
    assert told == [
        (lane.owner, lane.stream, name, start / MS, end / MS)
        for lane in found
        for name, start, end in zip(lane.names, lane.start.tolist(), lane.end.tolist(), strict=True)
    ]
