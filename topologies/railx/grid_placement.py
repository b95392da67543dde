"""The largest part of RailX for one job where nodes are faulty: each fault costs its row or its column of nodes (6.6, A.5).

The optical switches close the rings around the gaps; the result is another topology.
"""

from functools import partial

import numpy as np

from emu.arrays import I64, column
from emu.errors import must_be
from emu.topology.topology import Placer
from topologies.railx.rail_wiring import NAME, System

_MOST = 20  # largest number of rows with faults that share a row or a column: 2**20 cases


def largest_grid(rows: int, columns: int, faults: I64) -> tuple[I64, I64]:
    """Return the rows and columns of a grid of nodes to keep, so that most nodes without a fault are left (RailX Algorithm 2).

    A fault alone in its row and column costs one of either. For the others each case is tried. The paper's cases are a row or a
    column for each fault; here a case is a set of rows, which then gives the columns, so that there are fewer cases.

    Args:
        rows: Rows of the grid.
        columns: Columns of the grid.
        faults: [F, 2] row and column of each faulty node.

    Raises:
        InputError: More than 20 rows (and columns) have faults that share one.
    """
    faults = np.unique(faults.reshape(-1, 2), axis=0)
    if len(np.unique(_shared_faults(faults)[:, 1])) < len(np.unique(_shared_faults(faults)[:, 0])):
        kept_columns, kept_rows = _largest_grid(columns, rows, faults[:, ::-1])
        return kept_rows, kept_columns
    return _largest_grid(rows, columns, faults)


def _shared_faults(faults: I64) -> I64:
    """Return the faults that share a row or a column with another, the paper's C."""
    row, col = (np.bincount(faults[:, axis])[faults[:, axis]] if len(faults) else column([], np.int64) for axis in (0, 1))
    return faults[(row > 1) | (col > 1)]


def _largest_grid(rows: int, columns: int, faults: I64) -> tuple[I64, I64]:
    """Return the rows and columns of the largest grid without a faulty node, as trials over rows with faults find it."""
    crowded = _shared_faults(faults)
    alone = faults[~(faults[:, None] == crowded).all(axis=2).any(axis=1)]
    some_rows, row = np.unique(crowded[:, 0], return_inverse=True)
    if len(some_rows) > _MOST:
        raise must_be(NAME, "rows with faults that share a row or a column", f"at most {_MOST}", len(some_rows))
    some_columns, col = np.unique(crowded[:, 1], return_inverse=True)
    cases = np.arange(1 << len(some_rows))  # a bit for each row that goes
    hit = [int(np.bitwise_or.reduce(1 << row[col == c])) for c in range(len(some_columns))]
    width = rows - sum((cases >> bit & 1 for bit in range(len(some_rows))), np.zeros_like(cases))
    height = columns - sum(((rows_of & ~cases) != 0 for rows_of in hit), np.zeros_like(cases))
    as_rows = np.clip((width - height + len(alone)) // 2, 0, len(alone))  # r' of A.5: as square as can be
    size = np.maximum(0, width - as_rows) * np.maximum(0, height - (len(alone) - as_rows))
    best = int(size.argmax())
    gone_rows = [*some_rows[(best >> np.arange(len(some_rows)) & 1) == 1], *alone[: as_rows[best], 0]]
    gone_columns = [*(c for c, rows_of in zip(some_columns, hit, strict=True) if rows_of & ~best), *alone[as_rows[best] :, 1]]
    return np.setdiff1d(np.arange(rows), gone_rows), np.setdiff1d(np.arange(columns), gone_columns)


def placer(system: System) -> Placer:
    """Return the placement on the chips of the largest part without a faulty node; a faulty chip makes its node faulty."""
    return partial(_place, system)


def _place(system: System, n_ranks: int, faulty: I64) -> I64:
    """Return the NPUs of the largest grid without a faulty node, node by node."""
    node = np.unique(faulty // system.m**2)
    rows, columns = largest_grid(
        system.sizes[1], system.sizes[0], np.stack((node // system.sizes[0], node % system.sizes[0]), -1)
    )
    kept = (rows[:, None] * system.sizes[0] + columns).ravel()
    return column(kept[:, None] * system.m**2 + np.arange(system.m**2), np.int64)
