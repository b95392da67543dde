"""A schedule by the rows of rank 0 against the same one by all rows."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.algorithm import compact_schedule
from emu.collective.operation import divide_blocks, operation
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule, Sends
from emu.errors import InputError
from emu.fabric.lowering.classes import invariant
from emu.fabric.packet_fabric import packet_fabric
from emu.study.packet_timing import time_packets
from emu.study.timing import CollectiveJob, even_counts, spread_collective, time_bound, time_collective
from emu.topology.catalogue import build_topology
from emu.topology.placement import place
from emu.topology.topology import Circuits

LINES = ("torus:dims=2x4,bandwidth=50GB/s,latency=1us", "switch:n=8,bandwidth=50GB/s,latency=1us")
NAMES = (
    "all_reduce/ring",
    "all_gather/torus-buckets",
    "all_to_all/at-once",
    "all_to_all/torus",
    "reduce_scatter/hyperx-direct",
)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [8**2 * 100, 12345])
def test_all_rows_take_as_long_and_carry_as_much(line, name, count):
    topology, (asked, algorithm) = build_topology(line), name.split("/")
    op, plan = operation(asked, 8), compact_schedule(asked, algorithm, 8, 0, (2, 4))
    job = (count, 4, topology, place(topology, 8))
    by_rank_0, by_all = (time_collective(CollectiveJob(op, each, *job)).end_s for each in (plan, plan.expand()))
    assert by_rank_0 == by_all
    by_rank_0, by_all = (time_bound(CollectiveJob(op, each, *job)).busiest_fs for each in (plan, plan.expand()))
    assert by_rank_0 == pytest.approx(by_all, rel=1e-12)


def test_more_rows_than_are_ever_stored_are_timed():
    n, count = 8192, 8192 * 250
    topology = build_topology("torus:dims=128x64,bandwidth=50GB/s,latency=500ns")
    op, plan = operation("all_to_all", n), compact_schedule("all_to_all", "at-once", n)
    job = CollectiveJob(op, plan, count, 4, topology, place(topology, n))
    assert plan.n_rows * n > MAX_ROWS
    timeline = time_collective(job)
    assert timeline.how == "quotient"
    # Ties go up on an even channel: 64 * 65 / 2 pairs of a line cross a link of X upwards, from each of 64 places along Y.
    busiest = 2080 * 64 * 1000
    assert time_bound(job).end_fs == pytest.approx(busiest / 50e9 * 1e15)
    assert int(timeline.end_fs.max()) >= time_bound(job).end_fs * (1 - 1e-9)
    assert np.isfinite(timeline.end_s)


def large(count, **more):
    """A ring of so many ranks that not every row can be stored."""
    n, topology = 8192, build_topology("switch:n=8192,bandwidth=50GB/s,latency=1us")
    plan = compact_schedule("all_reduce", "ring", n)
    assert plan.n_rows * n > MAX_ROWS
    return CollectiveJob(
        operation("all_reduce", n), plan, count, 4, replace(topology, **more), place(topology, n), name="all_reduce ring"
    )


def test_a_size_that_does_not_cut_evenly_is_refused_with_the_nearest_that_do():
    uneven = large(2**20 + 5)
    with pytest.raises(InputError) as error:
        time_collective(uneven)
    assert str(error.value) == (
        "all_reduce ring: 4194324 B do not cut evenly among 8192 ranks, so that each of 134201344 rows must be timed, at most "
        "2**24; take 4194304 B or 4227072 B"
    )
    for size in (4194304, 4227072):
        assert time_collective(uneven._replace(elements=size // 4)).how == "quotient"
    with pytest.raises(InputError, match=r"4194324 B do not cut evenly among 8192 ranks, .* take 4194304 B or 4227072 B$"):
        time_bound(uneven._replace(name=""))


def test_below_the_least_even_size_only_the_one_above_is_named():
    with pytest.raises(InputError, match=r"20 B do not cut evenly among 8192 ranks, .* take 32768 B$"):
        time_collective(large(5))


def test_an_overhead_switches_that_turn_and_perturbed_starts_are_said_to_need_every_row():
    turning = Circuits(lambda src, dst, _: (np.full((len(src), 1), -1), dst[:, None]), 5)
    with pytest.raises(
        RowsError, match=r"spends its overhead .* each of 134201344 rows .* at most 2\*\*24; leave it out, or take"
    ):
        time_collective(large(8192)._replace(send_overhead_fs=1))
    with pytest.raises(RowsError, match=r"optical switches of switch:n=8192.* turn, .* 134201344 rows .*; take fewer ranks"):
        time_collective(large(8192, circuits=turning))
    with pytest.raises(
        RowsError, match=r"perturbed starts are not symmetric, .* 134201344 rows .*; leave the perturbations out"
    ):
        spread_collective(large(8192), 2)
    with pytest.raises(RowsError, match=r"packets of every rank are simulated, .* 134201344 rows .*; leave the packets out"):
        time_packets(large(8192), packet_fabric("packets"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 7, 64, 1000, 12345])
def test_the_nearest_even_sizes_are_the_nearest_that_translations_keep(name, count):
    asked, algorithm = name.split("/")
    op, plan = operation(asked, 8), compact_schedule(asked, algorithm, 8, 0, (2, 4))

    def even(elements):
        return invariant(divide_blocks(op.block_counts(elements), plan.n_slots, plan.shares).count, plan.translations)

    below = next((c for c in range(count, 0, -1) if even(c)), None)
    above = next(c for c in range(count + 1, count + 10**4) if even(c))
    assert even_counts(op, plan, count) == [c for c in (below, above) if c]


@pytest.mark.parametrize("count", [1, 5, 24, 30])
@pytest.mark.parametrize(("parts", "shares"), [(6, ()), (12, ()), (3, ()), (6, (1, 2, 1, 2, 1, 2)), (3, (2, 2, 2))])
def test_a_block_is_cut_as_often_as_translations_tell_its_parts_apart(parts, shares, count):
    op, plan = operation("all_reduce", 3), Schedule.build(3, parts, [Sends(0, 1, 0)], shares=shares, translate=(3,))
    found = even_counts(op, plan, count)
    assert found
    for elements in found:
        assert abs(elements - count) <= (sum(shares) or parts)
        assert invariant(divide_blocks(op.block_counts(elements), parts, shares).count, plan.translations)


def test_slots_that_no_size_makes_even_have_no_nearest(monkeypatch):
    monkeypatch.setattr("emu.fabric.lower.MAX_ROWS", 1)
    op, plan = operation("all_reduce", 2), Schedule.build(2, 2, [Sends(0, 1, 0)], shares=(1, 3), translate=(2,))
    assert even_counts(op, plan, 9) == []
    topology = build_topology("switch:n=2,bandwidth=50GB/s,latency=1us")
    with pytest.raises(InputError, match=r"36 B do not cut evenly among 2 ranks, .* take fewer ranks$"):
        time_collective(CollectiveJob(op, plan, 9, 4, topology, place(topology, 2)))


def test_rows_that_fit_are_timed_whatever_the_size():
    topology = build_topology(LINES[1])
    op, plan = operation("all_reduce", 8), compact_schedule("all_reduce", "ring", 8)
    assert time_collective(CollectiveJob(op, plan, 12345, 4, topology, place(topology, 8))).end_s > 0


def test_the_message_that_ends_beyond_the_clock_is_named_with_its_algorithm_or_its_operation():
    topology = build_topology("switch:n=8,bandwidth=1B/s,latency=1us")
    job = operation("all_reduce", 8), compact_schedule("all_reduce", "ring", 8), 2**20, 4, topology, place(topology, 8)
    said = (
        r": the message from rank 0 to rank 1 in round 0 \(row 0 of rank 0's\) starts at 0 s, takes 512 KiB over links of 1 B/s"
    )
    for name, called in (("all_reduce ring", "all_reduce ring"), ("", "all_reduce")):
        with pytest.raises(InputError, match=f"^{called}{said}"):
            time_collective(CollectiveJob(*job, 0, name))


def test_perturbed_messages_are_named_too():
    topology = build_topology("switch:n=2,bandwidth=1GB/s,latency=4611686018427387.5ps")
    op, plan = operation("broadcast", 2), Schedule.build(2, 1, [Sends(0, 1, 0)])
    job = CollectiveJob(op, plan, 1, 1, topology, place(topology, 2), name="broadcast one")
    with pytest.raises(InputError, match=r"^broadcast one: the message from rank 0 to rank 1 in round 0"):
        spread_collective(job, 2)


def test_perturbed_messages_have_their_overhead_and_where_it_keeps_them_apart_nothing_is_chaotic():
    topology = build_topology("fat-tree:radix=6,tiers=3")
    op, plan = operation("all_to_all", 54), compact_schedule("all_to_all", "pairwise", 54)
    job = CollectiveJob(op, plan, 54 * 1024, 4, topology, place(topology, 54))
    assert spread_collective(job, 2) is not None
    assert spread_collective(job._replace(send_overhead_fs=10**10), 2) is None
