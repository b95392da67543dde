"""Benchmarks of collectives on an idle fabric: the time of each size, a check with real data, and comparisons.

The figures are those of nccl-tests.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any

from emu.bound.limit import QUICK_EFFORT, Limit, limit_of
from emu.collective.choice import AlgorithmOnDims, Choice
from emu.collective.chooser_names import chooser_needs
from emu.collective.schedule import RowsError
from emu.collective.shape import dims_of, named_shape
from emu.errors import InputError, RunError
from emu.fabric.engine.packets.packet_run import PacketFitError
from emu.fabric.graph import Timeline
from emu.fabric.lower import place_schedule
from emu.fabric.lowering.circuit_turns import TornError
from emu.fabric.lowering.classes import Joins
from emu.fabric.run import Spread
from emu.study.choice.fastest import fastest
from emu.study.choice.library_choice import library_choice
from emu.study.choice.site import Requirement, candidates, choosers
from emu.study.fabric_check import FabricCheck
from emu.study.job_pool import THIS_PROCESS, JobPool, OpenPool, PendingResult, known_result, results_of
from emu.study.measure.request import BenchRequest, Case, PlacedBench, place_bench
from emu.study.packet_figures import PacketFigures
from emu.study.packet_timing import check_collective, spread_packets, time_packets
from emu.study.timing import LIGHT, ROUNDING, CollectiveJob, TimeBound, spread_collective, time_bound, time_collective
from emu.topology.facts.facts import injection_rates
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S, seconds

if TYPE_CHECKING:  # it loads torch
    from emu.study.measure.move import TensorMover

_THROUGH_ONE = ("broadcast", "reduce")  # all of it leaves or comes to one rank
_NO_GAP = 1 - 1e-6  # of_bound from which nothing is left to gain


def busbw_factor(operation: str, n: int) -> float:
    """Return the factor busbw / algbw of an operation on n ranks; busbw can be compared with a link's bandwidth.

    Source: nccl-tests doc/PERFORMANCE.md.
    """
    if operation == "all_reduce":
        return 2 * (n - 1) / n
    return 1.0 if operation in _THROUGH_ONE else (n - 1) / n


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One collective on one topology: its operation, algorithm, ranks and size. Rows with and without times have these columns.

    `shape` is the grid that the algorithm was built for.
    """

    topology: str
    operation: str
    algorithm: str
    shape: tuple[int, ...]  # that the algorithm was built for
    ranks: int
    size_bytes: int

    @property
    def built(self) -> str:
        """The name of the algorithm, with its grid if it was built for one, such as `NAME 8x8`."""
        return named_shape(self.algorithm, self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class UntimedRow(CollectiveRow):
    """A size of an algorithm that was not timed: timing takes long, and its bound says that another algorithm is faster.

    Or packets could not be timed, and there is a reason.
    """

    at_least_s: float | None  # by its busiest link, or its messages that wait for one another; None: packets choose their paths
    why_not: str = ""  # the reason, where packets could not be timed


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow(CollectiveRow):
    """The row of a bench for one algorithm and one size; times are virtual except those that begin with `wall_`."""

    dtype: str
    reduce: str
    root: int
    time_s: float
    algbw_Bps: float
    busbw_Bps: float
    of_bound: float | None  # the least time possible over the time, before it is rounded to ticks; None: nothing is known of it
    injection_Bps: float  # bandwidth out of an NPU over all its links, of the rank that has least
    bound_s: float  # the least time possible, of any schedule
    bound: str  # the bound that says so
    trees_s: float | None  # what an all_reduce by the best trees takes, latency apart; None: no all_reduce, or not looked for
    in_a_row_s: float | None  # what the best reduce_scatter and then the best all_gather take, latency apart; None: as above
    bounds_left_out: tuple[str, ...]  # that more effort would look at, where there is a gap between the time and its bound
    chosen: str  # by a library, in its own words: algorithm, protocol, channels; "": no library chose
    passed_over: tuple[str, ...]  # algorithms that were not tried when it was chosen, for they send too much to be timed
    wrong: int | None  # elements that came out wrong; None where no data was moved
    engine: str  # the method by which it was timed: sweep, quotient or solver; or packets
    packets: PacketFigures | None  # what only packets know; None: it was not timed by packets
    fabric_check: FabricCheck | None  # of the fluid time by packets; None: it was not asked for
    spread: Spread | None  # of the time over perturbed starts; None: they do not change it, or it was not asked for
    send_overhead_s: float
    assumptions: tuple[str, ...]  # what the time rests on, a sentence each
    wall_build_s: float
    wall_execute_s: float | None
    wall_fabric_s: float


_Row = BenchRow | UntimedRow


def bench(topology: Topology, request: BenchRequest, mover: "TensorMover | None" = None) -> Iterator[BenchRow]:
    """Time a collective on a fabric, size by size, and move real data by the same schedule if a mover is given.

    Raises:
        InputError: As `place_bench` and `measure`.
    """
    return measure(place_bench(topology, request), mover)


def measure(asked: PlacedBench, mover: "TensorMover | None" = None) -> Iterator[BenchRow]:
    """Yield a row for each size of a placed bench; real data move too if a mover is given.

    Raises:
        InputError: The data cannot be moved, the collective cannot be timed, or no algorithm fits.
    """
    if mover is not None:
        mover.check(asked)
    case: Case | None = None
    for size in asked.request.sizes:
        began = time.perf_counter()
        case = next_case(asked, size, case)
        wall_build_s = time.perf_counter() - began
        yield _row(case, size, mover, wall_build_s)


def next_case(asked: PlacedBench, size: int, last: Case | None = None) -> Case:
    """Return the case for a size: with the named algorithm, or the one that `auto` or a library chooses, or one that is made.

    Args:
        asked: The placed bench.
        size: The size in bytes.
        last: The case of the size before, which is taken again where it is the same; None: there is none.
    """
    needs = chooser_needs(asked.request.algorithm)
    if needs.makes and not needs.times:
        return asked.synthesis_case(size)
    if asked.request.algorithm not in choosers():
        return last or asked.case(asked.request.algorithm)
    (name, dims), told = _chosen_algorithm(asked, size)
    again = last is not None and (last.algorithm, last.dims) == (name, dims)
    if last is None or not again or any(getattr(last, field) != value for field, value in told.items()):
        last = replace(asked.case(name, dims), **told)
    return asked.faster_case(last, size) if needs.makes else last


def _chosen_algorithm(asked: PlacedBench, size: int) -> tuple[AlgorithmOnDims, dict[str, Any]]:
    """Return the algorithm for a size, and the fields of a `Case` that say how it was chosen."""
    by, op = asked.request.algorithm, asked.operation
    if chooser_needs(by).times:
        overhead_fs = asked.request.send_overhead_fs
        wanted = Requirement(op.name, op.root, asked.elements(size), asked.item_bytes, overhead_fs)
        served, passed_over = fastest(asked.site, wanted)
        return served, {"passed_over": passed_over, "chosen": "", "chosen_assumed": ()}
    found = library_choice(by, asked.site.topology, asked.site.npus, op.name, size)
    if found is None:
        return AlgorithmOnDims(Choice().name(op.name)), {
            "passed_over": (),
            "chosen": "nothing of its own",
            "chosen_assumed": (),
        }
    return found.served, {"passed_over": (), "chosen": found.told, "chosen_assumed": found.assumptions}


def _bound_fields(case: Case, size: int, timeline: Timeline) -> dict[str, Any]:
    """Return the fields of a row that compare its time with lower bounds.

    Where switches can add, all algorithms have the bound of schedules in which they do, so that their rows can be compared.
    """
    asked, helpers = case.asked, case.schedule.helpers > 0 or case.asked.site.topology.adds
    what, effort = (asked.site.topology, asked.operation, asked.site.npus), asked.request.effort
    block_bytes = int(asked.operation.block_counts(asked.elements(size)).min()) * asked.item_bytes
    exact_s = asked.request.launch_s + timeline.end_s + timeline.rounding_s  # by so much rounding may have shortened the time
    limit = limit_of(*what, helpers=helpers)
    if effort != QUICK_EFFORT and _left_out(limit, block_bytes, exact_s):
        limit = limit_of(*what, helpers=helpers, effort=effort)
    bound_s, bound = limit.least_s(block_bytes)
    rates = limit.trees_s_per_byte, limit.in_a_row_s_per_byte
    trees_s, in_a_row_s = (None if s_per_byte is None else s_per_byte * block_bytes for s_per_byte in rates)
    return {
        "of_bound": bound_s / exact_s if bound else None,
        "bound_s": bound_s,
        "bound": bound,
        "trees_s": trees_s,
        "in_a_row_s": in_a_row_s,
        "bounds_left_out": _left_out(limit, block_bytes, exact_s),
    }


def _left_out(limit: Limit, block_bytes: int, exact_s: float) -> tuple[str, ...]:
    """Return the names of bounds that more effort would compute, if the time is well above the known bound."""
    least_s, by = limit.least_s(block_bytes)
    return limit.left_out if by and 0 < least_s / exact_s < _NO_GAP else ()


def _row(case: Case, size: int, mover: "TensorMover | None", wall_build_s: float) -> BenchRow:
    """Time a collective of one size, check it with real data if asked, and return its row."""
    began, job, request = time.perf_counter(), case.job(size), case.asked.request
    timeline, packets = _timed_on(request, job)
    wall_fabric_s = time.perf_counter() - began
    spread = _spread_on(request, job) if request.perturb else None
    wrong, wall_execute_s = (None, None) if mover is None else mover(case, size)
    return BenchRow(
        **_named_case(case, size),
        **{name: getattr(request, name) for name in ("dtype", "reduce", "root")},
        **_time_fields(case, size, request.launch_s + timeline.end_s),
        **_bound_fields(case, size, timeline),
        injection_Bps=float(injection_rates(case.asked.site.topology)[list(case.asked.site.npus)].min()),
        **{name: getattr(case, name) for name in ("chosen", "passed_over")},
        wrong=wrong,
        engine=timeline.how,
        packets=packets,
        fabric_check=None if request.engine.check is None else check_collective(job, request.engine.check),
        spread=spread,
        send_overhead_s=seconds(request.send_overhead_fs),
        assumptions=case.assumptions(),
        wall_build_s=wall_build_s,
        wall_execute_s=wall_execute_s,
        wall_fabric_s=wall_fabric_s,
    )


def _time_fields(case: Case, size: int, time_s: float) -> dict[str, Any]:
    """Return the fields of a row that follow from its time: the time, algbw and busbw."""
    algbw = size / time_s if time_s else 0.0
    factor = busbw_factor(case.asked.request.operation, case.asked.operation.n_ranks)
    return {"time_s": time_s, "algbw_Bps": algbw, "busbw_Bps": algbw * factor}


def _timed_on(request: BenchRequest, job: CollectiveJob) -> tuple[Timeline, PacketFigures | None]:
    """Return the timeline of a collective by the engine of a request, and the figures that only packets have."""
    if request.engine.packets is None:
        return time_collective(job), None
    return time_packets(job, request.engine.packets, request.launch_s)


def _spread_on(request: BenchRequest, job: CollectiveJob) -> Spread | None:
    """Return the spread of a time over perturbed starts, on the fabric of a request."""
    if request.engine.packets is None:
        return spread_collective(job, request.perturb)
    return spread_packets(job, request.engine.packets, request.perturb)


def _named_case(case: Case, size: int) -> dict[str, Any]:
    """Return the fields of a `CollectiveRow`: topology, operation, algorithm, shape, ranks and size."""
    return {
        "topology": case.asked.site.topology.name,
        "operation": case.asked.operation.name,
        "algorithm": case.algorithm,
        "shape": dims_of(case.shape),
        "ranks": case.asked.operation.n_ranks,
        "size_bytes": size,
    }


def _timed(asked: PlacedBench, job: tuple[str, tuple[int, ...]]) -> list[_Row]:
    """Return the rows of the algorithm and the sizes of a job, up to a size at which it cannot be timed."""
    (name, sizes), rows = job, list[_Row]()
    with suppress(RowsError, TornError):  # an error leaves the rows before it
        for each in [(size,) for size in sizes] if asked.request.engine.packets else [sizes]:
            one = replace(asked, request=replace(asked.request, algorithm=name, sizes=each))
            try:
                rows.extend(measure(one))
            except (RunError, PacketFitError) as error:  # packets wait in a circle, or do not fit: the other rows hold
                rows.append(_untimed(one.case(name), each[0], str(error)))
    return rows


def _untimed(case: Case, size: int, why_not: str = "") -> UntimedRow:
    """Return the row of a size that is not timed, with its bound and a reason."""
    at_least_s = None if _has_free_paths(case.asked) else _least_s(time_bound(case.job(size)))
    return UntimedRow(**_named_case(case, size), at_least_s=at_least_s, why_not=why_not)


def _has_free_paths(asked: PlacedBench) -> bool:
    """Return whether packets choose their paths, so that the load of links by the topology's routes bounds no time."""
    packets = asked.request.engine.packets
    return packets is not None and packets.network.route != "hash"


def _least_s(known: TimeBound) -> float:
    """Return the least time by a bound, in seconds."""
    return known.end_fs * (1 - ROUNDING) / TICKS_PER_S


Order = Sequence[tuple[bool, str]]  # algorithms in the order of a comparison, each with whether it takes long to time


def compare(asked: PlacedBench, pool: JobPool = THIS_PROCESS, order: Order | None = None) -> Iterator[BenchRow | UntimedRow]:
    """Yield a row of every candidate at every size, algorithm by algorithm.

    First come the algorithms that are timed quickly, then those of more than 2**15 messages that no symmetry makes equal. Of
    either, the smallest bound at the largest size comes first. One of the latter is not timed where its bound is above the
    least time so far. An algorithm that would tear an optical switch or need every row is left out.

    Args:
        asked: The bench.
        pool: The processes that time algorithms.
        order: The result of `comparison_order`; None: it is computed here.

    Raises:
        InputError: As `measure`; or no algorithm fits.
    """
    sizes, found = asked.request.sizes, comparison_order(asked) if order is None else order
    best = dict.fromkeys(sizes, float("inf"))
    with pool.open(partial(_timed, asked)) as opened:
        quick = (opened.submit((name, sizes)) for heavy, name in found if not heavy)
        for row in chain.from_iterable(results_of(quick, len(found))):
            if isinstance(row, BenchRow):
                best[row.size_bytes] = min(best[row.size_bytes], row.time_s)
            yield row
        for name in (name for heavy, name in found if heavy):
            for each in _bounded(asked, name, best, opened):
                if isinstance(each, BenchRow):
                    best[each.size_bytes] = min(best[each.size_bytes], each.time_s)
                yield each


def comparison_order(asked: PlacedBench) -> Order:
    """Return the candidates that can be timed in the order in which `compare` times them: quick ones first, then by bound.

    Raises:
        InputError: No algorithm fits, or none can be timed.
    """
    size, found = asked.request.sizes[-1], []
    for each in candidates(asked.operation.name, asked.site):
        with suppress(RowsError, TornError):
            job = asked.case(each.name).job(size)
            if asked.site.topology.circuits:  # which a schedule may need in two states at one time
                place_schedule(job.on_fabric(), Joins.NONE)
            known = time_bound(job)
            found.append((known.messages > LIGHT, known.end_fs, each.name))
    if not found:
        where = f"{asked.operation.n_ranks} ranks of {asked.site.topology.name}"
        raise InputError(f"bench: no algorithm of {asked.operation.name} can be timed on {where}; name one to learn why")
    return [(heavy, name) for heavy, _, name in sorted(found)]


def algorithm_names(asked: PlacedBench) -> list[str]:
    """Return the names of the candidate algorithms, each with its grid, also of those that cannot be timed."""
    site = asked.site
    found = candidates(asked.operation.name, site)
    return [named_shape(each.name, dims_of(site.dims_for(each))) for each in found]


def _bounded(
    asked: PlacedBench, name: str, best: dict[int, float], opened: OpenPool[tuple[str, tuple[int, ...]], list[_Row]]
) -> Iterator[_Row]:
    """Yield a row for each size of an algorithm; a size whose bound is above the best time is not timed."""
    pending: list[PendingResult[Sequence[_Row]]] = []
    with suppress(RowsError, TornError):
        case = asked.case(name)
        for size in asked.request.sizes:
            known = time_bound(case.job(size))
            if known.messages > LIGHT and not _has_free_paths(asked) and _least_s(known) > best[size]:
                pending.append(known_result([_untimed(case, size)]))
            else:
                pending.append(opened.submit((name, (size,))))
    yield from chain.from_iterable(takewhile(bool, (each() for each in pending)))


def best_rows(rows: Iterable[BenchRow | UntimedRow]) -> dict[int, BenchRow]:
    """Return, by size, the row with the least time; of equal rows, the first by name."""
    best: dict[int, BenchRow] = {}
    for row in sorted((row for row in rows if isinstance(row, BenchRow)), key=lambda row: row.algorithm):
        if row.size_bytes not in best or row.time_s < best[row.size_bytes].time_s:
            best[row.size_bytes] = row
    return best
