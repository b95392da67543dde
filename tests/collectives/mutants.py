"""Schedules damaged at random, and a reading of their rules row by row on integers that tells whether one still works.

It shares nothing with the proofs but the schedule's columns: plain dictionaries and whole numbers of any size.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

import numpy as np

from emu.arrays import I32, I64
from emu.collective.algorithm import Algorithm
from emu.collective.integers import check_integers
from emu.collective.operation import ROOTED, Operation, operation
from emu.collective.proof import ProofError, prove
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError

NS = (2, 3, 4, 5, 6, 7, 8)
_ROUND, _SRC, _DST, _SLOT, _REDUCE, _CHANNEL, _DST_SLOT = range(7)  # the rows of a table, a column a row of the schedule
_MOST_FAULTS = 3
_NUMBERS = 2**62


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one damaged schedule."""

    fault: str  # "several" for more than one
    wrong: bool  # read row by row, some rank ends with another value than it wants
    proof: str  # why the proof refused it; "" if it did not
    integers: str  # why it was refused on integers; "" if it was not

    @property
    def refused(self) -> bool:
        return bool(self.proof or self.integers)

    @property
    def reason(self) -> str:
        """Return why the proof refused it, without ranks and slots."""
        return next((words for words in _REASONS if words in self.proof), "another")


_REASONS = (
    "is added to it",
    "holds nothing",
    "is written by",
    "must have each once",
    "was summed in another order",
    "it must be the value",
)


def battery(found: Algorithm, times: int, seed: int = 0) -> Iterator[Outcome]:
    """`times` mutants of an algorithm, on its shapes of few ranks and on their roots in turn."""
    random = np.random.default_rng([seed, *found.key.encode()])
    cases = [
        (found.schedule(shape, root), operation(found.operation, n, root))
        for n in NS
        for shape, root in product(found.shapes(n), range(n) if found.operation in ROOTED else [0])
    ]
    for i in random.permutation(times).tolist():
        schedule, wanted = cases[i % len(cases)]
        fault, mutant = damaged(schedule, random)
        yield Outcome(fault, not runs_right(mutant, wanted, random), *refusals(mutant, wanted))


def refusals(schedule: Schedule, wanted: Operation) -> tuple[str, str]:
    """Why the proof refuses a schedule, and why it is refused on integers; "" where it is not."""
    return _refusal(prove, schedule, wanted), _refusal(check_integers, schedule, wanted)


def _refusal(check: Callable[[Schedule, Operation], object], schedule: Schedule, wanted: Operation) -> str:
    try:
        check(schedule, wanted)
    except ProofError as error:
        return str(error)
    return ""


def runs_right(schedule: Schedule, wanted: Operation, random: np.random.Generator) -> bool:
    """Return whether every wanted (rank, slot) ends as the sum of those that were had; empty cells hold noise, on helpers 0."""
    parts = schedule.n_slots // wanted.n_blocks
    cells: dict[tuple[int, int], int] = {}
    whole: Counter[int] = Counter()
    for rank, slot in _cells_of(wanted.have, parts):
        cells[rank, slot] = int(random.integers(_NUMBERS))
        whole[slot] += cells[rank, slot]
    for rows in schedule.rounds():
        columns = (schedule.src, schedule.slot, schedule.dst, schedule.written_slot, schedule.reduce)
        read = [
            (dst, slot, adds, cells.get((src, sent), int(random.integers(_NUMBERS))))
            for src, sent, dst, slot, adds in zip(*(c[rows].tolist() for c in columns), strict=True)
        ]
        cells |= {(dst, slot): value for dst, slot, adds, value in read if not adds}
        for dst, slot, adds, value in read:
            if adds:
                noise = int(random.integers(_NUMBERS)) if dst < schedule.n_ranks else 0
                cells[dst, slot] = cells.get((dst, slot), noise) + value
    return all(cells.get((rank, slot)) == whole[slot] for rank, slot in _cells_of(wanted.want, parts))


def _cells_of(pairs: I32, parts: int) -> Iterator[tuple[int, int]]:
    return ((rank, block * parts + part) for rank, block in pairs.tolist() for part in range(parts))


def damaged(schedule: Schedule, random: np.random.Generator) -> tuple[str, Schedule]:
    """A schedule with one fault, or in a third of all cases some more, and what fault it is."""
    original = _table(schedule)
    several = random.random() < 1 / 3
    while True:
        faults = [str(f) for f in random.choice(list(FAULTS), int(random.integers(2, _MOST_FAULTS + 1)) if several else 1)]
        table = original
        for fault in faults:
            if table.size:
                table = FAULTS[fault](table, schedule, random)
        with suppress(InputError):  # of rows that no schedule can have
            mutant = _schedule(table, schedule)
            if not np.array_equal(_table(mutant), original):
                return "several" if several else faults[0], mutant


def made_to_add(schedule: Schedule, most: int) -> Iterator[Schedule]:
    """The schedule with one of its copies made to add, for so many of them at most."""
    original = _table(schedule)
    copied = np.flatnonzero(original[_REDUCE] == 0)
    for row in copied[:: -(-len(copied) // most) or 1].tolist():
        table = original.copy()
        table[_REDUCE, row] = 1
        yield _schedule(table, schedule)


def _table(schedule: Schedule) -> I64:
    columns = (schedule.src, schedule.dst, schedule.slot, schedule.reduce, schedule.channel, schedule.written_slot)
    return np.array([schedule.round_column(), *columns], np.int64)


def _schedule(table: I64, like: Schedule) -> Schedule:
    rounds = (Sends(*table[1:, table[_ROUND] == t]) for t in np.unique(table[_ROUND]))
    return Schedule.build(like.n_ranks, like.n_slots, rounds, shares=like.shares, helpers=like.helpers, temps=like.temps)


Fault = Callable[[I64, Schedule, np.random.Generator], I64]


def _row(table: I64, random: np.random.Generator) -> int:
    return int(random.integers(table.shape[1]))


def _dropped(table: I64, schedule: Schedule, random: np.random.Generator) -> I64:
    return np.delete(table, _row(table, random), axis=1)


def _doubled(table: I64, schedule: Schedule, random: np.random.Generator) -> I64:
    """Repeat a row as it is, to another rank, into another slot, on another channel or in another round."""
    copy = table[:, [_row(table, random)]]
    field = int(random.choice([_ROUND, _DST, _DST_SLOT, _CHANNEL, _REDUCE]))
    if field != _REDUCE:
        copy[field] = random.integers(_ends(schedule)[field])
    return np.concatenate([table, copy], axis=1)


def _redirected(table: I64, schedule: Schedule, random: np.random.Generator) -> I64:
    """Send a row from another rank, to another, or into another slot."""
    return _changed(table, schedule, random, [int(random.choice([_SRC, _DST, _DST_SLOT]))])


def _renamed(table: I64, schedule: Schedule, random: np.random.Generator) -> I64:
    """Send another slot, under its own name."""
    return _changed(table, schedule, random, [_SLOT, _DST_SLOT])


def _moved(table: I64, schedule: Schedule, random: np.random.Generator) -> I64:
    """Move a row to another round."""
    return _changed(table, schedule, random, [_ROUND])


def _changed(table: I64, schedule: Schedule, random: np.random.Generator, fields: list[int]) -> I64:
    changed = table.copy()
    changed[fields, _row(table, random)] = random.integers(_ends(schedule)[fields[0]])
    return changed


def _flipped(table: I64, schedule: Schedule, random: np.random.Generator) -> I64:
    flipped = table.copy()
    flipped[_REDUCE, _row(table, random)] ^= 1
    return flipped


def _copy_added(table: I64, schedule: Schedule, random: np.random.Generator) -> I64:
    """Add a copy to what its receiver has; where all rows add, nothing changes."""
    return _made_to_add(table, np.flatnonzero(table[_REDUCE] == 0), random)


def _first_added(table: I64, schedule: Schedule, random: np.random.Generator) -> I64:
    """Add the first write to a slot of its receiver to what is there; where all such rows add, nothing changes."""
    order = np.argsort(table[_ROUND], kind="stable")
    _, first = np.unique(table[[_DST, _DST_SLOT]][:, order], axis=1, return_index=True)
    rows = order[first]
    return _made_to_add(table, rows[table[_REDUCE, rows] == 0], random)


def _made_to_add(table: I64, rows: I64, random: np.random.Generator) -> I64:
    changed = table.copy()
    if len(rows):
        changed[_REDUCE, random.choice(rows)] = 1
    return changed


def _swapped(table: I64, schedule: Schedule, random: np.random.Generator) -> I64:
    order = np.arange(schedule.n_rounds)
    a, b = random.integers(schedule.n_rounds, size=2)
    order[[a, b]] = order[[b, a]]
    swapped = table.copy()
    swapped[_ROUND] = order[table[_ROUND]]
    return swapped


def _ends(schedule: Schedule) -> dict[int, int]:
    people, slots = schedule.n_participants, schedule.n_slots
    channels = int(schedule.channel.max(initial=0)) + 2
    return {
        _ROUND: schedule.n_rounds,
        _SRC: people,
        _DST: people,
        _SLOT: slots,
        _CHANNEL: channels,
        _DST_SLOT: slots,
    }


FAULTS: dict[str, Fault] = {
    "row dropped": _dropped,
    "row doubled": _doubled,
    "row redirected": _redirected,
    "other slot sent": _renamed,
    "row moved to another round": _moved,
    "reduce flag flipped": _flipped,
    "copy made reduce": _copy_added,
    "first write made reduce": _first_added,
    "two rounds swapped": _swapped,
}
