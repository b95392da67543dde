"""Which algorithm of one operation is the fastest at which size? Each that fits is timed; no data is moved for it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from emu.study.bench import BenchRequest, BenchRow, bench
from emu.study.choice import candidates
from emu.study.move import Run
from emu.topology.topology import Topology


def compare(topology: Topology, request: BenchRequest) -> Iterator[BenchRow]:
    """Time every candidate at every size, algorithm by algorithm.

    Raises:
        InputError: as `bench`; or no algorithm fits.
    """
    for each in candidates(request.operation, request.ranks or topology.n_npus, topology):
        yield from bench(topology, replace(request, algorithm=each.name, timing_only=True))


def fastest(rows: list[BenchRow]) -> dict[int, BenchRow]:
    """By size, the row that takes the least time; the first by name of those that take as little."""
    best: dict[int, BenchRow] = {}
    for row in sorted(rows, key=lambda row: row.algorithm):
        if row.size_bytes not in best or row.time_s < best[row.size_bytes].time_s:
            best[row.size_bytes] = row
    return best


@lru_cache(maxsize=1024)
def choose(topology: Topology, request: BenchRequest) -> dict[int, str]:
    """By size, the name of the fastest algorithm.

    Raises:
        InputError: as `compare`.
    """
    return {size: row.algorithm for size, row in fastest(list(compare(topology, request))).items()}


def bench_fastest(topology: Topology, request: BenchRequest, run_ranks: Run | None = None) -> Iterator[BenchRow]:
    """Bench each size by the algorithm that is the fastest at it; arguments as of `bench`.

    Raises:
        InputError: as `compare`.
    """
    for size, name in choose(topology, request).items():
        yield from bench(topology, replace(request, algorithm=name, sizes=(size,)), run_ranks)
