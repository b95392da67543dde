"""Room for a job, held against trying every number of ends, of jobs that stop and of sizes that move."""

import random
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from emu.arrays import I64, Bool
from emu.study.queue.gang_machine import GangMachine
from emu.study.queue.room import earliest, jobs_to_move, jobs_to_stop, with_places
from emu.study.queue.workload.queued_job import GangRun, QueuedJob

N = 12


def run_together(size: int, free: Bool) -> I64:
    """The first run of free places that is long enough; none if there is none."""
    for first in range(N - size + 1):
        if free[first : first + size].all():
            return np.arange(first, first + size)
    return np.arange(0)


def filled(random_: random.Random) -> tuple[Bool, list[GangRun]]:
    """Jobs on places at random, each on neighbours, and the free places."""
    free, runs, at = np.ones(N, bool), list[GangRun](), 0
    for number in count():
        at += random_.randrange(3)
        size = random_.randrange(1, 4)
        if at + size > N:
            break
        job = QueuedJob(number, 0, size, 1)
        places = np.arange(at, at + size)
        free[places] = False
        runs.append(cast("GangRun", SimpleNamespace(job=job, places=places)))
        at += size
    return free, runs


def test_more_places_are_free_besides_and_the_machine_stays() -> None:
    free = np.array([True, False, False, False])
    assert with_places(free, [np.array([2]), np.array([3, 0])]).tolist() == [True, False, True, True]
    assert with_places(free, []).tolist() == free.tolist() == [True, False, False, False]


@pytest.mark.parametrize("seed", range(60))
def test_a_job_starts_with_the_first_end_after_which_it_has_room(seed: int) -> None:
    random_ = random.Random(seed)
    free, runs = filled(random_)
    size = random_.randrange(1, 8)
    serves = np.array([random_.random() < 0.9 for _ in range(N)])
    times = random_.sample(range(100), len(runs))
    ends = [(time, run.places) for time, run in zip(times, runs, strict=True)]
    if len(run_together(size, free)):
        return  # it starts now: nobody asks
    machine = cast("GangMachine", SimpleNamespace(free=free, serves=serves))
    wanted, now = None, free.copy()
    for time, places in sorted(ends, key=lambda end: end[0]):
        now[places[serves[places]]] = True
        if len(run_together(size, now)):
            wanted = time, run_together(size, now).tolist()
            break
    found = earliest(lambda some: run_together(size, some), machine, ends)
    assert (found and (found[0], found[1].tolist())) == wanted


@pytest.mark.parametrize("seed", range(60))
def test_as_few_of_the_first_jobs_stop_as_make_room_and_of_them_those_that_are_in_the_way(seed: int) -> None:
    random_ = random.Random(seed)
    free, runs = filled(random_)
    size = random_.randrange(1, N + 2)
    random_.shuffle(runs)
    wanted = None
    for most in range(len(runs) + 1):
        places = run_together(size, with_places(free, [run.places for run in runs[:most]]))
        if len(places):
            wanted = places.tolist(), [run.job.number for run in runs[:most] if {*run.places.tolist()} & {*places.tolist()}]
            break
    found = jobs_to_stop(lambda some: run_together(size, some), free, runs)
    assert (found and (found[0].tolist(), [run.job.number for run in found[1]])) == wanted


@pytest.mark.parametrize("seed", range(80))
def test_jobs_move_out_of_the_way_to_places_that_are_left_the_smallest_that_suffice(seed: int) -> None:
    random_ = random.Random(seed)
    free, runs = filled(random_)
    size = random_.randrange(2, 9)

    def place(job: QueuedJob, some: Bool) -> I64:
        return run_together(job.npus, some)

    def tried(most: int) -> Any:
        small = [run for run in runs if run.job.npus <= most]
        target = run_together(size, with_places(free, [run.places for run in small]))
        moving = [run for run in small if {*run.places.tolist()} & {*target.tolist()}]
        left = with_places(free, [run.places for run in moving])
        left[target] = False
        moved = []
        for run in sorted(moving, key=lambda run: (-run.job.npus, run.job.number)):
            where = place(run.job, left)
            left[where] = False
            moved.append((run.job.number, where.tolist()))
        return (target.tolist(), moved) if len(target) and all(where for _, where in moved) else None

    wanted = next((one for most in (1, 2, 3) if any(run.job.npus == most for run in runs) and (one := tried(most))), None)
    found = jobs_to_move(lambda some: run_together(size, some), place, free, runs)
    assert (found and (found.places.tolist(), [(run.job.number, to.tolist()) for run, to in found.moved])) == wanted


@pytest.mark.parametrize("sizes", [(1,), (3,), (1, 3), (3, 1)])
def test_every_job_that_is_there_may_move(sizes: tuple[int, ...]) -> None:
    """Jobs from place 4 on, of 12, and one that needs 8 neighbours: all of them have to go behind it."""
    free, runs, at = np.ones(N, bool), list[GangRun](), 4
    for number, size in enumerate(sizes):
        places = np.arange(at, at + size)
        free[places] = False
        runs.append(cast("GangRun", SimpleNamespace(job=QueuedJob(number, 0, size, 1), places=places)))
        at += size
    found = jobs_to_move(lambda some: run_together(8, some), lambda job, some: run_together(job.npus, some), free, runs)
    assert found is not None
    assert found.places.tolist() == list(range(8))
    order = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    assert [run.job.number for run, _ in found.moved] == order
    assert sorted(place for _, to in found.moved for place in to.tolist()) == list(range(8, 8 + sum(sizes)))


def test_jobs_of_the_eight_smallest_sizes_may_move_and_no_larger_ones() -> None:
    """Ten jobs of 1 to 10 places are tried by their sizes, each time with one job more."""
    free, runs, at, tried = np.zeros(55, bool), list[GangRun](), 0, list[int]()
    for size in range(1, 11):
        runs.append(cast("GangRun", SimpleNamespace(job=QueuedJob(size, 0, size, 1), places=np.arange(at, at + size))))
        at += size
    assert jobs_to_move(lambda some: np.arange(tried.append(int(some.sum())) or 0), lambda *_: np.arange(0), free, runs) is None
    assert tried == [1, 3, 6, 10, 15, 21, 28, 36]
