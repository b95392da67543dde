"""A second proof of a schedule, which runs it on random integers, independently of the first proof.

The integers have 64 bits and wrap around, so that a sum with a missing or repeated value is right only by chance. An empty cell
of a rank holds noise until it is first written. An empty cell of a helper holds 0 when it is first added to.
"""

from collections.abc import Iterator

import numpy as np

from emu.arrays import I32, I64, Bool
from emu.collective.operation import Operation
from emu.collective.proof import ProofError, check_shapes, final_fault
from emu.collective.schedule import Schedule

_CELLS = 2**22  # cells held at one time; where no row renames slots, they are checked in batches


def check_integers(schedule: Schedule, operation: Operation, seed: int = 0) -> None:
    """Run a schedule on a random integer for each (rank, slot), and check the results.

    Every wanted slot must hold the sum of the values that its holders had.

    Raises:
        ProofError: A value is wrong; the message names the first.
    """
    full = schedule.expand()
    check_shapes(full, operation)
    generator = np.random.default_rng(seed)
    for slots in _some_slots(full):
        _check_slots(full, operation, slots, generator)


def _some_slots(schedule: Schedule) -> Iterator[range]:
    """Yield ranges of slots that are checked together, to limit memory; one range if rows rename slots."""
    names = schedule.n_slots + len(schedule.temps)
    step = names if schedule.dst_slot is not None else max(1, _CELLS // schedule.n_participants)
    return (range(low, min(low + step, names)) for low in range(0, names, step))


def _check_slots(schedule: Schedule, operation: Operation, slots: range, generator: np.random.Generator) -> None:
    """Run a range of a schedule's slots on random integers, and check the results.

    Raises:
        ProofError: A value is wrong; the message names the first.
    """
    shape = (schedule.n_participants, len(slots))
    limits = np.iinfo(np.int64)
    value, filled = generator.integers(limits.min, limits.max, shape, endpoint=True), np.zeros(shape, np.bool_)
    has, wants = (_per_slot(rows, schedule, operation, slots) for rows in (operation.have, operation.want))
    filled[has] = True
    whole = np.where(filled, value, 0).sum(axis=0)
    rows = np.flatnonzero((schedule.slot >= slots.start) & (schedule.slot < slots.stop))
    ends = np.searchsorted(rows, schedule.round_end)
    for now in np.split(rows, ends[:-1]):
        _run_round(schedule, value, filled, now, slots.start)
    wrong = np.flatnonzero(~filled[wants] | (value[wants] != whole[wants[1]]))
    if len(wrong):
        rank, slot = (int(axis[wrong[0]]) for axis in wants)
        raise ProofError(
            f"proof: on integers: rank {rank}, slot {slot + slots.start} holds {value[rank, slot]}, it must be the "
            f"sum {whole[slot]}",
            final_fault(schedule, rank, slot + slots.start),
        )


def _run_round(schedule: Schedule, value: I64, filled: Bool, rows: I64, first: int) -> None:
    """Run one round in place: all reads, then overwrites, then additions.

    The first add to an empty cell finds 0 there on a helper, and noise on a rank.

    Args:
        schedule: The schedule.
        value: The value of each cell of the range of slots.
        filled: Whether each cell has been written.
        rows: The rows of the round.
        first: The first slot of the range.
    """
    adds = schedule.reduce[rows]
    read = value[schedule.src[rows], schedule.slot[rows] - first]
    cell = schedule.dst[rows], schedule.written_slot[rows] - first
    was_empty = ~filled[cell] & (cell[0] >= schedule.n_ranks)
    value[cell[0][was_empty], cell[1][was_empty]] = 0
    value[cell[0][~adds], cell[1][~adds]] = read[~adds]
    np.add.at(value, (cell[0][adds], cell[1][adds]), read[adds])
    filled[cell] = True


def _per_slot(pairs: I32, schedule: Schedule, operation: Operation, slots: range) -> tuple[I64, I64]:
    """Return the rank and the slot of each (rank, block) pair for a range of slots; slots count from the first of the range."""
    parts = schedule.n_slots // operation.n_blocks
    slot = (pairs[:, 1, None].astype(np.int64) * parts + np.arange(parts)).ravel()
    asked = (slot >= slots.start) & (slot < slots.stop)
    return np.repeat(pairs[:, 0], parts)[asked].astype(np.int64), slot[asked] - slots.start
