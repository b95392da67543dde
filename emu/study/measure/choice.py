"""Which algorithm serves each request of a run on this topology? The fastest, by timing each that fits on the fabric.

What is chosen depends on the request and the topology alone: every rank, every engine and every replay is served alike.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from emu.arrays import I32
from emu.collective.algorithm import ALGORITHMS, Algorithm, Choice, Request, Served, stored
from emu.collective.operation import Operation, operation
from emu.collective.schedule import RowsError, Schedule
from emu.collective.shape import Grid, Part
from emu.errors import InputError
from emu.fabric.lowering.circuits import TornError
from emu.registry import unknown
from emu.study.measure.timing import least_fs, time_collective
from emu.topology.placement import hubs, order, place
from emu.topology.topology import Topology
from emu.trace.device import FLOAT_BYTES, timed_as

AUTO = "auto"
_ROUNDING = 1e-6  # far above what the rounding to ticks takes off a bound


def candidates(operation: str, n: int, topology: Topology, grid: Grid = ()) -> list[Algorithm]:
    """The algorithms of an operation that take n ranks, on the grid or not, in as many rows as memory should hold.

    Such as add in a switch only where one can.

    Raises:
        InputError: none fits.
    """
    of_operation = [a for _, a in ALGORITHMS if a.operation == operation]
    found = [a for a in of_operation if _fits(a, n, topology, grid)]
    if not found:
        raise InputError(f"choice: no algorithm of {operation} fits {n} ranks of {topology.name}; take another number of ranks")
    return found


def _fits(found: Algorithm, n: int, topology: Topology, grid: Grid) -> bool:
    try:
        helpers = stored(found.operation, found.name, n, 0, grid).helpers
    except InputError:
        return False
    if helpers and not topology.adds:
        return False
    return len(hubs(topology, place(topology, n), helpers)) == helpers


@dataclass(frozen=True, eq=False, slots=True)
class Fastest:
    """Chooses for a run with its ranks on the NPUs in their order, each group as if it were alone; call it with a request."""

    topology: Topology
    dtype: str  # what float32 is timed as

    def __call__(self, request: Request) -> Served:
        """What serves it: the first by name of those that take as little."""
        item_bytes = _item_bytes(timed_as(request.dtype, self.dtype))
        npus = tuple(order(self.topology)[list(request.ranks)].tolist())
        return fastest(self.topology, request._replace(ranks=npus, dtype=""), item_bytes)


@lru_cache(maxsize=2**14)
def fastest(topology: Topology, request: Request, item_bytes: int, send_overhead_fs: int = 0) -> Served:
    """The fastest algorithm for a request of elements of so many bytes, whatever their dtype, whose ranks are NPUs.

    Timed are, from the least bound on, those whose busiest link alone does not take longer than the best so far: the
    others cannot be faster. Passed over are those of more messages than can be timed.

    Raises:
        InputError: none fits.
    """
    n = len(request.ranks)
    grid = _grid(topology, request.ranks)
    op, placement = operation(request.operation, n, request.root), place(topology, n, request.ranks)
    race = _Race(op, grid, (request.elements, item_bytes, topology, placement), send_overhead_fs)
    found = {a.name: a for a in candidates(request.operation, n, topology, grid)}
    bounds = sorted((race.bound_fs(name), name) for name in found)
    best, end = "", np.inf
    for bound, name in bounds:
        taken = race.end_fs(name) if bound <= end and bound < np.inf else np.inf
        if (taken, name) < (end, best):
            best, end = name, taken
    if not best:
        raise InputError(f"choice: no algorithm of {op.name} can be timed on {n} ranks of {topology.name}; {race.refused[0]}")
    shape = found[best].fit(n, grid)
    return Served(best, () if isinstance(shape, int) else shape)


@dataclass(frozen=True, slots=True)
class _Race:
    """What each algorithm takes to serve one request; a schedule is built anew for each look, for a few fill the memory."""

    op: Operation
    grid: Grid
    job: tuple[int, int, Topology, I32]  # elements, bytes of each, where, the NPUs
    send_overhead_fs: int
    refused: list[InputError] = field(default_factory=list)  # why some cannot be timed

    def bound_fs(self, name: str) -> float:
        """What it takes at least; for ever where it has too many messages to be timed."""
        try:
            return least_fs(self.op, self._plan(name), *self.job, name=f"{self.op.name} {name}") * (1 - _ROUNDING)
        except RowsError as error:
            self.refused.append(error)
            return np.inf

    def end_fs(self, name: str) -> float:
        """When the last task ends; never where an optical switch would be torn, or every row be needed."""
        try:
            timeline = time_collective(self.op, self._plan(name), *self.job, self.send_overhead_fs, f"{self.op.name} {name}")
        except (RowsError, TornError) as error:
            self.refused.append(error)
            return np.inf
        return float(timeline.end_fs.max(initial=0))

    def _plan(self, name: str) -> Schedule:
        return stored(self.op.name, name, self.op.n_ranks, self.op.root, self.grid)


def _grid(topology: Topology, npus: tuple[int, ...]) -> Grid:
    """The topology's own, or the group's places on it where their order is that of the ranks."""
    if npus == tuple(range(topology.n_npus)):
        return topology.dims
    ascend = all(a < b for a, b in pairwise(npus))
    return Part(topology.dims, npus) if ascend and len(topology.dims) > 1 else ()


def _item_bytes(dtype: str) -> int:
    """Of an element; torch's names tell the bits of all but bool."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def choice_on(topology: Topology, words: Sequence[str], dtype: str) -> Choice:
    """What words such as `auto` and `all_reduce=direct` choose, in any order; without `auto` as `Choice.parse`.

    Args:
        topology: Where `auto` times, the ranks on its NPUs in their order.
        words: As they are typed.
        dtype: What float32 is timed as.

    Raises:
        InputError: as `Choice.parse`; or an unknown dtype.
    """
    if dtype not in FLOAT_BYTES:
        raise unknown("dtype", dtype, FLOAT_BYTES)
    named = Choice.parse(tuple(word for word in words if word != AUTO))
    return replace(named, chooser=Fastest(topology, dtype)) if AUTO in words else named
