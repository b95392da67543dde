"""The order of host events of gloo's profiles: which thread waits for which request. Hand-made profiles of one rank."""

import pytest

from emu.trace.formats.kineto.profiled_events import HOST as HOST_TIME
from emu.trace.formats.kineto.profiled_trace import read_kineto
from tests.trace.formats.profiles import HOST, span, step, write
from tests.trace.formats.test_gloo_groups import request

OTHER = HOST + 1  # a second thread of the host


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
