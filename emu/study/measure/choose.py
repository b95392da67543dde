"""Which algorithm of one operation is the fastest at which size? Each that fits is timed; no data is moved for it."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from emu.collective.algorithm import Request, Served
from emu.collective.schedule import RowsError
from emu.fabric.lowering.circuits import TornError
from emu.study.measure.bench import BenchRequest, BenchRow, bench, check
from emu.study.measure.choice import candidates, fastest
from emu.study.measure.move import Run
from emu.study.measure.payload import dtype_of
from emu.topology.placement import order
from emu.topology.topology import Topology


def compare(topology: Topology, request: BenchRequest) -> Iterator[BenchRow]:
    """Time every candidate at every size, algorithm by algorithm; but not what would tear an optical switch or need every row.

    Raises:
        InputError: as `bench`; or no algorithm fits.
    """
    for each in candidates(request.operation, request.ranks or len(order(topology)), topology):
        with suppress(RowsError, TornError):
            yield from bench(topology, replace(request, algorithm=each.name, timing_only=True))


def best_rows(rows: list[BenchRow]) -> dict[int, BenchRow]:
    """By size, the row that takes the least time; the first by name of those that take as little."""
    best: dict[int, BenchRow] = {}
    for row in sorted(rows, key=lambda row: row.algorithm):
        if row.size_bytes not in best or row.time_s < best[row.size_bytes].time_s:
            best[row.size_bytes] = row
    return best


def choose(topology: Topology, request: BenchRequest) -> dict[int, Served]:
    """By size, the fastest algorithm.

    Raises:
        InputError: as `bench`; or no algorithm fits.
    """
    op, placement = check(topology, replace(request, timing_only=True))
    item_bytes = dtype_of(request.dtype).itemsize
    ranks = tuple(placement.tolist())
    asked = {size: Request(op.name, ranks, op.root, size // item_bytes, "") for size in request.sizes}
    return {size: fastest(topology, each, item_bytes, request.send_overhead_fs) for size, each in asked.items()}


def bench_fastest(topology: Topology, request: BenchRequest, run_ranks: Run | None = None) -> Iterator[BenchRow]:
    """Bench each size by the algorithm that is the fastest at it; arguments as of `bench`.

    Raises:
        InputError: as `choose`.
    """
    for size, served in choose(topology, request).items():
        chosen = replace(request, algorithm=served.algorithm, dims=served.dims, sizes=(size,))
        yield from bench(topology, chosen, run_ranks)
