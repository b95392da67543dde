"""The nodes that a job gets on RailX beside other jobs: a grid of rows and columns, which optical switches join (A.5).

The rows and the columns of a grid need not lie side by side. Letters: a set of columns is a whole number, a bit for each.
"""

import numpy as np

from emu.arrays import I64, Bool, column
from emu.topology.gang_rule import NOWHERE, within_units
from topologies.railx.rail_wiring import System


def gang_on_grid(system: System, size: int, group: int, free: Bool) -> I64:
    """Return the chips of a job: a grid of free nodes with the fewest nodes that have room; none without such a grid.

    A job no larger than a node stays within one, and several can share it. A larger job holds all chips of its grid.

    Args:
        system: The system.
        size: The chips of the job.
        group: The chips of a group; groups follow one another on the grid.
        free: [N] the chips that work and have no job.
    """
    chips, (columns, rows) = system.m**2, system.sizes
    if size <= chips:
        return within_units(chips)(size, size, free)
    nodes = np.asarray(free.reshape(rows, columns, chips).all(axis=2))
    if int(nodes.sum()) * chips < size:
        return NOWHERE
    found = free_grid(nodes, -(-size // chips))
    if found is None:
        return NOWHERE
    grid = (found[0][:, None] * columns + found[1]).ravel()
    return column((grid[:, None] * chips + np.arange(chips)).ravel(), np.int64)


def free_grid(free: Bool, nodes: int) -> tuple[I64, I64] | None:
    """Return the rows and the columns of a grid of free nodes, as small and as square as can be; None if none is found.

    For each shape and each first row, the rows are added that leave most columns. The largest set of common columns is hard to
    find, and this way does not always find it.

    Args:
        free: [rows, columns] the free nodes.
        nodes: The nodes that the grid must have at least.
    """
    rows, columns = free.shape
    sets = [int("".join("1" if cell else "0" for cell in row[::-1]), 2) for row in free]
    shapes = [(r, -(-nodes // r)) for r in range(1, rows + 1) if -(-nodes // r) <= columns]
    for high, wide in sorted(shapes, key=lambda shape: (shape[0] * shape[1], sum(shape))):
        for first in sorted(range(rows), key=lambda row: sets[row].bit_count()):
            chosen, common = _grown(sets, first, high, wide)
            if len(chosen) == high:
                kept = [c for c in range(columns) if common >> c & 1][:wide]
                return column(sorted(chosen), np.int64), column(kept, np.int64)
    return None


def _grown(sets: list[int], first: int, high: int, wide: int) -> tuple[list[int], int]:
    """Return up to `high` rows from a first one on, and their common columns, of which there are `wide` or more.

    There are fewer rows if no further one leaves so many columns.
    """
    chosen, common = [first], sets[first]
    if common.bit_count() < wide:
        return [], 0
    left = [row for row in range(len(sets)) if row != first]
    while len(chosen) < high:
        best = max(left, key=lambda row: ((sets[row] & common).bit_count(), -(sets[row].bit_count())))
        if (sets[best] & common).bit_count() < wide:
            break
        chosen.append(best)
        left.remove(best)
        common &= sets[best]
    return chosen, common
