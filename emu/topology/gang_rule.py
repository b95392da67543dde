"""The places that a job gets on a machine on which other jobs run: all of them at once, or none (a gang).

A job of `size` NPUs is groups of `group` NPUs, such as those of tensor parallelism; a smaller job is one group, and the last
group may be smaller. The rule is the system's own, its `gangs`. Letters: N NPUs of a topology, U units, D dims.
"""

from collections.abc import Iterator, MutableMapping
from functools import lru_cache
from math import prod

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from emu.arrays import I64, Bool, column
from emu.topology.topology import GangPlacer, Topology

NOWHERE = column([], np.int64)
_PART = 64  # shapes of boxes that become tuples together
_KEPT_BYTES = 2**28  # of the free boxes of few dims that are kept while the place of one job is searched


def gang_placer(topology: Topology) -> GangPlacer:
    """Return the function that places gangs on a topology: its own; else any NPUs, or boxes where NPUs relay on a grid."""
    if topology.gangs is not None:
        return topology.gangs
    if len(topology.dims) > 1 and topology.passes[: topology.n_npus].all():
        return in_boxes(topology.dims)
    return anywhere


def anywhere(size: int, group: int, free: Bool) -> I64:
    """Return `size` free NPUs with numbers as near as can be: the shortest run that has room, else the longest runs."""
    at = np.flatnonzero(free)
    return NOWHERE if len(at) < size else at[_packed(at, size)]


def _packed(at: I64, size: int) -> I64:
    """Return the indices of `size` of some ascending numbers: those of the shortest run of consecutive ones with room.

    Without such a run they are those of the longest runs.
    """
    first = np.flatnonzero(np.diff(at, prepend=-2) != 1)
    length = np.diff(first, append=len(at))
    room = np.flatnonzero(length >= size)
    if len(room):
        begin = first[room[np.argmin(length[room])]]
        return np.arange(begin, begin + size)
    order = np.argsort(-length, kind="stable")
    taken = np.concatenate([np.arange(first[run], first[run] + length[run]) for run in order])
    return np.sort(taken[:size])


def within_units(unit: int) -> GangPlacer:
    """Return the placement by which a group stays within a unit of so many NPUs in a row, such as a host or a rack.

    A larger group takes whole units that are free. Jobs can share a unit.
    """

    def place(size: int, group: int, free: Bool) -> I64:
        left = free.reshape(-1, unit)
        return _within(size, group, left) if group <= unit else _whole_units(size, group, left)

    return place


def _within(size: int, group: int, free: Bool) -> I64:
    """Return the NPUs of groups within units, on as few units as can be, and on the fullest of them.

    Args:
        size: The NPUs of the job.
        group: The NPUs of a group, no more than those of a unit.
        free: [U, unit] the free NPUs.
    """
    count, unit = -(-size // group), free.shape[1]
    left = free.sum(axis=1)
    fits = left // group
    room = np.flatnonzero(fits >= count)
    if len(room):
        return _first(free, room[np.argmin(left[room])], size)
    order = np.argsort(-fits, kind="stable")
    taken = order[: np.searchsorted(np.cumsum(fits[order]), count) + 1]
    if fits[taken].sum() < count:
        return NOWHERE
    found = np.concatenate([np.flatnonzero(free[u])[: fits[u] * group] + u * unit for u in taken])
    return column(np.sort(found[:size]), np.int64)


def _first(free: Bool, unit: int, size: int) -> I64:
    """Return the first `size` free NPUs of one unit of [U, unit]."""
    return column(np.flatnonzero(free[unit])[:size] + unit * free.shape[1], np.int64)


def _whole_units(size: int, group: int, free: Bool) -> I64:
    """Return the NPUs of groups that take whole units of [U, unit] free NPUs; the last unit of a group may be left in part."""
    unit = free.shape[1]
    each, count = -(-group // unit), -(-size // group)
    whole = np.flatnonzero(free.all(axis=1))
    if len(whole) < each * count:
        return NOWHERE
    units = whole[_packed(whole, each * count)].reshape(count, each)
    npus = (units[:, :, None] * unit + np.arange(unit)).reshape(count, -1)[:, :group]
    return column(npus.ravel()[:size], np.int64)


def in_free_units(unit: int) -> GangPlacer:
    """Return the placement of `within_units`, but in units that are wholly free, such as rings that one fault breaks."""
    placed = within_units(unit)

    def place(size: int, group: int, free: Bool) -> I64:
        return placed(size, group, np.repeat(free.reshape(-1, unit).all(axis=1), unit))

    return place


def in_blocks(size: int, group: int, free: Bool) -> I64:
    """Return the NPUs of groups, each a block in a row that begins at a multiple of its size, wholly free.

    A group that does not divide the machine takes the next larger block that does.
    """
    block = next(each for each in range(group, len(free) + 1) if len(free) % each == 0)
    whole = np.flatnonzero(free.reshape(-1, block).all(axis=1))
    count = -(-size // group)
    if len(whole) < count:
        return NOWHERE
    blocks = whole[_packed(whole, count)]
    return column((blocks[:, None] * block + np.arange(block)).ravel(), np.int64)


def in_boxes(dims: tuple[int, ...]) -> GangPlacer:
    """Return the placement by which a job takes a box of a grid, so that no message of another job crosses it.

    The box is the smallest that has room, and the one with the least surface of these. The job holds all of it.

    Args:
        dims: [D] the sizes of the grid, the last counted fastest.
    """
    numbers = np.arange(prod(dims)).reshape(dims)

    def place(size: int, group: int, free: Bool) -> I64:
        count, known = int(free.sum()), LRUCache[tuple[int, ...], Bool](_KEPT_BYTES, lambda places: places.nbytes)
        if count < size:
            return NOWHERE
        for shape in _shapes(dims, size):
            if prod(shape) > count:
                break
            windows = _free_boxes(free.reshape(dims), shape, known)
            if windows.any():
                at = np.unravel_index(int(np.argmax(windows)), windows.shape)
                box = tuple(slice(int(begin), int(begin) + extent) for begin, extent in zip(at, shape, strict=True))
                return column(numbers[box].ravel(), np.int64)
        return NOWHERE

    return place


def _free_boxes(free: Bool, shape: tuple[int, ...], known: MutableMapping[tuple[int, ...], Bool]) -> Bool:
    """Return whether a box that is wholly free begins at each place of a grid, for the places at which it does not end outside.

    Args:
        free: The grid.
        shape: The extents of the box in the first dims of the grid; in the others it has one place.
        known: What has been found for fewer dims, as boxes of many shapes begin alike.
    """
    if not shape:
        return free
    if shape in known:
        return known[shape]
    found = _free_runs(_free_boxes(free, shape[:-1], known), len(shape) - 1, shape[-1])
    if len(shape) < free.ndim - 1:  # to one more extent belongs one last one, so that it is not asked for again
        known[shape] = found
    return found


def _free_runs(free: Bool, dim: int, extent: int) -> Bool:
    """Return whether `extent` places in a row along a dim are free, for each place from which so many follow."""
    if not free.any():
        return free[:0]
    grid, have = np.moveaxis(free, dim, 0), 1
    while have < extent:
        more = min(have, extent - have)
        grid, have = grid[:-more] & grid[more:], have + more
    return np.moveaxis(grid, 0, dim)


def _shapes(dims: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of boxes with room for a job: the smallest first, and of these the one with the least surface."""
    shapes = _ordered_shapes(dims, size)
    for first in range(0, len(shapes), _PART):
        yield from map(tuple, shapes[first : first + _PART].tolist())


@lru_cache(maxsize=2**9)
def _ordered_shapes(dims: tuple[int, ...], size: int) -> NDArray[np.unsignedinteger]:
    """Return [shapes, D] the shapes of boxes with room for a job, in the order in which they are tried."""
    lead = np.stack([extents.ravel() for extents in np.meshgrid(*(np.arange(1, each + 1) for each in dims[:-1]))], axis=1)
    shapes = np.column_stack((lead, -(-size // lead.prod(axis=1))))
    shapes = shapes[shapes[:, -1] <= dims[-1]]
    room = shapes.prod(axis=1)
    surface = (room[:, None] // shapes).sum(axis=1)
    order = np.lexsort((*shapes.T[::-1], surface, room))
    return shapes[order].astype(np.min_scalar_type(max(dims)))
