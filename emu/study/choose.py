"""Which algorithm is the fastest on this topology? Each that fits is timed on the fabric; no data is moved for it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.errors import InputError
from emu.study.bench import BenchRequest, BenchRow, bench
from emu.topology.topology import Topology


def candidates(topology: Topology, request: BenchRequest) -> list[Algorithm]:
    """The algorithms of the operation that take so many ranks, and whose helpers find a switch."""
    n = topology.n_npus if request.ranks is None else request.ranks
    of_operation = [a for _, a in ALGORITHMS if a.operation == request.operation]
    return [a for a in of_operation if _fits(a, n, topology)]


def _fits(found: Algorithm, n: int, topology: Topology) -> bool:
    shape = next(iter(found.shapes(n)), None)
    return shape is not None and found.build(shape).helpers <= topology.n_nodes - topology.n_npus


def compare(topology: Topology, request: BenchRequest) -> Iterator[BenchRow]:
    """Time every candidate at every size, algorithm by algorithm.

    Raises:
        InputError: as `bench`; or no algorithm fits.
    """
    found = candidates(topology, request)
    if not found:
        raise InputError(f"bench: no {request.operation} fits {request.ranks or topology.n_npus} ranks of {topology.name}")
    for each in found:
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


def bench_fastest(topology: Topology, request: BenchRequest) -> Iterator[BenchRow]:
    """Bench each size by the algorithm that is the fastest at it.

    Raises:
        InputError: as `compare`.
    """
    for size, name in choose(topology, request).items():
        yield from bench(topology, replace(request, algorithm=name, sizes=(size,)))
