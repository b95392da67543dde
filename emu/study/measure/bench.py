"""How long does one collective take on an idle fabric, and did it do its job? The figures are those of nccl-tests."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import psutil

from emu.arrays import I32
from emu.backend.executor.execute import execute
from emu.backend.executor.reduction import REDUCE_OPERATIONS, check_reduces
from emu.bound.limit import Limit, limit_of
from emu.collective.algorithm import Choice, algorithm, schedule, stored
from emu.collective.operation import REDUCING, Operation, operation
from emu.collective.schedule import MAX_ROWS, Schedule
from emu.collective.shape import Grid, Part, dims_of, ranks_of, show_shape
from emu.errors import InputError, must_be
from emu.fabric.perturb import Spread, check_seeds
from emu.fabric.timeline import Timeline
from emu.registry import unknown
from emu.study.measure.move import Move, Moved, Run, move
from emu.study.measure.payload import Payload, dtype_of
from emu.study.measure.timing import Job, spread_collective, time_collective
from emu.topology.placement import by_axes, order, place
from emu.topology.topology import Topology
from emu.units import format_size, seconds


def busbw_factor(operation: str, n: int) -> float:
    """What busbw is to algbw, so that busbw can be held against a link's rate whatever n is.

    Source: nccl-tests doc/PERFORMANCE.md.
    """
    if operation == "all_reduce":
        return 2 * (n - 1) / n
    return 1.0 if operation in ("broadcast", "reduce") else (n - 1) / n


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One size of one collective on one topology; times are virtual but for those that begin with `wall_`."""

    topology: str
    operation: str
    algorithm: str
    shape: tuple[int, ...]  # that the algorithm was built for
    ranks: int
    size_bytes: int
    dtype: str
    reduce: str
    root: int
    time_s: float
    algbw_Bps: float
    busbw_Bps: float
    of_bound: float | None  # the least time possible over the time, at most 1; None: nothing is known of it
    bound_s: float  # the least time possible, of any schedule
    bound: str  # the bound that says so
    trees_s: float | None  # what an all_reduce by the best trees takes, latency apart; None: no all_reduce, or too large
    in_a_row_s: float | None  # what the best reduce_scatter and then the best all_gather take, latency apart
    wrong: int | None  # elements that came out wrong; None where no data was moved
    how: str  # which way the engine took
    spread: Spread | None  # of a chaotic time over perturbed starts; None: it is not, or was not asked for
    send_overhead_s: float
    wall_build_s: float
    wall_execute_s: float | None
    wall_fabric_s: float

    @property
    def built(self) -> str:
        """The algorithm, and its grid if it was built for one: `NAME 8x8`."""
        return f"{self.algorithm} {show_shape(self.shape)}" if len(self.shape) > 1 else self.algorithm


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What to measure: sizes in bytes of the whole buffer (total for all_gather and reduce_scatter)."""

    operation: str
    algorithm: str
    sizes: tuple[int, ...]
    dtype: str = "float32"
    reduce: str = "sum"
    root: int = 0
    ranks: int | None = None  # all NPUs of the topology
    timing_only: bool = False
    send_overhead_fs: int = 0
    dims: Grid = ()  # for an algorithm on a grid, or on some of its places; the topology's where they fit, else the best
    axes: tuple[int, ...] = ()  # of the topology's dims, in which order ranks count them; () = its own order of NPUs
    perturb: int = 0  # over how many perturbations of the starts a chaotic time is spread; 0: none


def bench(topology: Topology, request: BenchRequest, run_ranks: Run | None = None) -> Iterator[BenchRow]:
    """Move real data, check every element, and time the same schedule on the fabric, size by size.

    Args:
        topology: Where it is timed.
        request: What to move and time.
        run_ranks: Where the ranks are that move the data; unless given, the whole is moved in this process.

    Raises:
        InputError: an unknown name, ranks that do not fit, a size that is no whole number of elements, or more data than
            this host's free memory holds.
    """
    op, placement = check(topology, request)
    n, item = op.n_ranks, dtype_of(request.dtype).itemsize
    began = time.perf_counter()
    asked = (request.operation, request.algorithm, n, request.root, _dims(request, topology, n))
    plan = stored(*asked)
    whole = plan if request.timing_only or run_ranks else _whole(plan, asked)
    wall_build_s = time.perf_counter() - began
    for size in request.sizes:
        moved = _move(op, whole, size // item, request, run_ranks, _dims(request, topology, n))
        timed = _time(op, plan, size // item, topology, placement, request)
        limit = limit_of(topology, op, tuple(placement.tolist()), helpers=plan.helpers > 0)
        held = _Held(limit, int(op.block_counts(size // item).min()) * item)
        yield _row(topology, request, n, size, wall_build_s, moved, timed, held)
        wall_build_s = 0.0


def _whole(plan: Schedule, asked: tuple[str, str, int, int, Grid]) -> Schedule:
    """Every row, for data to be moved by."""
    rows = plan.n_rows_of_all
    if rows > MAX_ROWS:
        where, mend = f"{asked[0]} {asked[1]}", "take fewer ranks, or --timing-only"
        raise must_be(where, "rows to move data by", "at most 2**24", rows, mend)
    return schedule(*asked)


@dataclass(frozen=True, slots=True)
class _Timed:
    timeline: Timeline
    spread: Spread | None
    wall_s: float


class _Held(NamedTuple):
    """What a time is held against."""

    limit: Limit
    block_bytes: int  # of the smallest block

    def reached_s(self, s_per_byte: float | None) -> float | None:
        """What that many seconds a byte come to."""
        return None if s_per_byte is None else s_per_byte * self.block_bytes


def _row(
    topology: Topology,
    request: BenchRequest,
    n: int,
    size: int,
    wall_build_s: float,
    moved: Moved | None,
    timed: _Timed,
    held: _Held,
) -> BenchRow:
    time_s = timed.timeline.end_s
    bound_s, bound = held.limit.least_s(held.block_bytes)
    algbw = size / time_s if time_s else 0.0
    return BenchRow(
        topology=topology.name,
        operation=request.operation,
        algorithm=request.algorithm,
        shape=dims_of(algorithm(request.operation, request.algorithm).fit(n, _dims(request, topology, n))),
        ranks=n,
        size_bytes=size,
        dtype=request.dtype,
        reduce=request.reduce,
        root=request.root,
        time_s=time_s,
        algbw_Bps=algbw,
        busbw_Bps=algbw * busbw_factor(request.operation, n),
        of_bound=bound_s / time_s if bound else None,
        bound_s=bound_s,
        bound=bound,
        trees_s=held.reached_s(held.limit.trees_s_per_byte),
        in_a_row_s=held.reached_s(held.limit.in_a_row_s_per_byte),
        wrong=moved.wrong if moved else None,
        how=timed.timeline.how,
        spread=timed.spread,
        send_overhead_s=seconds(request.send_overhead_fs),
        wall_build_s=wall_build_s,
        wall_execute_s=moved.wall_s if moved else None,
        wall_fabric_s=timed.wall_s,
    )


def check(topology: Topology, request: BenchRequest) -> tuple[Operation, I32]:
    """The operation and its placement, where the request can be served.

    Raises:
        InputError: as `bench`, before anything is built.
    """
    item = dtype_of(request.dtype).itemsize
    op = operation(request.operation, len(order(topology)) if request.ranks is None else request.ranks, request.root)
    if request.dims:
        if ranks_of(request.dims) != op.n_ranks:
            raise must_be("bench", "dims", f"a grid of the {op.n_ranks} ranks", show_shape(request.dims))
        algorithm(request.operation, request.algorithm).check(request.dims)
    placement = place(topology, op.n_ranks, _npus(request, topology, op.n_ranks))
    if request.perturb:
        check_seeds(request.perturb)
    if request.reduce not in REDUCE_OPERATIONS:
        raise unknown("reduce operation", request.reduce, REDUCE_OPERATIONS)
    if op.name in REDUCING:
        check_reduces(op.name, dtype_of(request.dtype), request.reduce)
    for size in request.sizes:
        if size % item:
            raise must_be("bench", "size", f"a multiple of {item} bytes, the size of a {request.dtype}", size)
        op.check_count(size // item)
    # An output a rank, as much scratch where an algorithm relays or adds what its rank does not want, and the engine's own.
    needed, free = 2 * max(request.sizes) * op.n_ranks, psutil.virtual_memory().available
    if needed > free and not request.timing_only:
        raise InputError(
            f"bench: {op.n_ranks} ranks of {format_size(max(request.sizes))} take up to {format_size(needed)} of memory, and "
            f"this host has {format_size(free)} free; take a smaller size or fewer ranks, or --timing-only"
        )
    return op, placement


def _npus(request: BenchRequest, topology: Topology, n: int) -> I32 | tuple[int, ...] | None:
    """By the axes asked for, else those of the places of a job on some of the topology's own grid; None: its first."""
    if request.axes:
        return by_axes(topology, request.axes)[:n]
    dims = request.dims
    return dims.members if isinstance(dims, Part) and dims.dims == topology.dims else None


def _dims(request: BenchRequest, topology: Topology, n: int) -> Grid:
    if request.dims or n != topology.n_npus:
        return request.dims
    if request.axes:
        return tuple(topology.dims[axis] for axis in request.axes) if topology.dims else ()
    return topology.dims if np.array_equal(order(topology), np.arange(n)) else ()


def _move(op: Operation, plan: Schedule, count: int, request: BenchRequest, run_ranks: Run | None, dims: Grid) -> Moved | None:
    if request.timing_only:
        return None
    if run_ranks is not None:
        what = Move(op.name, op.n_ranks, count, request.dtype, request.reduce, request.root)
        return move(run_ranks, Choice({op.name: request.algorithm}, {op.name: dims}), what)
    payload = Payload.make(op, count, dtype_of(request.dtype), request.reduce)
    began = time.perf_counter()
    execute(plan, op, payload.buffers(), counts=payload.block_counts, reduce=request.reduce)
    wall_s = time.perf_counter() - began
    return Moved(payload.wrong(), wall_s)


def _time(op: Operation, plan: Schedule, count: int, topology: Topology, placement: I32, request: BenchRequest) -> _Timed:
    began = time.perf_counter()
    item = dtype_of(request.dtype).itemsize
    name = f"{op.name} {request.algorithm}"
    job = Job(op, plan, count, item, topology, placement, request.send_overhead_fs, name)
    timeline = time_collective(*job)
    wall_s = time.perf_counter() - began
    return _Timed(timeline, spread_collective(job, request.perturb) if request.perturb else None, wall_s)


def sizes_between(begin: int, end: int, factor: float) -> tuple[int, ...]:
    """Sizes from `begin` to `end`, each `factor` times the one before, as nccl-tests steps them.

    Raises:
        InputError: an end below the beginning, or a factor that does not grow.
    """
    if not 0 < begin <= end:
        raise must_be("bench", "sizes", "above 0, and the end (-e) not below the beginning (-b)", f"{begin} B to {end} B")
    if factor <= 1:
        raise must_be("bench", "factor", "above 1", factor)
    steps = int(np.floor(np.log(end / begin) / np.log(factor) + 1e-9))
    return tuple(int(begin * factor**i) for i in range(steps + 1))
