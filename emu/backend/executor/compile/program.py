"""From a schedule to batches: what is copied or added from where to where, in which order.

Where translations give the rows of all ranks, those of rank 0 are read, and what they come to is carried to all ranks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.backend.executor.compile.batches import Batch, Cutter
from emu.backend.executor.compile.cells import Cells, Rows
from emu.backend.executor.compile.crossing import Crossing, Transfer
from emu.backend.executor.compile.layout import SCRATCH, Layout
from emu.backend.executor.compile.moves import copies, in_any_order, moves_of
from emu.collective.operation import Operation
from emu.collective.orbit import block_translations
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule
from emu.collective.transform import rows_of_participants
from emu.collective.translation import Translations

_AT_A_TIME = 2**16  # rows of all ranks: few enough for what is made of them to stay in cache


class Round(NamedTuple):
    """What the ranks here do in one round; its receives may begin once the round before the one before has ended."""

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]
    batches: Sequence[Batch]
    overwrites: bool = False  # do batches write what its own sends read


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """A schedule compiled for the ranks here, and how many elements it needs beside the buffers."""

    rounds: tuple[Round, ...]  # where all ranks are here, one for many of the schedule's
    scratch_count: int
    stage_count: int
    inbox_counts: tuple[int, ...]


def compiled(schedule: Schedule, operation: Operation, block_counts: I64, given: I64, ranks: I64) -> Program:
    """Compile a schedule.

    Args:
        schedule: As it is stored.
        operation: What it is for.
        block_counts: [B] elements of each block.
        given: [regions, P] the address of each participant's region.
        ranks: Those that are here; helpers live with rank 0.

    Raises:
        RowsError: every row is needed, or every one of a round, and they are too many.
    """
    people = np.arange(schedule.n_participants)
    here = np.isin(np.where(people < schedule.n_ranks, people, 0), ranks)
    layout = Layout.of(schedule, operation, block_counts)
    carry = schedule.translations if here.all() and _carries(schedule, operation, layout) else None
    cells = Cells.of(schedule if carry else rows_of_participants(schedule, here), operation, layout, carry, here)
    where = given.copy()
    where[SCRATCH] += np.cumsum(cells.scratch) - cells.scratch
    cutter, crossing = Cutter(layout, where), Crossing(layout, where, here)
    rounds = [Round((), (), cutter.cut(copies(layout, *cells.stay), carry))]
    if here.all():
        rounds += [Round((), (), _batches(rows, cutter, carry)) for rows in _some_rounds(cells, carry)]
    else:
        rounds += [_crossed(cells.rows(at), cutter, crossing) for at in cells.schedule.rounds()]
    kept = tuple(r for r in rounds if r.sends or r.receives or r.batches)
    return Program(kept, int(cells.scratch.sum()), cutter.stage_count, tuple(crossing.inbox_counts))


def _carries(schedule: Schedule, operation: Operation, layout: Layout) -> bool:
    """Whether what befalls the slots of rank 0 befalls those of all ranks, in buffers that are laid out alike."""
    alike = layout.have.alike is not None and layout.want.alike is not None
    return bool(schedule.translate) and alike and block_translations(schedule, operation) is not None


def _some_rounds(cells: Cells, carry: Translations | None) -> Iterator[Rows]:
    """The rows of some rounds at a time."""
    ends, most = cells.schedule.round_end, _AT_A_TIME // (carry.n_ranks if carry else 1)
    last = np.flatnonzero(np.diff((ends - 1) // max(1, most), append=-1))
    for low, high in pairwise((0, *ends[last].tolist())):
        yield cells.rows(slice(low, high))


def _batches(rows: Rows, cutter: Cutter, carry: Translations | None) -> list[Batch]:
    """Of some rounds, none of whose rows crosses a wire."""
    if carry is None or in_any_order(rows):
        return cutter.cut(moves_of(rows), carry)
    if (n_rows := len(rows.src) * carry.n_ranks) > MAX_ROWS:
        why = "rows of rounds whose sums depend on the order of ranks"
        raise RowsError(f"schedule: {n_rows} {why}, at most 2**24 can be executed; take fewer ranks")
    return cutter.cut(moves_of(rows.everywhere(carry)), None)


def _crossed(rows: Rows, cutter: Cutter, crossing: Crossing) -> Round:
    crossed = crossing.cross(rows.take(cutter.layout.count[rows.slot] > 0))
    return Round(crossed.sends, crossed.receives, cutter.cut(moves_of(crossed.rows), None), crossed.overwrites)
