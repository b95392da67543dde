"""Execution traces of other programs become events in the order of their dependencies, and a step that is timed on a fabric."""

import json

import numpy as np
import pytest

import emu
from emu.errors import InputError
from emu.trace.formats.reading import reading_of
from emu.trace.formats.trace_formats import read_foreign
from emu.trace.trace import Kind
from tests.trace.formats.wire import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BARRIER,
    BROADCAST,
    COLL,
    COMP,
    MEM_LOAD,
    META,
    RECV,
    REDUCE_SCATTER,
    SEND,
    node,
    write,
)

FAST = "switch:n=2,bandwidth=400GB/s,latency=0s"


def step_of(us=(40, 60), size=4_000_000):
    """Two computations beside an all_reduce of the first, and one behind both, out of order in the file."""
    return [
        node(9, "update", COMP, deps=(3, 5), us=20),
        node(1, "first", COMP, us=us[0]),
        node(3, "second", COMP, deps=(1,), us=us[1]),
        node(5, "sum", COLL, deps=(1,), comm_type=ALL_REDUCE, comm_size=size, is_cpu_op=False),
    ]


def two_ranks(folder, *nodes):
    for rank in range(2):
        write(folder, f"run.{rank}.et", *(nodes or step_of()))
    return folder


def waits_of(events):
    """The names of the events that each event waits for, by its name."""
    found = {}
    for row, name in enumerate(events.name):
        found[name] = {events.name[w] for w in events.wait[events.wait_start[row] : events.wait_start[row + 1]]}
    return found


def test_nodes_become_events_in_the_order_of_their_dependencies(tmp_path):
    trace = read_foreign(two_ranks(tmp_path))
    (events,) = trace.events  # both ranks do the same
    assert trace.role_of_rank.tolist() == [0, 0]
    assert events.name == ("first", "second", "all_reduce", "update")
    assert events.kind.tolist() == [Kind.COMPUTE, Kind.COMPUTE, Kind.COLLECTIVE, Kind.COMPUTE]
    assert (events.lasts_s * 1e6).round(6).tolist() == [40, 60, 0, 20]
    assert waits_of(events) == {
        "first": set(),
        "second": {"first"},
        "all_reduce": {"first"},
        "update": {"second", "all_reduce"},
    }
    assert (events.bytes[2], events.count[2]) == (4_000_000, 4_000_000)
    assert [group.ranks for group in trace.groups] == [(0, 1)]


def test_ranks_play_their_roles_in_the_order_of_their_numbers_not_of_the_names_of_files(tmp_path):
    """A list of names has run.10.et before run.2.et."""
    for rank in range(11):
        write(tmp_path, f"run.{rank}.et", *step_of(us=({2: 50, 10: 70}.get(rank, 40), 60)))
    trace = read_foreign(tmp_path)
    assert trace.role_of_rank.tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]


def test_the_step_takes_what_its_dependencies_let_it(tmp_path):
    step = emu.replay(str(two_ranks(tmp_path)), topology=FAST, algorithm="all_reduce=ring")
    assert step.step_time_s == pytest.approx((40 + 60 + 20) * 1e-6)  # 10 us of messages are hidden
    slow = emu.replay(str(tmp_path), topology=FAST.replace("400GB", "40GB"), algorithm="all_reduce=ring")
    assert slow.step_time_s == pytest.approx((40 + 100 + 20) * 1e-6)  # 4 MB at 40 GB/s
    assert "Chakra: 2 ranks on unnamed NPUs, 6 computations on 1 stream, 2 collectives" in slow.text()


@pytest.mark.parametrize("name", ["run.et", "run.0.et", ""])
def test_a_run_is_named_by_its_folder_its_files_or_one_of_them(tmp_path, name):
    two_ranks(tmp_path)
    assert read_foreign(tmp_path / name).n_ranks == (1 if name == "run.0.et" else 2)


@pytest.mark.parametrize(
    ("kind", "operation", "times"),
    [
        (ALL_REDUCE, "all_reduce", 1),
        (ALL_GATHER, "all_gather", 2),
        (REDUCE_SCATTER, "reduce_scatter", 1),
        (8, "reduce_scatter", 1),
        (ALL_TO_ALL, "all_to_all", 1),
        (BROADCAST, "broadcast", 1),
    ],
)
def test_the_size_of_a_collective_is_that_of_its_whole_data(tmp_path, kind, operation, times):
    trace = read_foreign(two_ranks(tmp_path, node(0, "call", COLL, comm_type=kind, comm_size=1000)))
    (events,) = trace.events
    assert (events.name, events.bytes.tolist()) == ((operation,), [1000 * times])


def test_a_barrier_is_an_all_reduce_of_one_element(tmp_path):
    (events,) = read_foreign(two_ranks(tmp_path, node(0, "wait", COLL, comm_type=BARRIER))).events
    assert (events.name, events.count.tolist()) == (("all_reduce",), [1])
    assert "0 computations on 0 streams, 2 collectives" in emu.replay(str(tmp_path), topology=FAST).text()


def test_messages_go_from_rank_to_rank(tmp_path):
    write(tmp_path, "run.0.et", node(0, "give", SEND, comm_dst=1, comm_size=500, comm_tag=3, us=0))
    write(tmp_path, "run.1.et", node(0, "take", RECV, comm_src=0, comm_size=500, comm_tag=3), node(1, "use", COMP, (0,), us=7))
    trace = read_foreign(tmp_path)
    first, second = trace.events
    assert (first.kind[0], first.root[0], first.tag[0], first.bytes[0]) == (Kind.SEND, 1, 3, 500)
    assert (second.kind[0], second.root[0]) == (Kind.RECV, 0)
    time_s = emu.replay(trace, topology="switch:n=2,bandwidth=1MB/s,latency=0s").step_time_s
    assert time_s == pytest.approx(500e-6 + 7e-6)


def test_a_message_begins_when_it_is_sent(tmp_path):
    """A ring in which every rank receives behind its own send stands still where messages are not buffered."""
    for rank in range(3):
        send = node(0, "give", SEND, comm_dst=(rank + 1) % 3, comm_size=500)
        nodes = [node(1, "take", RECV, (0, 3), comm_src=(rank - 1) % 3, comm_size=500), node(2, "use", COMP, (1,), us=7)]
        write(tmp_path, f"run.{rank}.et", send, *nodes, node(3, "late", COMP, us=900))
    time_s = emu.replay(str(tmp_path), topology="switch:n=3,bandwidth=1MB/s,latency=0s").step_time_s
    assert time_s == pytest.approx(900e-6 + 7e-6)  # the message came meanwhile, and `use` waits for `late`, too


GROUPS = {"1": [0, 1], "2": [2, 3], "7": [0, 2], "8": [1, 3]}


def test_process_groups_come_from_the_file_beside_the_trace(tmp_path):
    for rank in range(4):
        calls = [(str(1 + rank // 2), "in"), (str(7 + rank % 2), "across")]
        nodes = [node(i, word, COLL, comm_type=ALL_REDUCE, comm_size=8, pg_name=pg) for i, (pg, word) in enumerate(calls)]
        write(tmp_path, f"run.{rank}.et", *nodes)
    (tmp_path / "comm_groups.json").write_text(json.dumps(GROUPS))
    trace = read_foreign(tmp_path)
    assert {group.ranks for group in trace.groups} == set(map(tuple, GROUPS.values()))
    assert len(trace.events) == 1  # every rank calls its first group, then its second
    assert [trace.groups[i].ranks for i in trace.group_of[3]] == [(2, 3), (1, 3)]


def test_process_groups_come_from_the_metadata_of_pytorch(tmp_path):
    told = json.dumps([{"pg_name": "4", "ranks": [1, 0]}, {"pg_name": "5", "ranks": []}])
    nodes = [node(0, "## process_group:init ##", META, inputs=f"['{told}']")]
    nodes += [node(i, "call", COLL, deps=(0,), comm_type=ALL_REDUCE, comm_size=8, pg_name=str(3 + i)) for i in (1, 2)]
    trace = read_foreign(two_ranks(tmp_path, *nodes))
    assert [group.ranks for group in trace.groups] == [(1, 0), (0, 1)]
    assert trace.events[0].kind.tolist() == [Kind.MARK, Kind.COLLECTIVE, Kind.COLLECTIVE]


def test_a_group_of_all_ranks_tells_their_number_by_its_size(tmp_path):
    """PyTorch lists no ranks of such a group: two files of a job of eight are no job of two."""
    told = json.dumps([{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 8, "group_count": 1}])
    nodes = [node(0, "## process_group:init ##", META, inputs=f"['{told}']")]
    nodes += [node(1, "call", COLL, deps=(0,), comm_type=ALL_REDUCE, comm_size=8, pg_name="0")]
    folder = two_ranks(tmp_path, *nodes)
    with pytest.raises(InputError, match=r"has 2 of 8 ranks, but not 2, 3, 4, 5, 6, 7; add their files, or .* --fill-ranks$"):
        read_foreign(folder)
    trace = read_foreign(folder, fill_ranks=True)
    assert (trace.n_ranks, [group.ranks for group in trace.groups]) == (8, [tuple(range(8))])


HOST = (
    node(0, "aten::mm", COMP, us=100, is_cpu_op=True, tid=1),
    node(1, "gemm", COMP, deps=(0,), us=30, is_cpu_op=False, stream=7),
    node(2, "c10d::allreduce_", COLL, deps=(0,), us=50, is_cpu_op=True, tid=1),
    node(3, "nccl", COLL, deps=(1, 2), us=9, is_cpu_op=False, stream=14, comm_type=ALL_REDUCE, comm_size=8),
    node(4, "gemm2", COMP, deps=(0,), us=30, is_cpu_op=False, stream=8),
)


@pytest.mark.parametrize(("asked", "time_us"), [(False, 30), (True, 150)])
def test_operators_of_the_host_take_time_when_they_are_asked_for(tmp_path, asked, time_us):
    trace = read_foreign(two_ranks(tmp_path, *HOST), host_time=asked)
    (events,) = trace.events
    assert events.kind.tolist() == [Kind.MARK, Kind.COMPUTE, Kind.MARK, Kind.COLLECTIVE, Kind.COMPUTE]
    assert len(set(events.stream.tolist())) == 4  # two of the device, its requests, and a thread
    streams = dict(zip(events.name, events.stream.tolist(), strict=True))
    assert (streams["gemm"], streams["gemm2"]) == (0, 1)  # those of the device come first, in the order of their numbers
    time_s = emu.replay(trace, topology="switch:n=2,bandwidth=400TB/s,latency=0s").step_time_s
    assert time_s == pytest.approx(time_us * 1e-6, abs=1e-9)
    assert any("--host-time keeps it" in line for line in reading_of(trace).lines) is not asked
    assert reading_of(trace).collective_s == pytest.approx(18e-6)


def test_control_dependencies_order_nodes_where_no_data_dependency_contradicts_them(tmp_path):
    both = [node(2, "caller", COMP, us=5), node(1, "callee", COMP, callers=(2, 99), us=5)]
    (events,) = (trace := read_foreign(two_ranks(tmp_path, *both, node(3, "sum", COLL, comm_type=0, comm_size=8)))).events
    assert waits_of(events)["callee"] == {"caller"}
    assert reading_of(trace).left_out == {"control dependencies, on nodes that no file has or against data dependencies": 2}
    against = [node(2, "caller", COMP, deps=(1,), us=5), both[1]]
    (events,) = read_foreign(two_ranks(tmp_path, *against)).events
    assert waits_of(events) == {"callee": set(), "caller": {"callee"}}


@pytest.mark.parametrize("us", [0, 50])
def test_computations_without_durations_are_timed_by_the_device(tmp_path, us):
    """The file may say how long a collective took: this is left out then, and told."""
    nodes = [node(0, "load", MEM_LOAD, tensor_size=10**6), node(1, "mm", COMP, deps=(0,), num_ops=10**12, tensor_size=10**6)]
    trace = read_foreign(two_ranks(tmp_path, *nodes, node(2, "sum", COLL, deps=(1,), us=us, comm_type=0, comm_size=8)))
    (events,) = trace.events
    assert len(events.lasts_s) == 0
    assert (events.flops.tolist(), events.bytes.tolist()) == ([0, 1e12, 0], [10**6, 10**6, 8])
    h100, a100 = (emu.replay(trace, topology=FAST, device=device).step_time_s for device in ("h100", "a100-80g"))
    assert 1e-3 < h100 < a100 < 1e-2
    told = {"durations of requests, as computations have none": 2} if us else {}
    assert (reading_of(trace).left_out, reading_of(trace).collective_s) == (told, 0)


def test_ranks_without_a_file_do_what_equal_ranks_do(tmp_path):
    (tmp_path / "run.groups.json").write_text(json.dumps({"1": [0, 1], "2": [2, 3]}))
    write(tmp_path, "run.0.et", node(0, "sum", COLL, comm_type=ALL_REDUCE, comm_size=8, pg_name="1"))
    trace = read_foreign(tmp_path, fill_ranks=True)
    assert [group.ranks for group in trace.groups] == [(0, 1), (2, 3)]
    assert trace.role_of_rank.tolist() == [0] * 4
    assert reading_of(trace).filled_ranks == (1, 2, 3)


def test_a_rank_without_a_file_does_what_a_member_of_its_collectives_does(tmp_path):
    """Ranks 0 and 2 add up, and so do ranks 1 and 3, which compute something else."""
    (tmp_path / "run.groups.json").write_text(json.dumps({"1": [0, 2], "2": [1, 3]}))
    for rank in range(2):
        works = node(0, f"work of {rank}", COMP, us=10 + rank)
        write(tmp_path, f"run.{rank}.et", works, node(1, "sum", COLL, (0,), comm_type=0, comm_size=8, pg_name=f"{rank + 1}"))
    trace = read_foreign(tmp_path, fill_ranks=True)
    assert trace.role_of_rank.tolist() == [0, 1, 0, 1]


def test_the_measured_step_is_told_where_nodes_have_starts(tmp_path):
    nodes = [node(0, "mm", COMP, us=40, start=1000), node(1, "sum", COLL, (0,), us=60, start=1040, comm_type=0, comm_size=8)]
    trace = read_foreign(two_ranks(tmp_path, *nodes))
    assert reading_of(trace).step_times_s == pytest.approx((100e-6,))
    assert "measured        100 us" in emu.replay(trace, topology=FAST).text()


def test_a_run_of_operators_of_the_host_alone_computes_on_it(tmp_path):
    nodes = [
        node(0, "aten::mm", COMP, us=40, is_cpu_op=True),
        node(1, "sum", COLL, (0,), is_cpu_op=True, comm_type=0, comm_size=8),
    ]
    (events,) = read_foreign(two_ranks(tmp_path, *nodes)).events
    assert events.kind.tolist() == [Kind.COMPUTE, Kind.COLLECTIVE]
    assert np.isclose(events.lasts_s[0], 40e-6)


def test_what_is_told_of_ranks_that_differ_is_of_all_of_them_the_streams_of_the_busiest_and_the_time_of_their_mean(tmp_path):
    """Rank 0 takes 100 us, and rank 1 takes 200; a node without a start is of no time that anybody measured."""
    sums = {"comm_type": ALL_REDUCE, "comm_size": 8, "is_cpu_op": False}
    mine = [
        node(0, "mm", COMP, us=40, start=1000, is_cpu_op=False, stream=7),
        node(1, "sum", COLL, (0,), us=60, start=1040, **sums),
    ]
    theirs = [
        node(0, "mm", COMP, us=30, start=5000, is_cpu_op=False, stream=7),
        node(1, "mul", COMP, us=190, start=5010, is_cpu_op=False, stream=20),
        node(2, "add", COMP, us=20, is_cpu_op=False, stream=3, callers=(77,)),
        node(3, "sum", COLL, (0, 2), us=50, start=5100, callers=(78, 79), **sums),
    ]
    for rank, nodes in enumerate((mine, theirs)):
        write(tmp_path, f"run.{rank}.et", *nodes)
    told = reading_of(read_foreign(tmp_path))
    assert told.step_times_s == pytest.approx((150e-6,))
    assert (told.ranks, told.computations, told.streams, told.collectives, told.host_time) == (2, 4, 3, 2, True)
    assert told.collective_s == pytest.approx(110e-6)
    assert list(told.left_out.values()) == [3]
