"""The payload between ranks, here as threads; between processes it is in tests/launch/ray/test_cluster.py."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from emu.cluster import cluster
from emu.cluster.threads.threads import ThreadRanks
from emu.collective.algorithm import algorithm
from emu.collective.choice import Choice, Request
from emu.collective.operation import OPERATIONS, operation
from emu.study.measure.bench import bench
from emu.study.measure.move import CollectiveMove, MoveResult, TensorMover, move
from emu.study.measure.request import BenchRequest
from emu.study.prove.execution import ExecutionRow, verify_execution
from emu.topology.catalogue import build_topology


def run(n_ranks, choice, program):
    return ThreadRanks(n_ranks, choice).run(program)


@pytest.mark.parametrize("asked", OPERATIONS)
def test_every_operation_moves_its_payload(asked):
    for n, count, dtype in ((1, 5, "float32"), (3, 1000, "int64"), (5, 7, "bfloat16")):
        whole = count + -count % operation(asked, n).count_step
        assert move(run, Choice(), CollectiveMove(asked, n, whole, dtype)).wrong == 0


def test_a_rank_that_gets_something_else_is_counted():
    def spoilt(n_ranks, choice, program):
        def with_a_fault(rank):
            moved = program(rank)
            return replace(moved, wrong=moved.wrong + (rank == 1))

        return run(n_ranks, choice, with_a_fault)

    assert move(spoilt, Choice(), CollectiveMove("all_reduce", 3, 10)).wrong == 1


def test_an_output_is_held_against_the_definition():
    what = CollectiveMove("all_gather", 3, 9, keep=True)

    def silent(rank):
        return MoveResult(what.payload(rank).wrong(), 0.0)

    assert [silent(rank).wrong for rank in range(3)] == [9] * 3


def test_memory_is_marked_where_a_result_is_checked_and_left_as_it_is_for_programs(monkeypatch):
    marked, done = [], cluster.execute
    monkeypatch.setattr(cluster, "execute", lambda *args, **how: (marked.append(how["fill_scratch"]), done(*args, **how)))
    move(run, Choice(), CollectiveMove("broadcast", 3, 10))
    assert marked == [False, True]  # a barrier, and the payload
    run(2, Choice(), lambda _: dist.all_reduce(torch.ones(4)))
    assert marked[2:] == [False]


def test_every_algorithm_executed_is_right_and_as_in_one_process():
    named = [("all_reduce", "ring"), ("all_reduce", "direct"), ("broadcast", "binomial"), ("combine", "hierarchical")]
    found = [algorithm(*key) for key in named]
    rows = list(verify_execution(run, found, (1, 4)))
    assert all(row.ok for row in rows)
    assert {(row.operation, row.algorithm, row.ranks, row.roots) for row in rows} == {
        ("all_reduce", "ring", 1, (0,)),
        ("all_reduce", "ring", 4, (0,)),
        ("all_reduce", "direct", 1, (0,)),
        ("all_reduce", "direct", 4, (0,)),
        ("broadcast", "binomial", 1, (0,)),
        ("broadcast", "binomial", 4, (0, 2, 3)),
        ("combine", "hierarchical", 4, (0,)),
    }


def test_an_output_unlike_one_process_is_counted():
    def spoilt(n_ranks, choice, program):
        def with_a_fault(rank):
            moved = program(rank)
            if rank == 2:
                moved[0].output[0] += 1
            return moved

        return run(n_ranks, choice, with_a_fault)

    (row,) = verify_execution(spoilt, [algorithm("all_reduce", "ring")], (3,))
    assert (row.wrong, row.differ, row.ok) == (0, 1, False)


def test_only_a_row_without_a_wrong_element_is_ok():
    assert ExecutionRow("all_reduce", "ring", 2, (0,), 0, 0, 0.0).ok
    assert not ExecutionRow("all_reduce", "ring", 2, (0,), 1, 0, 0.0).ok


def test_bench_times_alike_wherever_its_data_moves():
    topology = build_topology("switch:n=4,bandwidth=50GB/s,latency=500ns")
    request = BenchRequest("reduce_scatter", "ring", (4096, 65536))
    here, between = (list(bench(topology, request, TensorMover(where))) for where in (None, run))
    assert [row.wrong for row in between] == [0, 0]
    assert [row.time_s for row in between] == [row.time_s for row in here]
    assert all(row.wall_execute_s is not None for row in between)


def test_ranks_elsewhere_run_the_schedule_that_is_timed():
    served = []

    def seen(n_ranks, choice, program):
        served.append(choice.algorithm_for(Request("all_reduce", tuple(range(n_ranks)))))
        return run(n_ranks, choice, program)

    topology = build_topology("torus:dims=4x2,bandwidth=50GB/s,latency=500ns")
    for dims, shape in (((), (4, 2)), ((2, 4), (2, 4))):
        (row,) = bench(topology, BenchRequest("all_reduce", "torus-buckets", (4096,), dims=dims), TensorMover(seen))
        assert (row.wrong, row.shape, served.pop()) == (0, shape, ("torus-buckets", shape))
