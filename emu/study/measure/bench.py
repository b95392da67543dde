"""How long does one collective take on an idle fabric, and did it do its job?"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol

from emu.bound.limit import QUICK, Limit, limit_of
from emu.collective.algorithm import AUTO, Choice
from emu.collective.algorithm import AlgorithmOnDims as Served
from emu.collective.shape import dims_of
from emu.fabric.perturb import Spread
from emu.fabric.timeline import Timeline
from emu.study.choice.fastest import fastest
from emu.study.choice.library import picked
from emu.study.choice.requirement import Requirement, choosers
from emu.study.measure.request import Asked, BenchRequest, Case, ask
from emu.study.measure.row import BenchRow, busbw_factor
from emu.study.timing.collective import spread_collective, time_collective
from emu.topology.topology import Topology
from emu.units import seconds

_NO_GAP = 1 - 1e-6  # of_bound from which nothing is left to gain


class Outcome(Protocol):
    """What came of moving the data."""

    @property
    def wrong(self) -> int:
        """Elements that are not what they must be."""

    @property
    def wall_s(self) -> float:
        """How long it took here."""


class Mover(Protocol):
    """Moves real data by a collective, and checks every element."""

    def check(self, asked: Asked) -> None:
        """Refuse what cannot be moved.

        Raises:
            InputError: more data than this host's free memory holds.
        """

    def __call__(self, case: Case, size: int) -> Outcome:
        """Move a size in bytes."""


def bench(topology: Topology, request: BenchRequest, mover: Mover | None = None) -> Iterator[BenchRow]:
    """Time a collective on a fabric, size by size, and move real data by the same schedule if a mover is given.

    Raises:
        InputError: as `ask` and `measure`.
    """
    return measure(ask(topology, request), mover)


def measure(asked: Asked, mover: Mover | None = None) -> Iterator[BenchRow]:
    """The same of what was asked.

    Raises:
        InputError: what cannot be moved, or cannot be timed; or nothing that fits where any may serve.
    """
    if mover is not None:
        mover.check(asked)
    case: Case | None = None
    for size in asked.request.sizes:
        began = time.perf_counter()
        case = _served(asked, size, case)
        wall_build_s = time.perf_counter() - began
        timed = _time(case, size)
        yield _row(case, size, timed, mover(case, size) if mover else None, wall_build_s)


def _served(asked: Asked, size: int, last: Case | None) -> Case:
    """By the algorithm that was named, else by the fastest at that size, or by what a library takes for it."""
    if asked.request.algorithm not in choosers():
        return last or asked.case(asked.request.algorithm)
    (name, dims), passed, told = _chosen(asked, size)
    again = last is not None and (last.algorithm, last.dims, last.passed_over, last.chosen) == (name, dims, passed, told)
    return last if last is not None and again else replace(asked.case(name, dims), passed_over=passed, chosen=told)


def _chosen(asked: Asked, size: int) -> tuple[Served, tuple[str, ...], str]:
    """What serves a size, what was not tried, and what a library says of it."""
    by, operation = asked.request.algorithm, asked.operation.name
    if by == AUTO:
        return *fastest(asked.site, wanted(asked, size)), ""
    found = picked(by, asked.site.topology, asked.site.npus, operation, size)
    return (found.served, (), found.told) if found else (Served(Choice().name(operation)), (), "nothing of its own")


def wanted(asked: Asked, size: int) -> Requirement:
    """What a size in bytes asks of an algorithm."""
    op = asked.operation
    return Requirement(op.name, op.root, asked.elements(size), asked.item_bytes, asked.request.send_overhead_fs)


class _Timed(NamedTuple):
    timeline: Timeline
    spread: Spread | None
    wall_s: float


def _time(case: Case, size: int) -> _Timed:
    began, job, seeds = time.perf_counter(), case.job(size), case.asked.request.perturb
    timeline = time_collective(*job)
    wall_s = time.perf_counter() - began
    return _Timed(timeline, spread_collective(job, seeds) if seeds else None, wall_s)


class _Held(NamedTuple):
    """What a time is held against."""

    limit: Limit
    block_bytes: int  # of the smallest block
    exact_s: float  # the time, and by how much rounding to ticks may have shortened it

    @property
    def of_bound(self) -> float | None:
        """The least time possible over the time."""
        least_s, by = self.limit.least_s(self.block_bytes)
        return least_s / self.exact_s if by else None

    @property
    def left_out(self) -> tuple[str, ...]:
        """What more effort would look at, where there is a gap that it may close."""
        return self.limit.left_out if (self.of_bound or 1) < _NO_GAP else ()

    def reached_s(self, s_per_byte: float | None) -> float | None:
        """What that many seconds a byte come to."""
        return None if s_per_byte is None else s_per_byte * self.block_bytes


def _held(case: Case, size: int, timeline: Timeline) -> _Held:
    """Against quick bounds, and all others only where these leave a gap and they were asked for."""
    asked, helpers = case.asked, case.plan.helpers > 0
    what = asked.site.topology, asked.operation, asked.site.npus
    block_bytes = int(asked.operation.block_counts(asked.elements(size)).min()) * asked.item_bytes
    exact_s = asked.request.launch_s + timeline.end_s + timeline.rounding_s
    quick = _Held(limit_of(*what, helpers=helpers), block_bytes, exact_s)
    if asked.request.effort == QUICK or not quick.left_out:
        return quick
    return quick._replace(limit=limit_of(*what, helpers=helpers, effort=asked.request.effort))


def _row(case: Case, size: int, timed: _Timed, moved: Outcome | None, wall_build_s: float) -> BenchRow:
    asked, request, held = case.asked, case.asked.request, _held(case, size, timed.timeline)
    time_s = request.launch_s + timed.timeline.end_s
    bound_s, bound = held.limit.least_s(held.block_bytes)
    algbw = size / time_s if time_s else 0.0
    return BenchRow(
        topology=asked.site.topology.name,
        operation=request.operation,
        algorithm=case.algorithm,
        shape=dims_of(case.shape),
        ranks=asked.operation.n_ranks,
        size_bytes=size,
        dtype=request.dtype,
        reduce=request.reduce,
        root=request.root,
        time_s=time_s,
        algbw_Bps=algbw,
        busbw_Bps=algbw * busbw_factor(request.operation, asked.operation.n_ranks),
        of_bound=held.of_bound,
        bound_s=bound_s,
        bound=bound,
        trees_s=held.reached_s(held.limit.trees_s_per_byte),
        in_a_row_s=held.reached_s(held.limit.in_a_row_s_per_byte),
        chosen=case.chosen,
        passed_over=case.passed_over,
        bounds_left_out=held.left_out,
        wrong=moved.wrong if moved else None,
        how=timed.timeline.how,
        spread=timed.spread,
        send_overhead_s=seconds(request.send_overhead_fs),
        assumptions=case.assumptions(),
        wall_build_s=wall_build_s,
        wall_execute_s=moved.wall_s if moved else None,
        wall_fabric_s=timed.wall_s,
    )
