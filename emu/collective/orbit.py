"""A part of a schedule that its translations carry to all the rest: to prove it there is to prove it everywhere.

N ranks; S stored rows, of N times as many. The schedule is by construction what its translations make of the rows of rank 0.
Where they also map the operation on itself, what is right of one slot is right of every translation of it; each slot is a
translation of one whose first rank digit is 0, and slots are independent. Left over is the proof of those, S rows of all ranks.
"""

import numpy as np

from emu.arrays import I32
from emu.collective.operation import Operation
from emu.collective.proof import check_shapes
from emu.collective.schedule import RowsError, Schedule, Sends
from emu.collective.translation import Translations


def one_of_each(schedule: Schedule, operation: Operation) -> tuple[Schedule, Operation]:
    """The slots whose first rank digit is 0, with all their rows, and what the operation says of them.

    Raises:
        ProofError: a schedule of other ranks or blocks than the operation's.
        RowsError: nothing is declared, or it does not map the operation on itself, so that every row would be needed.
    """
    check_shapes(schedule, operation)
    rows = f"{schedule.n_rows * schedule.n_ranks} rows"
    if not schedule.translate or schedule.slot_digits < 1:
        raise RowsError(f"schedule: {rows} and no translation that moves slots is declared")
    blocks = blocks_of(schedule, operation)
    if blocks is None:
        raise RowsError(f"schedule: {rows}, and its translations do not map {operation.name} on itself")
    moves, n = schedule.translations, schedule.n_ranks
    first = (_to_first(schedule, now, moves) for now in schedule.rounds())
    part = Schedule.build(n, schedule.n_slots // n, first)
    return part, _first_blocks(operation, operation.n_blocks // n if blocks.slot_digits else operation.n_blocks)


def blocks_of(schedule: Schedule, operation: Operation) -> Translations | None:
    """What the declared translations of a schedule do to blocks; nothing unless they map the operation on itself.

    They do not where a block would be torn apart.
    """
    n, count = schedule.n_ranks, operation.n_blocks
    digits = max(d for d in range(schedule.slot_digits + 1) if count % n**d == 0)
    if digits < schedule.slot_digits and count != n**digits:
        return None
    blocks = Translations(schedule.translate, count, digits)
    return blocks if all(_maps(blocks, pairs) for pairs in (operation.have, operation.want)) else None


def folds_alike(schedule: Schedule) -> bool:
    """Whether no round adds twice to one (rank, slot).

    Such adds fold in ascending rank, which a translation does not keep: bits that are equal here need not be elsewhere.
    """
    for rows in schedule.rounds():
        adds = schedule.reduce[rows]
        cell = schedule.dst[rows][adds].astype(np.int64) * schedule.n_slots + schedule.slot[rows][adds]
        if len(np.unique(cell)) < len(cell):
            return False
    return True


def _to_first(schedule: Schedule, rows: slice, moves: Translations) -> Sends:
    """Each row translated so that its slot's first digit is 0; of all translations of a row, exactly that one is."""
    slot = schedule.slot[rows]
    back = moves.opposite(slot // (schedule.n_slots // schedule.n_ranks))
    dst = moves.rank(schedule.dst[rows], back)
    return Sends(back, dst, moves.slot(slot, back), schedule.reduce[rows], schedule.channel[rows])


def _maps(blocks: Translations, pairs: I32) -> bool:
    """Whether translations bring (rank, block) pairs to (rank, block) pairs of the same set: one of N brings each to rank 0."""
    if len(pairs) == blocks.n_ranks * blocks.n_slots:
        return True
    rank, block = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    times = np.bincount(blocks.slot(block, blocks.opposite(rank)))
    return bool(np.isin(times, (0, blocks.n_ranks)).all())


def _first_blocks(operation: Operation, count: int) -> Operation:
    have, want = (pairs[pairs[:, 1] < count] for pairs in (operation.have, operation.want))
    return Operation(operation.name, operation.n_ranks, count, have, want, operation.root)
