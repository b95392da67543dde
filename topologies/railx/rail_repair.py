"""RailX's reaction to failed nodes (6.6, A.5): the largest part for one job, in which the optical switches set rails anew.

Each fault costs its row or its column of nodes. The optical switches close the rings around the gaps; the result is another
topology.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from emu.arrays import I64, Bool, column
from emu.errors import InputError, must_be
from emu.topology.fault_injection.machine_state import detour
from emu.topology.placement import without
from emu.topology.removal import remove_parts
from emu.topology.topology import FailedParts, Reaction, Topology
from emu.units import format_time, seconds
from topologies.railx.rail_wiring import NAME, RailGroup, System, check, show_groups

_MOST = 20  # largest number of rows with faults that share a row or a column: 2**20 cases


def largest_grid(rows: int, columns: int, faults: I64) -> tuple[I64, I64]:
    """Return the rows and columns of a grid of nodes to keep, so that most nodes without a fault remain (RailX Algorithm 2).

    A fault that is alone in its row and column costs one of either. For the others each case is tried. The paper's cases are a
    row or a column for each fault; here a case is a set of rows, from which the columns follow, so that there are fewer cases.

    Args:
        rows: The number of rows.
        columns: The number of columns.
        faults: [F, 2] the row and the column of each faulty node.

    Raises:
        InputError: More than 20 rows (and columns) have faults that share one.
    """
    faults = np.unique(faults.reshape(-1, 2), axis=0)
    if len(np.unique(_shared_faults(faults)[:, 1])) < len(np.unique(_shared_faults(faults)[:, 0])):
        kept_columns, kept_rows = _largest_grid(columns, rows, faults[:, ::-1])
        return kept_rows, kept_columns
    return _largest_grid(rows, columns, faults)


def _shared_faults(faults: I64) -> I64:
    """Return the faults that share a row or a column with another fault, the paper's C."""
    row, col = (np.bincount(faults[:, axis])[faults[:, axis]] if len(faults) else column([], np.int64) for axis in (0, 1))
    return faults[(row > 1) | (col > 1)]


def _largest_grid(rows: int, columns: int, faults: I64) -> tuple[I64, I64]:
    """Return the rows and columns of the largest grid without a faulty node, found by trying sets of rows that have faults."""
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


_Grid = tuple[I64, I64]  # the rows and the columns of nodes that rails join


def subnetworks(rows: int, columns: int, faults: I64) -> list[_Grid]:
    """Return grids of rows and columns that share no node and together have all nodes without a fault (A.5, Figure 20).

    Rows whose faults are in the same columns make a grid with all other columns; or columns with rows, if that is fewer.
    Optical switches can join each grid by itself: no two share a node, so no two need the same port.

    Args:
        rows: The number of rows.
        columns: The number of columns.
        faults: [F, 2] the row and the column of each faulty node.
    """
    faulty = np.zeros((rows, columns), np.bool_)
    faulty[tuple(faults.reshape(-1, 2).T)] = True
    by_row = _grids_of_equal_rows(faulty)
    by_column = [(across, along) for along, across in _grids_of_equal_rows(faulty.T)]
    return min(by_row, by_column, key=len)


def _grids_of_equal_rows(faulty: Bool) -> list[_Grid]:
    """Return grids for rows whose faults are in the same columns: these rows and all other columns."""
    patterns, of = np.unique(faulty, axis=0, return_inverse=True)
    found = [(np.flatnonzero(of.ravel() == i), np.flatnonzero(~pattern)) for i, pattern in enumerate(patterns)]
    return [grid for grid in found if len(grid[1])]


def several_jobs(system: System, group: int, faulty: Bool) -> I64:
    """Return [E] the chips that groups of a size can use in each state if jobs on all sub-networks share the machine.

    Args:
        system: The system.
        group: The number of chips of a group.
        faulty: [E, N] whether each chip is faulty; a faulty chip makes its node faulty.
    """
    columns, rows = system.sizes
    chips = system.m**2
    nodes = np.asarray(faulty.reshape(len(faulty), rows, columns, chips).any(axis=3))
    grids = (subnetworks(rows, columns, np.argwhere(state)) for state in nodes)
    return column([sum(len(r) * len(c) * chips // group * group for r, c in of) for of in grids], np.int64)


def place(system: System, n_ranks: int, faulty: I64) -> I64:
    """Return the NPUs of the largest grid without a faulty node, node by node; a faulty chip makes its node faulty."""
    return _chips(system, _without_nodes(system, faulty))


def _without_nodes(system: System, failed: I64) -> _Grid:
    """Return the largest grid without the nodes of failed chips."""
    columns, rows = system.sizes
    return _grid_without(rows, columns, tuple(np.unique(failed // system.m**2).tolist()))


@lru_cache(2**12)
def _grid_without(rows: int, columns: int, failed: tuple[int, ...]) -> _Grid:
    """Return the largest grid without some nodes; systems that differ in their links alone ask for the same ones."""
    node = column(failed, np.int64)
    return largest_grid(rows, columns, np.stack((node // columns, node % columns), -1))


def _chips(system: System, grid: _Grid) -> I64:
    """Return the chips of the nodes of a smaller grid, by their numbers in the whole system."""
    nodes = (grid[0][:, None] * system.sizes[0] + grid[1]).ravel()
    return column(nodes[:, None] * system.m**2 + np.arange(system.m**2), np.int64)


def repair_grid(
    system: System, built: Callable[[System], Topology], whole: Topology, broken: FailedParts, ranks: int, was: FailedParts
) -> Reaction:
    """Return the reaction to failed parts: the largest grid without a failed node, over which rails are split again.

    If only links have failed, messages take other rails. Rails that cannot be split again, such as those of an all-to-all whose
    number of nodes no longer suits them, stay as they are if the remaining nodes have room for the job.

    Raises:
        InputError: Rails cannot be split again, and there is no such room.
    """
    grid, before = (_grid(system, whole, each, ranks) for each in (broken, was))
    same = all(map(np.array_equal, grid, before))
    took_fs = 0 if same else system.hardware.turning
    told = "messages take the other rails; no optical switch turns" if same else _split_words(grid, took_fs)
    of = _chips(system, grid)
    if len(of) == system.npus:
        left = detour(whole, broken, ranks).topology
        npus = whole.place(ranks, broken.nodes if _job_has_failed_node(system, whole, broken, ranks) else ())
        return Reaction(replace(left, placer=partial(without, npus)), took_fs, told)  # the job stays, whatever fails elsewhere
    failed = np.unique(column(broken.nodes, np.int64) // system.m**2)
    name = f"{whole.name}, rails split anew without node {'+'.join(map(str, failed.tolist()))}"
    left = replace(built(_system_on_grid(system, grid)), name=name)
    if broken.cables:
        cut = FailedParts((), broken.cables).marks(of[left.links.src], of[left.links.dst])
        left = remove_parts(left, links=np.flatnonzero(cut))
    return Reaction(left, took_fs, told, of)


def _grid(system: System, whole: Topology, broken: FailedParts, ranks: int) -> _Grid:
    """Return the grid of nodes that is used: all nodes, or those left after a repair around failed nodes.

    Raises:
        InputError: See `repair_grid`.
    """
    columns, rows = system.sizes
    every = np.arange(rows), np.arange(columns)
    if not _job_has_failed_node(system, whole, broken, ranks):
        return every
    grid = _without_nodes(system, column(broken.nodes, np.int64))
    try:
        check(_system_on_grid(system, grid))
    except InputError:
        if len(_chips(system, grid)) < ranks:
            raise
        return every
    return grid


def _job_has_failed_node(system: System, whole: Topology, broken: FailedParts, ranks: int) -> bool:
    """Return whether one of the failed nodes has a rank of the job."""
    chips = system.m**2
    return bool(np.isin(whole.place(ranks) // chips, column(broken.nodes, np.int64) // chips).any())


def _system_on_grid(system: System, grid: _Grid) -> System:
    """Return the system with its rails split over the rows and columns of a grid."""
    rows, columns = map(len, grid)
    return replace(system, x=_groups_of_size(system.x, columns, "X"), y=_groups_of_size(system.y, rows, "Y"))


def _split_words(grid: _Grid, turning_fs: int) -> str:
    """Return the sentence on rails that were split again."""
    return (
        f"rails are split anew over {len(grid[1])} x {len(grid[0])} nodes (A.5), as optical switches turn in "
        f"{format_time(seconds(turning_fs))} at most (5.2)"
    )


def _groups_of_size(groups: tuple[RailGroup, ...], nodes: int, axis: str) -> tuple[RailGroup, ...]:
    """Return the dimensions of X or of Y for another number of nodes along it.

    Args:
        groups: The dimensions as they are; they stay so if they have that number of nodes.
        nodes: The number of nodes; if there is one dimension, it gets this size.
        axis: `X` or `Y`, for messages.

    Raises:
        InputError: There are several dimensions, or the rails cannot join each of so many nodes to every other.
    """
    sizes = [group.size for group in groups]
    if nodes == int(np.prod(sizes)):
        return groups
    group = groups[0]
    what = f"such that {nodes} nodes along {axis} make one dimension"
    if len(groups) > 1 or (group.wiring == "complete" and (nodes < 2 or group.rails % (nodes - 1))):
        mend = "so the job cannot go on where a node of it fails; take rings (railx:torus)"
        raise must_be(NAME, "rails", what, show_groups(groups), mend)
    return (replace(group, size=nodes),)
