"""The compilation of a schedule to strided operations and messages.

If translations give the rows of all ranks, only those of rank 0 are read, and their moves are carried to all ranks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.backend.executor.compiler.batches import Cutter, StridedOperation
from emu.backend.executor.compiler.crossing import Crossing, WireMessage, initial_copies, is_order_free, moves_of
from emu.backend.executor.compiler.schedule_cells import SCRATCH, CellRows, Cells, SlotLayout
from emu.collective.operation import Operation
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule, Translations
from emu.collective.transform import block_translations, rows_of_participants

_AT_A_TIME = 2**16  # rows of all ranks: few enough that their columns stay in cache


class ProgramRound(NamedTuple):
    """The messages and operations of one round; its receives may begin when the round before the previous one has ended."""

    sends: tuple[WireMessage, ...]
    receives: tuple[WireMessage, ...]
    batches: Sequence[StridedOperation]
    overwrites: bool = False  # True if batches write memory that the round's own sends read


@dataclass(frozen=True, eq=False, slots=True)
class CompiledProgram:
    """A schedule compiled for the ranks of this process, and the elements that it needs beside the buffers."""

    rounds: tuple[ProgramRound, ...]  # one for many rounds of the schedule, if all ranks are in this process
    scratch_count: int
    stage_count: int
    inbox_counts: tuple[int, ...]


def compile_schedule(schedule: Schedule, operation: Operation, block_counts: I64, given: I64, ranks: I64) -> CompiledProgram:
    """Return the compiled program of a schedule.

    Args:
        schedule: The schedule as it is stored.
        operation: The operation of the schedule.
        block_counts: [B] elements of each block.
        given: [regions, P] the address of each participant's region.
        ranks: The ranks of this process; helpers live with rank 0.

    Raises:
        RowsError: all rows, or all rows of one round, are needed, and they are too many.
    """
    people = np.arange(schedule.n_participants)
    here = np.isin(np.where(people < schedule.n_ranks, people, 0), ranks)
    layout = SlotLayout.of(schedule, operation, block_counts)
    carry = schedule.translations if here.all() and _carries(schedule, operation, layout) else None
    cells = Cells.of(schedule if carry else rows_of_participants(schedule, here), operation, layout, carry, here)
    where = given.copy()
    where[SCRATCH] += np.cumsum(cells.scratch) - cells.scratch
    cutter, crossing = Cutter(layout, where), Crossing(layout, where, here)
    rounds = [ProgramRound((), (), cutter.cut(initial_copies(layout, *cells.stay), carry))]
    if here.all():
        rounds += [ProgramRound((), (), _batches(rows, cutter, carry)) for rows in _some_rounds(cells, carry)]
    else:
        rounds += [_wire_round(cells.rows(at), cutter, crossing) for at in cells.schedule.rounds()]
    kept = tuple(r for r in rounds if r.sends or r.receives or r.batches)
    return CompiledProgram(kept, int(cells.scratch.sum()), cutter.stage_count, tuple(crossing.inbox_counts))


def _carries(schedule: Schedule, operation: Operation, layout: SlotLayout) -> bool:
    """Return True if translations carry what happens to the slots of rank 0 to all ranks, whose buffers have one layout."""
    alike = layout.have.alike is not None and layout.want.alike is not None
    return bool(schedule.translate) and alike and block_translations(schedule, operation) is not None


def _some_rounds(cells: Cells, carry: Translations | None) -> Iterator[CellRows]:
    """Yield the rows of some rounds at a time."""
    ends, most = cells.schedule.round_end, _AT_A_TIME // (carry.n_ranks if carry else 1)
    last = np.flatnonzero(np.diff((ends - 1) // max(1, most), append=-1))
    for low, high in pairwise((0, *ends[last].tolist())):
        yield cells.rows(slice(low, high))


def _batches(rows: CellRows, cutter: Cutter, carry: Translations | None) -> list[StridedOperation]:
    """Return the strided operations of some rounds none of whose rows crosses a wire."""
    if carry is None or is_order_free(rows):
        return cutter.cut(moves_of(rows), carry)
    if (n_rows := len(rows.src) * carry.n_ranks) > MAX_ROWS:
        why = "rows of rounds whose sums depend on the order of ranks"
        raise RowsError(f"schedule: {n_rows} {why}, at most 2**24 can be executed; take fewer ranks")
    return cutter.cut(moves_of(rows.for_all_ranks(carry)), None)


def _wire_round(rows: CellRows, cutter: Cutter, crossing: Crossing) -> ProgramRound:
    sends, receives, left, overwrites = crossing.cross(rows.take(cutter.layout.count[rows.slot] > 0))
    return ProgramRound(sends, receives, cutter.cut(moves_of(left), None), overwrites)
