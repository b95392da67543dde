"""Schedules from schedules: the dual, another root, one after another.

Each is a permutation of columns; none looks at what the schedule is for.
"""

import numpy as np

from emu.arrays import I64
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError


def _sends(schedule: Schedule, rows: slice) -> Sends:
    return Sends(
        schedule.src[rows],
        schedule.dst[rows],
        schedule.slot[rows],
        schedule.reduce[rows],
        schedule.channel[rows],
        schedule.written_slot[rows],
    )


def dual(schedule: Schedule) -> Schedule:
    """Time reversed, every send turned round, overwrite become add.

    Turns an all_gather into a reduce_scatter and a broadcast into a reduce, provided that no (rank, slot) is written twice
    or where it is already held (the proof of the result says whether that was so).

    Raises:
        InputError: the schedule adds, so that it has no dual.
    """
    if schedule.reduce.any():
        raise InputError("schedule: one that adds has no dual; take the dual of the half that copies")
    full = schedule.expand()
    turned = (
        Sends(full.dst[rows], full.src[rows], full.slot[rows], True, full.channel[rows]) for rows in reversed(full.rounds())
    )
    return Schedule.build(full.n_ranks, full.n_slots, turned, shares=full.shares, helpers=full.helpers)


def then(first: Schedule, second: Schedule) -> Schedule:
    """The rounds of `first`, then those of `second`, on the same ranks and slots.

    Raises:
        InputError: their ranks, slots, helpers or shares differ.
    """
    a, b = first.expand(), second.expand()
    shape = [(s.n_ranks, s.n_slots, s.helpers, s.shares) for s in (a, b)]
    if shape[0] != shape[1]:
        raise InputError(f"schedule: (ranks, slots, helpers, shares) {shape[0]} cannot be followed by {shape[1]}")
    rounds = [_sends(s, rows) for s in (a, b) for rows in s.rounds()]
    return Schedule.build(a.n_ranks, a.n_slots, rounds, shares=a.shares, helpers=a.helpers)


def rotate(schedule: Schedule, root: int, *, slots_are_ranks: bool) -> Schedule:
    """A schedule of root 0 made one of `root`: rank r becomes r + root mod N, and so do slots that are named by rank."""
    full, n = schedule.expand(), schedule.n_ranks
    if root == 0:
        return full
    parts = full.n_slots // n if slots_are_ranks else 1

    def move(ranks: I64) -> I64:
        return np.where(ranks < n, (ranks + root) % n, ranks)

    def moved(rows: slice) -> Sends:
        slot = full.slot[rows].astype(np.int64)
        slot = move(slot // parts) * parts + slot % parts if slots_are_ranks else slot
        src, dst = (move(c[rows].astype(np.int64)) for c in (full.src, full.dst))
        return Sends(src, dst, slot, full.reduce[rows], full.channel[rows])

    rounds = [moved(rows) for rows in full.rounds()]
    return Schedule.build(n, full.n_slots, rounds, shares=full.shares, helpers=full.helpers)
