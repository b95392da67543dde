"""The part of a schedule that its translations carry to all the rest: a proof of that part is a proof of the whole.

Letters: N ranks; S stored rows, of N times as many. A schedule with translations is defined as what they make of the rows of
rank 0. Where they also map the operation onto itself, a result for one slot holds for every translation of that slot. Each slot
is a translation of a slot whose first rank digit is 0, and slots do not depend on one another. So it is enough to prove the
slots whose first digit is 0, which takes S rows of all ranks.
"""

import numpy as np

from emu.arrays import I32
from emu.collective.operation import Operation
from emu.collective.proof import check_shapes
from emu.collective.schedule import RowsError, Schedule, Sends, Translations


def slot_representatives(schedule: Schedule, operation: Operation) -> tuple[Schedule, Operation]:
    """Return the schedule of the slots whose first rank digit is 0, with all their rows, and the operation on those slots.

    Raises:
        ProofError: The schedule has other ranks or blocks than the operation.
        RowsError: No translations are declared, or they do not map the operation onto itself, so that every row is needed.
    """
    check_shapes(schedule, operation)
    rows = f"{schedule.n_rows * schedule.n_ranks} rows"
    if not schedule.translate or schedule.slot_digits < 1:
        raise RowsError(f"schedule: {rows} and no translation that moves slots is declared")
    blocks = block_translations(schedule, operation)
    if blocks is None:
        raise RowsError(f"schedule: {rows}, and its translations do not map {operation.name} on itself")
    moves, n = schedule.translations, schedule.n_ranks
    first = (_to_first(schedule, now, moves) for now in schedule.rounds())
    part = Schedule.build(n, schedule.n_slots // n, first)
    return part, _first_blocks(operation, operation.n_blocks // n if blocks.slot_digits else operation.n_blocks)


def block_translations(schedule: Schedule, operation: Operation) -> Translations | None:
    """Return the translations of blocks that belong to a schedule's declared translations.

    None: they do not map the operation onto itself, or they would tear a block apart.
    """
    n, count = schedule.n_ranks, operation.n_blocks
    digits = max(d for d in range(schedule.slot_digits + 1) if count % n**d == 0)
    if digits < schedule.slot_digits and count != n**digits:
        return None
    blocks = Translations(schedule.translate, count, digits)
    return blocks if all(_maps(blocks, pairs) for pairs in (operation.have, operation.want)) else None


def adds_once_per_round(schedule: Schedule) -> bool:
    """Return whether every round adds at most once to each (rank, slot).

    Several adds fold in ascending rank, and a translation does not keep that order. Then bits that are equal here need not be
    equal elsewhere.
    """
    for rows in schedule.rounds():
        adds = schedule.reduce[rows]
        cell = schedule.dst[rows][adds].astype(np.int64) * schedule.n_slots + schedule.slot[rows][adds]
        if len(np.unique(cell)) < len(cell):
            return False
    return True


def _to_first(schedule: Schedule, rows: slice, moves: Translations) -> Sends:
    """Return each row translated so that the first digit of its slot is 0.

    Exactly one translation of a row has that property.
    """
    slot = schedule.slot[rows]
    back = moves.opposite(slot // (schedule.n_slots // schedule.n_ranks))
    dst = moves.rank(schedule.dst[rows], back)
    return Sends(back, dst, moves.slot(slot, back), schedule.reduce[rows], schedule.channel[rows])


def _maps(blocks: Translations, pairs: I32) -> bool:
    """Return whether translations map a set of (rank, block) pairs onto itself.

    Each pair is brought to rank 0; there every block must occur N times or never.
    """
    if len(pairs) == blocks.n_ranks * blocks.n_slots:
        return True
    rank, block = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    times = np.bincount(blocks.slot(block, blocks.opposite(rank)))
    return bool(np.isin(times, (0, blocks.n_ranks)).all())


def _first_blocks(operation: Operation, count: int) -> Operation:
    """Return the operation without the blocks from `count` on."""
    have, want = (pairs[pairs[:, 1] < count] for pairs in (operation.have, operation.want))
    return Operation(operation.name, operation.n_ranks, count, have, want, operation.root)
