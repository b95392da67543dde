"""Queues worked out by hand: who starts when under each policy, what faults cost, and where all NPU time goes."""

from dataclasses import replace

import pytest

from emu.study.queue.workload.queued_job import JobModel, RunCosts
from tests.study.queue.queues import SWITCH, ends, jobs_of, log_of, run, seconds, starts

FOUR = SWITCH.format(4)
COSTS = RunCosts(seconds(1), seconds(10), seconds(5))  # a checkpoint takes 1 s after each 10 s of work, a start 5 s


def spent(history):
    """The NPU seconds by what they went to, without zeros; they sum to all of the machine's."""
    found = {reason: npu_us / 1e6 for reason, npu_us in history.spent.spent_us.items() if npu_us}
    assert sum(history.spent.spent_us.values()) == history.npus * history.until_us
    return found


def test_first_come_first_served_lets_no_job_pass_the_first():
    jobs = jobs_of([(0, 3, 10), (1, 2, 10), (2, 1, 1), (3, 4, 5)])
    history = run(FOUR, jobs, 100)
    assert starts(history) == [0, 10, 10, 20]
    assert ends(history) == [10, 20, 11, 25]
    blocked = 9 + (1 + 9 * 2)  # beside job 0 while job 1 waits; beside job 1 while job 3 waits, first with job 2
    assert spent(history) == {"work": 71, "blocked": blocked, "idle": 400 - 71 - blocked}


def test_larger_priorities_go_first():
    history = run(FOUR, jobs_of([(0, 4, 10), (1, 4, 10, 0), (2, 4, 10, 5)]), 100)
    assert starts(history) == [0, 20, 10]


def test_a_later_job_is_backfilled_only_if_it_does_not_delay_the_first():
    # Two NPUs are free until second 10, when all four are promised to job 1.
    rows = [(0, 2, 10), (1, 4, 5), (2, 2, 9), (2, 2, 8), (3, 1, 5)]
    history = run(FOUR, jobs_of(rows), 100, policy="backfill")
    assert starts(history) == [0, 10, 15, 2, 15]
    assert [record.backfilled for record in history.records] == [False, False, False, True, False]


def test_a_job_longer_than_the_promise_may_start_beside_the_promised_places():
    history = run(FOUR, jobs_of([(0, 2, 10), (1, 3, 5), (2, 1, 50)]), 100, policy="backfill")
    assert starts(history) == [0, 10, 2]


def test_the_first_job_is_promised_the_earliest_time_not_that_of_the_last_end():
    # Three NPUs are promised to job 2 for second 10; the fourth has job 1 until 50. Job 3 would be there from 3 to 33.
    history = run(FOUR, jobs_of([(0, 2, 10), (0, 1, 50), (1, 3, 5), (3, 1, 30)]), 100, policy="backfill")
    assert starts(history) == [0, 0, 10, 15]


def test_the_shortest_job_goes_first_and_a_large_one_is_skipped():
    history = run(FOUR, jobs_of([(0, 3, 10), (1, 2, 3), (1, 1, 20), (1, 1, 2)]), 100, policy="shortest")
    assert starts(history) == [0, 10, 3, 1]


def test_a_fault_takes_a_job_back_to_its_last_checkpoint():
    # 35 s of work: 10 s, 1 s, 10 s, 1 s, ...; at 25 s it has saved 20 s of work twice over, and loses 3 s.
    history = run(FOUR, jobs_of([(0, 2, 35)]), 100, costs=COSTS, log=log_of([(0, 25, 40)], 4))
    restarted = 25  # on the other NPUs, at once
    assert starts(history) == [0]
    assert ends(history) == [restarted + 5 + 10 + 1 + 5]
    assert history.records[0].faults == 1
    found = spent(history)
    assert found["work"] == 2 * 35
    assert found["again"] == 2 * 3
    assert found["saving"] == 2 * (2 + 1)
    assert found["starting"] == 2 * 5
    assert found["faulty"] == 15


def test_a_job_waits_for_a_repair_if_nothing_else_is_left():
    history = run(FOUR, jobs_of([(0, 4, 10)]), 100, log=log_of([(3, 4, 30)], 4))
    assert ends(history) == [40]  # nothing was saved, so it begins again
    assert spent(history)["again"] == 16


def test_a_job_that_ends_as_its_npu_fails_has_ended():
    history = run(FOUR, jobs_of([(0, 4, 10)]), 100, log=log_of([(3, 10, 30)], 4))
    assert ends(history) == [10]
    assert "again" not in spent(history)


def test_a_job_of_higher_priority_stops_one_that_saves_and_goes_on_later():
    jobs = jobs_of([(0, 4, 35, 0), (15, 4, 10, 1)])
    history = run(FOUR, jobs, 200, policy="preempt", costs=COSTS)
    # Job 0 has worked 14 s and saved once; its state is saved until 16. Job 1 saves nothing, as it is over after 10 s.
    assert starts(history) == [0, 15]
    assert ends(history) == [26 + 5 + 21 + 2, 15 + 1 + 10]
    assert history.records[0].preemptions == 1
    assert "again" not in spent(history)


def test_a_job_that_is_stopped_while_it_starts_from_its_checkpoint_starts_from_it_again():
    # As above until 26; two of its five seconds later job 2 stops job 0 once more, until 39. It still has 21 s to do.
    history = run(FOUR, jobs_of([(0, 4, 35, 0), (15, 4, 10, 1), (28, 4, 10, 1)]), 200, policy="preempt", costs=COSTS)
    assert ends(history) == [39 + 5 + 21 + 2, 26, 28 + 1 + 10]
    assert history.records[0].preemptions == 2
    assert spent(history)["starting"] == 4 * (2 + 5)


def test_jobs_of_equal_priority_stop_no_other():
    history = run(FOUR, jobs_of([(0, 4, 35), (15, 4, 10)]), 200, policy="preempt", costs=COSTS)
    assert starts(history)[1] > 35


@pytest.mark.parametrize(
    ("running", "stopped"),
    [
        ([(0, 2, 90, 0), (5, 2, 90, 0)], 1),  # the last that started
        ([(0, 2, 90, 0), (0, 2, 90, 0)], 1),  # of one moment, the last that was submitted
        ([(0, 2, 90, 0), (5, 2, 90, 1)], 0),  # but first of all the one of the lowest priority
        ([(0, 2, 90, 1), (5, 2, 90, 0)], 1),
    ],
)
def test_the_job_of_least_priority_that_started_last_makes_room(running, stopped):
    history = run(FOUR, jobs_of([*running, (10, 2, 10, 2)]), 200, policy="preempt", costs=COSTS)
    assert [record.preemptions for record in history.records] == [int(number == stopped) for number in range(3)]
    assert starts(history)[2] == 10


def test_a_small_job_moves_where_enough_is_free_but_not_together():
    # From second 30 on, jobs 0 and 3 hold half of a server each; job 4 asks for a server.
    jobs = jobs_of([(0, 4, 200), (0, 4, 30), (0, 4, 10), (1, 4, 200), (40, 8, 10)])
    costs = RunCosts(seconds(1), 0, seconds(5))
    stays = run("servers:nodes=2", jobs, 900, policy="backfill", costs=costs)
    moves = run("servers:nodes=2", jobs, 900, policy="defragment", costs=costs)
    assert starts(stays)[4] == 200
    assert spent(stays)["fragmented"] == 8 * 160
    assert starts(moves)[4] == 40
    assert ends(moves) == [40 + 1 + 5 + 160, 30, 10, 201, 40 + 1 + 10]
    assert [record.moves for record in moves.records] == [1, 0, 0, 0, 0]
    assert "fragmented" not in spent(moves)


def test_jobs_without_room_are_refused_with_the_reason():
    history = run("torus:dims=4x4,bandwidth=50GB/s,latency=500ns", jobs_of([(0, 17, 1), (0, 16, 1)]), 10)
    assert [record.state for record in history.records] == ["refused", "ended"]
    assert history.records[0].reason == "it asks for 17 NPUs of 16"
    history = run("servers:nodes=2", jobs_of([(0, 16, 1)]), 10, group=12)
    assert history.records[0].reason == "16 NPUs find no room even on the empty machine"


def test_a_box_of_a_grid_holds_more_than_was_asked_for():
    history = run("torus:dims=4x4,bandwidth=50GB/s,latency=500ns", jobs_of([(0, 5, 10)]), 10, group=8)
    assert spent(history) == {"work": 50, "unused": 10, "idle": 100}  # 2 x 3


def test_a_backup_takes_the_place_of_a_failed_host_and_the_job_goes_on_at_once():
    line = "hpn:segment:dims=2x8,backup=1"
    jobs = jobs_of([(0, 16, 20)])
    history = run(line, jobs, 100, log=log_of([(3, 5, 50)], 24))
    assert ends(history) == [25]
    history = run(line, jobs, 100, log=log_of([(3, 5, 50), (8, 6, 40)], 24))
    assert ends(history) == [40 + 20]  # a second host fails, and there is one backup
    idle = run(line, jobs_of([(0, 24, 1)]), 10)
    assert idle.records[0].state == "refused"  # a backup is no place for a job where nothing has failed
    assert spent(idle) == {"out": 80, "idle": 160}


def test_the_backup_npu_of_a_rack_takes_the_place_of_one_that_fails():
    jobs = jobs_of([(0, 64, 20)])
    history = run("ub-mesh:rack-full", jobs, 100, log=log_of([(5, 5, 50)], 64))
    assert ends(history) == [25]
    assert "faulty" not in spent(history)
    history = run("ub-mesh:rack-full", jobs, 100, log=log_of([(5, 5, 50), (8, 6, 40)], 64))
    assert ends(history) == [40 + 20]
    assert spent(history)["faulty"] == 34


def test_a_group_stays_within_a_copy_and_a_job_can_lie_on_several():
    jobs = jobs_of([(0, 4, 10), (0, 4, 10), (0, 8, 10)])
    history = run(SWITCH.format(6), jobs, 100, npus=12, group=4)
    assert starts(history) == [0, 0, 10]
    history = run(SWITCH.format(6), jobs, 100, npus=12, group=2)
    assert starts(history) == [0, 0, 10]
    history = run(SWITCH.format(6), jobs_of([(0, 4, 10), (0, 8, 10)]), 100, npus=12, group=2)
    assert starts(history) == [0, 0]
    history = run(SWITCH.format(6), jobs_of([(0, 4, 10), (0, 8, 10)]), 100, npus=12, group=4)
    assert starts(history) == [0, 10]


@pytest.mark.parametrize("policy", ["fifo", "backfill", "shortest", "defragment"])
def test_ranks_of_a_model_stay_on_one_copy(policy):
    """Four NPUs of each copy of six are held for 10 s: a job of seconds lies on the rest of both, a model waits for one."""
    *held, last = jobs_of([(0, 4, 10), (0, 4, 10), (2, 4, 5)])
    for model, start in ((None, 2), (JobModel("llama-tiny", "dp=4", 4, 16, 1), 10)):
        history = run(SWITCH.format(6), [*held, replace(last, trained=model)], 100, npus=12, group=2, policy=policy)
        assert starts(history) == [0, 0, start]


def test_a_fault_that_lasts_for_no_time_stops_no_job():
    history = run(FOUR, jobs_of([(0, 4, 20)]), 100, log=log_of([(3, 10, 10)], 4))
    assert ends(history) == [20]
    assert (history.records[0].faults, spent(history)) == (0, {"work": 80, "idle": 320})
