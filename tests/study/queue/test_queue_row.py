"""The figures of a queue, by hand: fragments, the largest job, waiting by size, and why jobs were refused."""

from dataclasses import replace

import pytest

from emu.study.queue.queue_row import QueuedOn, queue_row
from emu.study.queue.workload.queued_job import DAY_US
from tests.study.queue.queues import SWITCH, jobs_of, run

HALVES = jobs_of([(0, 4, 2000), (0, 4, 1), (0, 4, 2000), (0, 4, 1)])  # half of each of two servers stays free after a second


def row_of(history, group=8):
    days = history.until_us / DAY_US
    on = QueuedOn(topology="a machine", copies=1, npus=history.npus, policy="fifo", group=group, days=days)
    return queue_row(on, history)


@pytest.mark.parametrize(("group", "largest", "fragments"), [(8, 0, 1.0), (4, 8, 0.0), (3, 6, 0.25)])
def test_fragments_are_free_npus_that_the_largest_job_leaves(group, largest, fragments):
    row = row_of(run("servers:nodes=2", HALVES, 1440, group=group), group)
    assert [(moment.free, moment.largest) for moment in row.moments[2:]] == [(8, largest)] * 718
    assert row.largest_median == largest
    assert row.fragmentation == pytest.approx(fragments, abs=0.01)


def test_waiting_is_told_by_size_with_jobs_that_never_started():
    jobs = jobs_of([(0, 8, 100), (0, 1, 10), (10, 8, 1000), (20, 1, 10), (30, 9, 1)])
    row = row_of(run(SWITCH.format(8), jobs, 600))
    assert [(w.least_npus, w.most_npus, w.jobs, w.never_started, w.mean_s) for w in row.waits] == [
        (1, 1, 2, 1, (100 + 580) / 2),
        (2, 8, 2, 0, 50),
    ]
    assert (row.ended, row.running, row.waiting, row.refused) == (2, 1, 1, 1)
    assert row.refusals == {"it asks for 9 NPUs of 8": 1}
    assert row.wait_p95_s == 580
    assert row.wait_mean_s == (0 + 100 + 100 + 580) / 4


def test_shares_are_of_all_time_and_hours_sum_to_the_machine():
    row = row_of(run(SWITCH.format(8), jobs_of([(0, 4, 1800)]), 3600))
    assert (row.utilisation, row.goodput) == (0.25, 0.25)
    assert row.npu_hours["work"] == 2
    assert sum(row.npu_hours.values()) == 8
    assert row.days == pytest.approx(1 / 24)


def test_the_last_class_of_sizes_reaches_to_the_largest_job():
    row = row_of(run(SWITCH.format(1024), jobs_of([(0, 1000, 10), (0, 513, 10), (0, 512, 10)]), 60))
    assert [(w.least_npus, w.most_npus, w.jobs) for w in row.waits] == [(65, 512, 1), (513, 1000, 2)]


def test_moments_without_a_free_npu_have_no_fragments_and_of_two_middle_ones_the_smaller_is_the_median():
    history = run(SWITCH.format(8), [], 1440)
    seen = [replace(history.moments[0], free=free, largest=largest) for free, largest in ((0, 0), (1, 0), (4, 3), (5, 5))]
    row = row_of(replace(history, moments=tuple(seen)))
    assert row.fragmentation == (1 + 1 / 4 + 0) / 3
    assert (row.largest_mean, row.largest_median) == (2, 0)
    assert row_of(replace(history, moments=tuple(seen[1:]))).largest_median == 3


def test_each_kind_of_stop_is_counted_by_itself_and_those_of_refused_jobs_are_none():
    history = run(SWITCH.format(8), jobs_of([(0, 4, 10), (0, 4, 10), (0, 9, 1)]), 60)
    first, second, _ = history.records
    first.faults, first.preemptions, first.moves, first.backfilled = 3, 20, 100, True
    second.faults, second.preemptions, second.moves = 4, 30, 500
    row = row_of(history)
    assert (row.fault_stops, row.preemptions, row.moves, row.backfilled, row.jobs) == (7, 50, 600, 1, 3)


def test_npus_that_a_job_holds_beyond_what_it_asked_for_are_used_but_are_no_goodput():
    row = row_of(run("torus:dims=4x4,bandwidth=50GB/s,latency=500ns", jobs_of([(0, 5, 10)]), 10))  # a box of 2 x 3
    assert (row.utilisation, row.goodput) == (6 / 16, 5 / 16)
