"""Where a task of a schedule is refused, it is called by the very row that it comes from."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.algorithm import compact_schedule
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.fabric.lower import FabricJob, lower
from emu.fabric.lowering.graph_columns import message_name
from emu.fabric.run import lower_alone, run_named, time_alone
from emu.topology.builders.wiring import star
from emu.topology.catalogue import build_topology
from emu.topology.topology import Circuits

HOUR = 3600 * 10**15  # ticks
MIXED = Schedule.build(
    3,
    2,
    [Sends([0, 1], [1, 2], [0, 1]), Sends(2, 2, 1, dst_slot=0), Sends([2, 3], [3, 0], 0, channel=1)],
    helpers=1,
)


def test_every_message_is_called_by_its_row():
    piece = lower(FabricJob(MIXED, np.full(2, 100), star("star", 4, 1e9, 0), np.arange(4)))
    names = [message_name(MIXED, piece.graph, task) for task in range(len(piece.receiver))]
    assert sorted(names) == [
        "the copy within rank 2 in round 1 (row 2)",
        "the message from helper 0 to rank 0 in round 2 (row 4)",
        "the message from rank 0 to rank 1 in round 0 (row 0)",
        "the message from rank 1 to rank 2 in round 0 (row 1)",
        "the message from rank 2 to helper 0 in round 2 (row 3)",
    ]


def test_a_delay_a_join_and_a_turn_are_called_what_they_are():
    turning = Circuits(lambda src, dst, _: (np.zeros((len(src), 1), np.int64), dst[:, None]), 5)
    schedule = Schedule.build(3, 1, [Sends(0, 1, 0), Sends(0, 2, 0)])
    topology = replace(star("star", 3, 1e9, 0), circuits=turning)
    piece = lower(FabricJob(schedule, np.full(1, 100), topology, np.arange(3), send_overhead_fs=7))
    names = [message_name(schedule, piece.graph, task) for task in range(piece.graph.n_tasks)]
    assert names[2] == "the send overhead of the message from rank 0 to rank 1 in round 0 (row 0)"
    assert names[4] == "a turn of an optical switch (task 4)"
    assert names[5:] == [f"task {task}, where messages meet," for task in (5, 6, 7)]


@pytest.mark.parametrize("line", ["torus:dims=2x3", "switch:n=6"])
@pytest.mark.parametrize("name", ["all_reduce/ring", "all_to_all/at-once", "all_gather/hyperx-direct"])
def test_a_message_of_a_class_is_called_by_one_that_the_schedule_has(name, line):
    plan = compact_schedule(*name.split("/"), 6, 0, (2, 3))
    topology = build_topology(f"{line},bandwidth=1GB/s,latency=1us")
    found = lower_alone(FabricJob(plan, np.full(plan.n_slots, 10), topology, np.arange(6)))
    full = plan.expand()
    rows = zip(full.src.tolist(), full.dst.tolist(), full.round_column().tolist(), strict=True)
    known = {f"the message from rank {src} to rank {dst} in round {when} " for src, dst, when in rows}
    sends = np.flatnonzero(found.graph.owner >= 0)
    assert len(sends)
    for task in sends.tolist():
        said, _, row = message_name(plan, found.graph, task).partition("(")
        assert said in known
        assert row == f"row {found.graph.origin[task]} of rank 0's)"


def test_the_message_that_is_too_late_is_the_first_that_is():
    chain = Schedule.build(4, 1, [Sends(i, i + 1, 0) for i in range(3)])
    topology = star("star", 4, 1e9, HOUR // 2)  # an hour a message, and the clock ends in the third
    with pytest.raises(InputError) as error:
        time_alone(FabricJob(chain, np.full(1, 1000), topology, np.arange(4), name="broadcast chain"))
    assert str(error.value) == (
        "broadcast chain: the message from rank 2 to rank 3 in round 2 (row 2) starts at 7200 s, takes 1000 B over links of "
        "1 GB/s, which it may share, and 3600 s of latency, and so ends after 9223 s, the end of the clock (2**63 "
        "ticks of 1 fs); send less, or over faster links"
    )


def test_one_of_a_class_that_is_too_late_is_a_message_of_the_whole():
    plan = compact_schedule("all_reduce", "ring", 4)
    topology = build_topology("ring:n=4,bandwidth=1GB/s,latency=3600s")
    with pytest.raises(
        InputError, match=r"schedule: the message from rank 0 to rank 1 in round 2 \(row 2 of rank 0's\) starts at"
    ):
        time_alone(FabricJob(plan, np.full(4, 1000), topology, np.arange(4)))


def test_what_a_schedule_was_lowered_to_wrongly_is_told_by_its_row():
    piece = lower(FabricJob(MIXED, np.full(2, 100), star("star", 4, 1e9, 0), np.arange(4)))
    alpha = np.where(piece.graph.owner == 3, -1, piece.graph.alpha_fs)
    with pytest.raises(InputError) as error:
        run_named(replace(piece.graph, alpha_fs=alpha), MIXED, "mixed")
    assert (
        str(error.value)
        == "mixed: alpha_fs of the message from helper 0 to rank 0 in round 2 (row 4) must be 0 or more, got -1"
    )


@pytest.mark.parametrize("by_rank_0", [True, False])
def test_latencies_of_a_route_beyond_the_clock_are_refused_instead_of_wrapping(by_rank_0):
    plan = compact_schedule("all_reduce", "ring", 4)
    topology = build_topology("switch:n=4,bandwidth=1GB/s,latency=5000s")
    with pytest.raises(InputError) as error:
        time_alone(FabricJob(plan if by_rank_0 else plan.expand(), np.full(4, 8), topology, np.arange(4)))
    assert str(error.value) == (
        f"{topology.name}: latencies of the route from node 0 to node 1 must come to less than 9223 s, the end of the clock, "
        "got 10000 s; take shorter ones"
    )


def test_slots_that_cannot_be_added_are_refused():
    two = Schedule.build(2, 2, [Sends(0, 1, [0, 1])])
    with pytest.raises(
        InputError, match=r"schedule: its 2 slots hold more than 2\*\*62 B \(4 EiB\) together; take a smaller size"
    ):
        lower(FabricJob(two, np.full(2, 2**61 + 2**10), star("star", 2, 1e9, 0), np.arange(2)))
    largest = lower(FabricJob(two, np.full(2, 2**61), star("star", 2, 1e9, 0), np.arange(2)))
    assert largest.graph.size_bytes.max() == 2**62
