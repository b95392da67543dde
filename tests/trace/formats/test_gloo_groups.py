"""The groups of gloo's requests, from the threads that ran them: hand-made profiles of four ranks in a grid."""

import pytest

from emu.errors import InputError
from emu.trace.formats.trace_formats import read_foreign
from tests.trace.formats.profiles import HOST, span, step, write

TP, DP = ([0, 1], [2, 3]), ([0, 2], [1, 3])


def request(what, ts, dur, thread, elements=8):
    """Return an operator that asks, and what gloo runs for it on a thread of its own."""
    operator = {"Input Dims": [[[elements]]], "Input type": ["TensorList"], "Concrete Inputs": [""]}
    ran = {"Input Dims": [[elements]], "Input type": ["float"]}
    return [
        span("cpu_op", f"c10d::{what.replace('_', '')}_", ts, 1, HOST, **operator),
        span("user_annotation", f"gloo:{what}", ts + 0.5, dur, thread, **ran),
    ]


def four_ranks(folder, late=10.0, world_runs=False, **sizes):
    """Write profiles in which each rank asks its rows twice, then its columns; rows begin at other times.

    Args:
        folder: The folder.
        late: How much later the second row asks.
        world_runs: Whether all ranks ask together at the end.
        sizes: The elements of the request of columns, as `dp`.
    """
    for rank in range(4):
        row, column = rank // 2, rank % 2
        groups = [("default_pg", [0, 1, 2, 3]), ("mesh_tp", TP[row]), ("mesh_dp", DP[column])]
        told = [{"pg_name": str(n), "pg_desc": label, "ranks": ranks} for n, (label, ranks) in enumerate(groups)]
        threads = [1000 * (rank + 1) + 10 * n for n in range(3)]  # of each group, the first of two
        at = late * row
        events = [
            step(1, 0, 400),
            span("cpu_op", "aten::mm", 1, 2, HOST),
            *request("all_reduce", at + 10, 4, threads[1]),
            *request("all_reduce", at + 16, 4, threads[1] + 1),
            *request("all_reduce", 100 + 40 * column, 5, threads[2], sizes.get("dp", 8)),
            *(request("all_reduce", 200, 5, threads[0]) if world_runs else []),
            span("cpu_op", "aten::add", 300, 2, HOST),
        ]
        head = {"rank": rank, "world_size": 4, "pg_config": told}
        write(folder, f"rank{rank}.json", {"distributedInfo": head, "traceEvents": events})
    return folder


def axes_of(trace, rank):
    events = trace.events_of(rank)
    return [trace.groups[trace.group_of[rank][number]].axis for number in events.group[events.group >= 0].tolist()]


def test_where_all_groups_run_threads_stand_in_their_order(tmp_path):
    trace = read_foreign(four_ranks(tmp_path, late=0.0, world_runs=True))
    for rank in range(4):
        assert axes_of(trace, rank) == ["tp", "tp", "dp", "world"]
    assert {(group.axis, group.ranks) for group in trace.groups} == {
        ("world", (0, 1, 2, 3)), *(("tp", tuple(each)) for each in TP), *(("dp", tuple(each)) for each in DP),
    }  # fmt: skip


def test_a_group_that_runs_nothing_is_told_by_requests_that_do_not_meet(tmp_path):
    """Rows begin at other times, and so do columns: neither can be requests of all ranks."""
    trace = read_foreign(four_ranks(tmp_path))
    for rank in range(4):
        assert axes_of(trace, rank) == ["tp", "tp", "dp"]


def test_threads_that_may_be_of_several_groups_are_refused(tmp_path):
    """Rows begin at one time, so that their requests may be those of all ranks."""
    with pytest.raises(InputError, match=r"of which of 3 groups the requests of 'rank0.json' are, and threads do not tell"):
        read_foreign(four_ranks(tmp_path, late=0.0))


def test_threads_whose_numbers_began_anew_are_those_made_last(tmp_path):
    """Two threads with consecutive numbers are of one group; a number below that of the process is of the group after it."""
    told = [{"pg_name": str(n), "pg_desc": label, "ranks": [0]} for n, label in enumerate(("default_pg", "mesh_tp"))]
    asked = [request("all_reduce", 10 * (turn + 1), 4, thread) for turn, thread in enumerate((901, 100, 900))]
    events = [{**each, "pid": 500} for each in (step(1, 0, 400), *(each for several in asked for each in several))]
    head = {"rank": 0, "world_size": 1, "pg_config": told}
    trace = read_foreign(write(tmp_path, "rank0.json", {"distributedInfo": head, "traceEvents": events}))
    assert axes_of(trace, 0) == ["world", "tp", "world"]
