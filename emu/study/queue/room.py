"""Room for a job that has none: when there will be some, or which other jobs would have to stop or to move.

Letters: N places.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.study.queue.gang_machine import GangMachine
from emu.study.queue.workload.queued_job import GangRun, QueuedJob

_MOST_SIZES = 8  # sizes of smaller jobs up to which jobs may move
Place = Callable[[QueuedJob, Bool], I64]  # (a job, [N] places that it may take) -> the places that it gets; none without room
Ask = Callable[[Bool], I64]  # ([N] places that a job may take) -> the places that it gets; none without room


class Reservation(NamedTuple):
    """The promise to a job that it can start at a time on certain places, if nothing fails."""

    job: int
    start_us: int
    places: I64


def with_places(free: Bool, places: Sequence[I64]) -> Bool:
    """Return [N] the free places and some more."""
    more = free.copy()
    for each in places:
        more[each] = True
    return more


def earliest(ask: Ask, machine: GangMachine, ends: Sequence[tuple[int, I64]]) -> tuple[int, I64] | None:
    """Return the earliest time at which a job has room, and its places then; None if it has none even after all ends.

    Args:
        ask: The job.
        machine: The machine.
        ends: When other jobs leave which places.
    """
    order = sorted(ends, key=lambda end: end[0])
    free, places = machine.free, [np.asarray(each[machine.serves[each]]) for _, each in order]
    low, high, found = 0, len(order), ask(with_places(free, places))
    if not len(found):
        return None
    while low < high:
        middle = (low + high) // 2
        some = ask(with_places(free, places[:middle]))
        low, high, found = (low, middle, some) if len(some) else (middle + 1, high, found)
    return order[low - 1][0], found


def jobs_to_stop(ask: Ask, free: Bool, runs: Sequence[GangRun]) -> tuple[I64, list[GangRun]] | None:
    """Return the places that a job gets if other jobs stop, and these jobs; None if it has no room even if all do.

    Args:
        ask: The job.
        free: [N] the free places.
        runs: The jobs that may stop, the first of them rather than the last.
    """
    low, high, found = 0, len(runs), ask(with_places(free, [run.places for run in runs]))
    if not len(found):
        return None
    while low < high:
        middle = (low + high) // 2
        some = ask(with_places(free, [run.places for run in runs[:middle]]))
        low, high, found = (low, middle, some) if len(some) else (middle + 1, high, found)
    return found, [run for run in runs[:low] if np.isin(run.places, found).any()]


class Moves(NamedTuple):
    """The places that a job gets if others move, and where each of these goes."""

    places: I64
    moved: tuple[tuple[GangRun, I64], ...]


def jobs_to_move(ask: Ask, place: Place, free: Bool, runs: Sequence[GangRun]) -> Moves | None:
    """Return how smaller jobs can move so that a job has room; None if no way is found.

    First only the smallest jobs may move, then larger ones, too. The job takes places as if these jobs were not there; those in
    its way go to what is left, the largest first.

    Args:
        ask: The job.
        place: Gives places among free ones to a job.
        free: [N] the free places.
        runs: The jobs that may move.
    """
    for most in sorted({run.job.npus for run in runs})[:_MOST_SIZES]:
        small = [run for run in runs if run.job.npus <= most]
        target = ask(with_places(free, [run.places for run in small]))
        if len(target):
            moves = _moved(place, free, target, [run for run in small if np.isin(run.places, target).any()])
            if moves is not None:
                return moves
    return None


def _moved(place: Place, free: Bool, target: I64, runs: Sequence[GangRun]) -> Moves | None:
    """Return where jobs go that are in the way of another job; None if one of them has no room then."""
    left = with_places(free, [run.places for run in runs])
    left[target] = False
    moved = []
    for run in sorted(runs, key=lambda run: (-run.job.npus, run.job.number)):
        places = place(run.job, left)
        if not len(places):
            return None
        left[places] = False
        moved.append((run, places))
    return Moves(target, tuple(moved))
