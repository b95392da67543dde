"""One run of a job: its time goes to what each microsecond of it is spent on; what is left of the work; who goes first."""

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from emu.study.queue.queue_policy import POLICIES
from emu.study.queue.workload.queued_job import GangRun, JobRecord, QueuedJob, RunCosts

BEGIN = 1000


def run_of(work_us: int, costs: RunCosts, wait_us: int = 0, *, again: bool = False, slowness: str = "1") -> GangRun:
    job = QueuedJob(0, 0, 4, work_us)
    return GangRun(job, np.arange(4), BEGIN, work_us, costs, wait_us, again, Fraction(slowness))


def played(work_us: int, costs: RunCosts, wait_us: int, started_us: int) -> tuple[list[str], list[int]]:
    """Return what each microsecond goes to, and the work that is kept before each; it is saved unless it is over."""
    spent, kept = ["waits"] * wait_us + ["starts"] * started_us, [0] * (wait_us + started_us + 1)
    for done in range(1, work_us + 1):
        saves = costs.every_us and done % costs.every_us == 0 and done < work_us
        spent += ["works"] + ["saves"] * (costs.checkpoint_us if saves else 0)
        kept += [kept[-1]] * (len(spent) + 1 - len(kept))
        kept[-1] = done if saves else kept[-1]
    return spent, kept


CASES = [*product([1, 7, 14, 15, 20], [0, 7], [0, 3], [0, 2], [0, 5], [False, True])]


@pytest.mark.parametrize(("work", "every", "save", "wait", "restart", "again"), CASES)
def test_every_microsecond_of_a_run_is_told(work: int, every: int, save: int, wait: int, restart: int, again: bool) -> None:
    costs = RunCosts(save, every, restart)
    run = run_of(work, costs, wait, again=again)
    spent, kept = played(work, costs, wait, restart * again)
    assert run.end_us == BEGIN + len(spent)
    for now in range(len(spent) + 3):
        count, found = Counter(spent[:now]), run.progress(BEGIN + now)
        assert (found.waited_us, found.started_us, found.saved_us) == (count["waits"], count["starts"], count["saves"])
        assert found.kept_us == kept[min(now, len(spent))]
        assert found.since_us == count["works"] - found.kept_us


def test_work_is_kept_when_a_checkpoint_is_whole_and_not_before() -> None:
    run = run_of(35, RunCosts(3, 10, 0))
    kept = [run.progress(BEGIN + now).kept_us for now in (0, 9, 10, 12, 13, 25, 26, 38, 39, 44, 50)]
    assert kept == [0, 0, 0, 0, 10, 10, 20, 20, 30, 30, 30]
    assert [run.progress(BEGIN + now).since_us for now in (9, 10, 12, 13, 44, 50)] == [9, 10, 10, 0, 5, 5]


@pytest.mark.parametrize(("slowness", "wall_us"), [("1", 10), ("3/2", 15), ("4/3", 14), ("7/4", 18), ("11/10", 11)])
def test_work_on_slower_places_takes_longer_rounded_up_and_what_was_done_there_counts_for_less(
    slowness: str, wall_us: int
) -> None:
    run = run_of(10, RunCosts(1, 6, 0), slowness=slowness)
    assert run.wall_us == wall_us
    assert run.saves == (wall_us - 1) // 6
    assert run.left_us(0) == 10
    assert run.left_us(wall_us) == 0
    left = [run.left_us(done) for done in range(wall_us + 1)]
    assert left == [10 - int(Fraction(done) / Fraction(slowness)) for done in range(wall_us + 1)]
    assert run.left_us(10 * wall_us) == 0


def record(number: int, priority: int, left_us: int, submit_us: int) -> JobRecord:
    found = JobRecord(QueuedJob(number, submit_us, 1, 500, priority))
    assert found.left_us == 500
    found.left_us = left_us
    return found


def test_waiting_jobs_stand_by_priority_then_by_the_work_that_is_left_where_that_counts_then_as_they_came() -> None:
    records = [record(0, 0, 9, 5), record(1, 2, 90, 8), record(2, 2, 30, 9), record(3, 2, 30, 9), record(4, 2, 90, 1)]
    order = {name: [each.job.number for each in sorted(records, key=policy.key)] for name, policy in POLICIES.items()}
    assert order["fifo"] == order["backfill"] == order["preempt"] == order["defragment"] == [4, 1, 2, 3, 0]
    assert order["shortest"] == [2, 3, 4, 1, 0]


def test_a_job_has_waited_until_its_first_start_or_until_now() -> None:
    found = record(0, 0, 9, 5)
    assert found.waited_us(12) == 7
    found.start_us = 8
    assert found.waited_us(12) == 3
