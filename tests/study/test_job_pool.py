"""Pools do jobs: results in their order, by as many processes as were asked for, and kept where the work keeps them."""

import os
import pickle
import time

import pytest

from emu.errors import InputError
from emu.store import ValueTable
from emu.study.job_pool import LocalPool, known_result, results_of


def in_order(pool, work, jobs, kept=None):
    with pool.open(work, kept, len(jobs)) as opened:
        return [*results_of(map(opened.submit, jobs), len(jobs))]


def later_first(number):
    time.sleep(0.02 * (3 - number))
    return number, os.getpid()


def test_results_come_in_the_order_of_the_jobs_whichever_ends_first():
    found = in_order(LocalPool(2), later_first, range(4))
    assert [number for number, _ in found] == [0, 1, 2, 3]
    assert os.getpid() not in {process for _, process in found}


@pytest.mark.parametrize(("processes", "jobs"), [(1, 3), (3, 1)])
def test_one_process_or_one_job_is_done_by_this_process(processes, jobs):
    assert {process for _, process in in_order(LocalPool(processes), later_first, range(jobs))} == {os.getpid()}


def test_a_job_of_this_process_is_done_when_its_result_is_wanted():
    done = []
    with LocalPool().open(done.append) as opened:
        pending = [opened.submit(number) for number in range(3)]
        assert done == []
        pending[1]()
    assert done == [1]


def test_no_job_starts_no_process(monkeypatch):
    monkeypatch.setattr("multiprocessing.get_context", lambda _: pytest.fail("processes were started"))
    assert in_order(LocalPool(2), later_first, []) == []


def refuse(number):
    raise InputError(f"job {number}: seed must be even, got 1; give 2")


def test_an_error_of_a_job_comes_where_its_result_is_wanted():
    with LocalPool(2).open(refuse) as opened:
        pending = [opened.submit(number) for number in range(2)]
        with pytest.raises(InputError, match="job 1: seed must be even"):
            pending[1]()


def test_processes_of_this_machine_keep_what_they_find_themselves(tmp_path):
    kept = ValueTable(tmp_path / "kept.sqlite")

    def work(number):
        kept.write(str(number), number**2)
        return number

    assert in_order(LocalPool(2), work, range(4), kept) == [0, 1, 2, 3]
    assert [kept.read(str(number)) for number in range(4)] == [0, 1, 4, 9]
    kept.close()


def test_known_results_stand_among_others():
    assert [*results_of(iter([known_result("known"), known_result("too")]), 1)] == ["known", "too"]


def test_a_table_that_is_sent_is_empty_and_gives_what_is_written_there_once(tmp_path):
    here = ValueTable(tmp_path / "kept.sqlite")
    here.write("known here", 1)
    there = pickle.loads(pickle.dumps(here))
    assert there.path is None
    assert there.read("known here") is None
    there.write("a", {"x": 0.1})
    there.write("b", [2])
    assert there.fresh() == [("a", {"x": 0.1}), ("b", [2])]
    assert there.fresh() == []
    there.write("a", 3)
    assert there.fresh() == [("a", 3)]
    here.close()
    there.close()
