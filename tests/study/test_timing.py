"""A schedule by the rows of rank 0 against the same one by all rows."""

import numpy as np
import pytest

from emu.collective.algorithm import stored
from emu.collective.operation import operation
from emu.collective.schedule import MAX_ROWS
from emu.study.timing import least_fs, time_collective
from emu.topology.catalogue import build_topology
from emu.topology.placement import place

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
    op, plan = operation(asked, 8), stored(asked, algorithm, 8, 0, (2, 4))
    job = (count, 4, topology, place(topology, 8))
    by_rank_0, by_all = (time_collective(op, each, *job).end_s for each in (plan, plan.expand()))
    assert by_rank_0 == by_all
    assert least_fs(op, plan, *job) == pytest.approx(least_fs(op, plan.expand(), *job), rel=1e-12)


def test_more_rows_than_are_ever_stored_are_timed():
    n, count = 8192, 8192 * 250
    topology = build_topology("torus:dims=128x64,bandwidth=50GB/s,latency=500ns")
    op, plan = operation("all_to_all", n), stored("all_to_all", "at-once", n)
    job = (op, plan, count, 4, topology, place(topology, n))
    assert plan.n_rows * n > MAX_ROWS
    timeline = time_collective(*job)
    assert timeline.how == "quotient"
    # Ties go up on an even channel: 64 * 65 / 2 pairs of a line cross a link of X upwards, from each of 64 places along Y.
    busiest = 2080 * 64 * 1000
    assert least_fs(*job) == pytest.approx(busiest / 50e9 * 1e15)
    assert int(timeline.end_fs.max()) >= least_fs(*job) * (1 - 1e-9)
    assert np.isfinite(timeline.end_s)
