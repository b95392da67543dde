"""The question of `emu bench`: how long does a collective take on a topology, and is its result right?"""

import importlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emu.bound.limit import FULL_EFFORT, QUICK_EFFORT, Effort
from emu.collective.chooser_names import AUTO
from emu.collective.shape import Grid
from emu.errors import InputError, must_be
from emu.fabric.packet_fabric import engine_choice
from emu.model.stack.stack import Stack
from emu.study.job_pool import JobPool
from emu.study.measure.bench import BenchRow, UntimedRow, best_rows, compare, comparison_order, measure
from emu.study.measure.request import BenchRequest, PlacedBench, place_bench, sizes_between
from emu.study.training.composed.software_costs import costed_topology
from emu.topology.topology import Topology
from emu.units import parse_size, parse_time
from launch.clusters import ClusterOptions, pool_and_cluster
from launch.front.argument_rules import excludes, needs
from launch.front.inputs import Topologies, Words, algorithm_words, grid_of, overheads_of, question, several, topologies_of
from launch.front.result import Result
from launch.show.progress import finished_items, itself, late_notice, with_progress
from launch.show.text.collective_table import bench_report, bench_text, compare_lines

if TYPE_CHECKING:  # they take long to load
    from emu.study.measure.move import TensorMover

EVERY = "all"  # in place of an algorithm: compare all of them
_EFFORTS = {"quick": QUICK_EFFORT, "all": FULL_EFFORT}


@dataclass(frozen=True, repr=False, eq=False)
class Bench(Result[BenchRow], drawn_by="chart.algorithm_chart:topology_figure"):
    """The time of a collective at each size on each topology.

    The picture has the times over sizes, with a line for each topology, and for each algorithm where several were asked for.
    """

    words: tuple[str, ...]  # the algorithm of each row as it was asked for: a name, auto, or a library

    @property
    def failure(self) -> str | None:
        """The sentence that says how many elements of outputs are wrong; None: none."""
        wrong = sum(row.wrong or 0 for row in self.rows)
        return f"bench: {wrong} elements of {self.rows[0].operation} came out wrong" if wrong else None

    def text(self) -> str:
        """Return the table of all rows, with the assumptions on which they rest."""
        return bench_report(self.rows, self.words)

    def _shown(self) -> tuple[Any, ...]:
        return self.rows, self.words


@dataclass(frozen=True, repr=False, eq=False)
class AlgorithmComparison(Result[BenchRow | UntimedRow], drawn_by="chart.algorithm_chart:algorithm_figure"):
    """The time of every algorithm of a collective at each size on each topology.

    The picture has the times over sizes on the first topology on which one was timed, with a line for each algorithm.
    """

    tables: tuple[tuple[PlacedBench, tuple[BenchRow | UntimedRow, ...]], ...]  # the rows of each topology

    @property
    def fastest(self) -> tuple[BenchRow, ...]:
        """The fastest algorithm at each size on each topology."""
        return tuple(row for _, rows in self.tables for _, row in sorted(best_rows(rows).items()))

    def text(self) -> str:
        """Return the table of each topology: a line for each algorithm, a column for each size."""
        return "\n\n".join("\n".join(compare_lines(*table)) for table in self.tables) + "\n"

    def as_json(self) -> object:
        """Return the rows; `fastest` marks the fastest at each size on its topology."""
        best = [(best_rows(rows), rows) for _, rows in self.tables]
        return [asdict(row) | {"fastest": first.get(row.size_bytes) is row} for first, rows in best for row in rows]

    def _shown(self) -> tuple[Any, ...]:
        timed = ([row for row in rows if isinstance(row, BenchRow)] for _, rows in self.tables)
        return (next(filter(None, timed)),)  # of the first topology on which an algorithm was timed


@question
@needs(factor="begin|end")
@excludes(cluster="timing_only", factor="size")
def bench(
    operation: str,
    *,
    topology: Topologies,
    algorithm: Words = (),
    size: int | str | None = None,
    begin: int | str | None = None,
    end: int | str | None = None,
    factor: float = 2.0,
    dtype: str = "float32",
    reduce: str = "sum",
    root: int = 0,
    ranks: int | None = None,
    dims: str | Grid = "",
    axes: str | Sequence[int] = (),
    timing_only: bool = False,
    perturb: int = 0,
    bounds: str = "quick",
    send_overhead: float | str = "0s",
    stack: str = "",
    cluster: str = "local",
    ray_address: str | None = None,
    ranks_per_actor: int | None = None,
    ray_options: str | Path | None = None,
    workers: str = "local",
    fabric: str = "fluid",
    network: str = "",
    check_fabric: bool = False,
) -> Bench | AlgorithmComparison:
    """Move real data with a collective, check every element, and time the same schedule on a fabric.

    Args:
        operation: The operation, such as `all_reduce`.
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        algorithm: The algorithm; or several. `auto` takes the fastest at each size, `nccl` takes what NCCL takes, `all`
            compares all and moves no data, `synthesized` makes a schedule for the topology, `auto+synthesized` takes the faster
            one of both. NAME@4 uses 4 channels; empty: auto, or the choice of the library of `stack`.
        size: The bytes of one rank's buffer (of all ranks for all_gather and reduce_scatter), as a number or such as `64MiB`.
        begin: The smallest of several sizes.
        end: The largest of several sizes.
        factor: The ratio of each size to the one before.
        dtype: The data type of the elements.
        reduce: How elements are combined: sum, avg, min, max, product, and, or, xor.
        root: The root rank, for an operation that has one.
        ranks: The number of ranks; None: all NPUs of the topology.
        dims: The shape of the grid, for an algorithm on a grid, such as `4x4`. 4x4:0-7 takes its ranks 0 to 7; empty:
            the topology's.
        axes: The order of the topology's dimensions in which ranks are numbered, such as `0,2,1,3`; the last one changes
            fastest.
        timing_only: Move no data, as `all` never does. Use it for sizes beyond the memory of this machine.
        perturb: Compute the time so many more times, with random starts one tick later, and tell how far it spreads.
        bounds: quick, or `all`: also compute the bounds that take long.
        send_overhead: The time between two sends of a rank (o in LogGP), in seconds or such as `500ns`.
        stack: The times that software adds to messages and requests, such as `launch=5us`.
        cluster: Where ranks run: as threads (local), or in Ray actors (ray).
        ray_address: The address of a running Ray; None: start one on this machine.
        ranks_per_actor: The ranks of each Ray actor, as threads; None: 1.
        ray_options: A .toml file with Ray's own settings: strategy, resources, wait_s, runtime_env.
        workers: The processes that time the algorithms where `all` are compared: this one (`local`), or those of a Ray (`ray`),
            which `ray_address` may name.
        fabric: The engine of the times: `fluid`, or packets, such as `packets:cell=8KiB`; the settings are cell, seed, events.
        network: The network of packets, such as `roce:route=in-turn`: roce, ultra-ethernet, infiniband, nvlink, ub or tcp, with
            settings; empty: that of the topology's file, else roce.
        check_fabric: Check the fluid time: run the window in which the fabric has most to do by packets of `network`, 8 times
            with other starts.

    Returns:
        The time at each size on each topology; with `algorithm="all"` the time of every algorithm, and `fastest`, the best.

    Raises:
        InputError: an argument is impossible; the line says which, and how to mend it.
        RunError: a rank failed.
    """
    pool, where = pool_and_cluster("emu bench", workers, cluster, ray_address, ranks_per_actor, ray_options)
    under = overheads_of(stack)
    words = _words(algorithm, under, cluster, workers)
    if not timing_only:
        where.check_algorithms(words)
    request = BenchRequest(
        operation,
        AUTO,
        _sizes(size, begin, end, factor),
        dtype,
        reduce,
        root,
        ranks,
        parse_time(send_overhead, "--send-overhead"),
        grid_of(dims),
        _axes(axes),
        perturb,
        _effort(bounds),
        under.launch_s,
        engine_choice(fabric, network, check_fabric=check_fabric),
    )
    built = topologies_of(topology)
    request.engine.check_on(built)
    for each in built:
        _check_axes(each, request.axes)
    on = [costed_topology(under, each) for each in built]
    if words == (EVERY,):  # `compare` names one algorithm after another
        return _compared([place_bench(each, request) for each in on], pool)
    placed = [place_bench(each, replace(request, algorithm=word)) for each in on for word in words]
    return _measured(placed, where, timing_only=timing_only)


def _words(algorithm: Words, under: Stack, cluster: str, workers: str) -> tuple[str, ...]:
    """Return the algorithms that are asked for, each once; `all` stands alone.

    Raises:
        InputError: `all` is given beside others or with --cluster, or --workers without it.
    """
    words = tuple(dict.fromkeys(several(algorithm))) or algorithm_words((), under)
    if EVERY in words and len(words) > 1:
        raise must_be("bench", "--algorithm", "names, or all alone", ", ".join(words), "leave the names out: it has them, too")
    if EVERY in words and cluster != "local":
        raise must_be("bench", "--algorithm", "auto or a name where --cluster is given", EVERY, "`all` moves no data")
    if EVERY not in words and workers == "ray":
        raise must_be(
            "bench", "--algorithm", "all where --workers is given", ", ".join(words), "a named algorithm is not divided"
        )
    return words


def _measured(placed: Sequence[PlacedBench], where: ClusterOptions, *, timing_only: bool) -> Bench:
    """Return the measured times of the algorithms that were asked for at each size on each topology."""
    words = _words_of(placed)
    with _mover(placed, where, timing_only=timing_only) as mover:
        if len(placed) > 1:
            return Bench(tuple(_rows_of_several(placed, mover)), words)
        [one] = placed
        total = len(one.request.sizes)
        timed = finished_items(measure(one, mover), partial(_report, words), total)
        return Bench(tuple(with_progress(timed, _label(one), total, bench_text, itself)), words)


def _rows_of_several(placed: Sequence[PlacedBench], mover: "TensorMover | None") -> Iterator[BenchRow]:
    """Return the rows of several topologies and algorithms; each is told once it is known, and meanwhile what is measured."""
    on, words = {each.site.topology.name for each in placed}, {each.request.algorithm for each in placed}
    label = f"{placed[0].operation.name} on {f'{len(on)} topologies' if len(on) > 1 else min(on)}"
    total = sum(len(each.request.sizes) for each in placed)
    name, began_s = "", 0.0

    def measured() -> Iterator[BenchRow]:
        nonlocal name, began_s
        for each in placed:
            by = f"{each.request.algorithm} " * (len(words) > 1)
            name, began_s = f"{by}on {each.site.topology.name}", time.monotonic()
            yield from measure(each, mover)

    known = finished_items(measured(), partial(_report, _words_of(placed)), total)
    return with_progress(known, label, total, bench_text, itself, lambda: f"{name} for {time.monotonic() - began_s:.0f} s")


def _words_of(placed: Sequence[PlacedBench]) -> tuple[str, ...]:
    """Return the algorithm of each row as it was asked for."""
    return tuple(each.request.algorithm for each in placed for _ in each.request.sizes)


def _report(words: tuple[str, ...], rows: tuple[BenchRow, ...]) -> str:
    """Return the report of the rows of a bench that are finished, of which each was asked for by a word."""
    return Bench(rows, words[: len(rows)]).text()


def _compared(placed: Sequence[PlacedBench], pool: JobPool) -> AlgorithmComparison:
    """Return the rows of all algorithms on each topology.

    Raises:
        InputError: None could be timed.
    """
    tables: list[tuple[PlacedBench, tuple[BenchRow | UntimedRow, ...]]] = []
    for each in placed:
        order = comparison_order(each)
        total = len(order) * len(each.request.sizes)
        compared = finished_items(compare(each, pool, order), partial(_comparison_report, tuple(tables), each), total)
        tables.append((each, tuple(with_progress(compared, _label(each), total, bench_text, itself))))
    rows = tuple(row for _, of in tables for row in of)
    why = [f"{row.built}: {row.why_not}" for row in rows if isinstance(row, UntimedRow) and row.why_not]
    if len(why) == len(rows):
        raise InputError(f"bench: no algorithm could be timed; {[*why, 'name one to learn why'][0]}")
    return AlgorithmComparison(rows, tuple(tables))


def _comparison_report(
    before: tuple[tuple[PlacedBench, tuple[BenchRow | UntimedRow, ...]], ...],
    on: PlacedBench,
    rows: tuple[BenchRow | UntimedRow, ...],
) -> str:
    """Return the report of a comparison of which the topologies before one and some rows of this one are finished."""
    return AlgorithmComparison((), (*before, (on, rows))).text()


@contextmanager
def _mover(asked: Sequence[PlacedBench], where: ClusterOptions, *, timing_only: bool) -> "Iterator[TensorMover | None]":
    """Yield the mover of real data, or None if only times are wanted; requests are checked before ranks start."""
    if timing_only:
        yield None
        return
    with late_notice("loading torch"):
        moving = importlib.import_module("emu.study.measure.move")  # not above: it loads torch
    for each in asked:
        moving.TensorMover().check(each)
    with where.open_cluster() as ranks:
        yield moving.TensorMover(None if where.cluster == "local" else ranks.run)


def _label(asked: PlacedBench) -> str:
    """Return the label of the progress of a measurement."""
    return f"{asked.operation.name} on {asked.site.topology.name}"


def _effort(text: str) -> Effort:
    """Return the effort that is spent on bounds, by the text of the option `--bounds`.

    Raises:
        InputError: The text is no value of the option.
    """
    if text not in _EFFORTS:
        raise must_be("bench", "--bounds", " or ".join(_EFFORTS), text)
    return _EFFORTS[text]


def _axes(given: str | Sequence[int]) -> tuple[int, ...]:
    """Return the order of dimensions given by `axes` as text or numbers; empty if it is empty.

    Raises:
        InputError: the text is no list of numbers.
    """
    if isinstance(given, str) and given and not re.fullmatch(r"\d{1,2}(,\d{1,2})*", given):
        raise must_be("bench", "--axes", "numbers of dimensions joined by commas, such as 0,2,1,3", given)
    return tuple(map(int, filter(None, given.split(",")) if isinstance(given, str) else given))


def _check_axes(topology: Topology, axes: tuple[int, ...]) -> None:
    """Refuse a value of `--axes` that does not name each dimension of the topology once.

    Raises:
        InputError: `--axes` does not name each dimension once.
    """
    dims = topology.dims or (topology.n_npus,)
    if axes and sorted(axes) != list(range(len(dims))):
        what = f"each dimension of {topology.name} once: {', '.join(map(str, range(len(dims))))} in any order"
        raise must_be("bench", "--axes", what, ",".join(map(str, axes)))


def _sizes(size: int | str | None, begin: int | str | None, end: int | str | None, factor: float) -> tuple[int, ...]:
    """Return the sizes in bytes that the arguments give.

    Raises:
        InputError: there is no size, or there are two kinds of size options.
    """
    if size is not None and (begin is not None or end is not None):
        raise InputError("bench: give --size, or --begin and --end, not both")
    given = {"--size": size, "--begin": begin, "--end": end}
    sizes = {name: parse_size(text, name) for name, text in given.items() if text is not None}
    low = sizes.get("--size", sizes.get("--begin"))
    if low is None:
        raise InputError("bench: no size given; give --size 64MiB, or --begin 1MiB --end 64MiB")
    return sizes_between(low, sizes.get("--end", low), factor)
