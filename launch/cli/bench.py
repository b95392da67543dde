"""The command `emu bench`: the data and the time of one collective, in the terms of nccl-tests."""

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from emu.bound.limit import ALL, QUICK, Effort
from emu.collective.algorithm import AUTO
from emu.errors import InputError, RunError, must_be
from emu.study.measure.bench import BenchRow, UntimedRow, algorithm_names, best_rows, compare, measure
from emu.study.measure.request import BenchRequest, PlacedBench, place_bench, sizes_between
from emu.study.training.composed.software_costs import topology_under
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.units import format_size, format_time
from launch.cli.options import common
from launch.cli.options.files import OutputFile, print_text, write_png
from launch.clusters import ClusterOptions, cluster_options
from launch.show.progress import late_notice, with_progress
from launch.show.text.algorithm_table import BOUND_COLUMNS, bounds_text, compare_lines
from launch.show.text.table import Column, column_table, merged_assumption_lines, spread_lines

if TYPE_CHECKING:  # it loads torch
    from emu.study.measure.move import TensorMover

_ALL = "all"
_EFFORTS = {"quick": QUICK, "all": ALL}


def _effort(text: str, name: str) -> Effort:
    """Return how long bounds are looked for.

    Raises:
        InputError: the text is no value of the option.
    """
    if text not in _EFFORTS:
        raise must_be("bench", name, " or ".join(_EFFORTS), text)
    return _EFFORTS[text]


def _axes(text: str, name: str) -> tuple[int, ...]:
    """Return the order of dimensions that an option gives; none where the text is empty.

    Raises:
        InputError: the text is no list of numbers.
    """
    if text and not re.fullmatch(r"\d{1,2}(,\d{1,2})*", text):
        raise must_be("bench", name, "numbers of dimensions joined by commas, such as 0,2,1,3", text)
    return tuple(map(int, filter(None, text.split(","))))


@click.command("bench")
@click.argument("operation")
@common.topology_option
@click.option(
    "--algorithm",
    "name",
    metavar="NAME",
    help="The algorithm. `auto` takes the fastest at each size, `nccl` takes what NCCL takes, `all` compares all. NAME@4 uses "
    "4 channels.  [default: auto, or the choice of the library of --stack]",
)
@click.option("--png", type=OutputFile(".png"), help="Draw the times to this file. With --algorithm all, give one topology.")
@click.option(
    "--size", type=common.SIZE, help="The bytes of one rank's buffer (of all ranks for all_gather and reduce_scatter)."
)
@click.option("-b", "--begin", type=common.SIZE, help="The smallest of several sizes.")
@click.option("-e", "--end", type=common.SIZE, help="The largest of several sizes.")
@common.default_option("-f", "--factor", type=float, default=2.0, help="The ratio of each size to the one before.")
@common.default_option("-d", "--dtype", default="float32", help="The data type of the elements.")
@common.default_option(
    "-o", "--reduce", default="sum", help="How elements are combined: sum, avg, min, max, product, and, or, xor."
)
@common.default_option("-r", "--root", default=0, help="The root rank, for an operation that has one.")
@click.option("--ranks", type=int, help="The number of ranks. [default: all NPUs of the topology]")
@click.option(
    "--dims",
    type=common.GRID,
    default="",
    help="The shape of the grid, for an algorithm on a grid. 4x4:0-7 takes its ranks 0 to 7. [default: the topology's]",
)
@click.option(
    "--axes",
    type=common.TextType("0,2,1,3", _axes),
    default="",
    help="The order of the topology's dimensions in which ranks are numbered; the last one changes fastest.",
)
@click.option("--timing-only", is_flag=True, help="Move no data. Use it for sizes beyond the memory of this machine.")
@common.perturb_option
@common.default_option(
    "--bounds",
    "effort",
    type=common.TextType("TEXT", _effort),
    default="quick",
    help="quick, or `all`: also compute the bounds that take long.",
)
@common.default_option(
    "--send-overhead",
    "send_overhead_fs",
    type=common.TIME,
    default="0s",
    help="The time between two sends of a rank (o in LogGP).",
)
@cluster_options
@common.calls_option
@common.import_option
@common.json_option
def bench_command(
    operation: str,
    topologies: tuple[str, ...],
    name: str | None,
    png: Path | None,
    size: int | None,
    begin: int | None,
    end: int | None,
    factor: float,
    timing_only: bool,
    where: ClusterOptions,
    stack: str,
    as_json: bool,
    **asked: Any,
) -> None:
    """Move real data with a collective, check every element, and time the same schedule on the fabric.

    \b
    emu bench all_reduce --algorithm ring --topology switch:n=8,bandwidth=50GB/s,latency=500ns --size 64MiB
    emu bench all_to_all --topology ub-mesh:rack -b 64KiB -e 64MiB -f 4 --json
    emu bench all_reduce --algorithm all --topology ub-mesh:board -b 1KiB -e 64MiB -f 8 --png compared.png
    emu bench all_reduce --algorithm auto --topology own.toml --topology ub-mesh:board --size 64MiB --png fabrics.png
    emu bench all_reduce --algorithm 2d-ring@2 --dims 8x8 --axes 0,2,1,3 --topology railx:torus:m=2,n=2,nodes=4x4 --size 3MiB
    """
    sizes = _sizes(size, begin, end, factor)
    under = common.calls_of(stack)
    [name] = [name] if name else common.algorithm_choice((), under)
    request = BenchRequest(operation, AUTO if name == _ALL else name, sizes, launch_s=under.launch_s, **asked)
    _check(name, where, png, len(topologies))
    built = [build_topology(word) for word in topologies]
    for each in built:
        _check_axes(each, request.axes)
    placed = [place_bench(topology_under(under, each), request) for each in built]
    if name == _ALL:
        _compare(placed, png, as_json=as_json)
        return
    with _mover(placed, where, timing_only=timing_only) as mover:
        rows = [row for each in placed for row in with_progress(measure(each, mover), _label(each), len(sizes))]
    common.print_result(rows, lambda: _table(rows), as_json=as_json)
    write_png(png, "chart.algorithm_chart:topology_figure", rows)
    wrong = sum(row.wrong or 0 for row in rows)
    if wrong:
        raise RunError(f"bench: {wrong} elements of {operation} came out wrong")


def _check(name: str, where: ClusterOptions, png: Path | None, topologies: int) -> None:
    """Refuse options of `--algorithm all` that do not fit together.

    Raises:
        InputError: the comparison is asked for with ranks in processes, or its picture for several topologies.
    """
    if name == _ALL and where.cluster != "local":
        raise must_be("bench", "--algorithm", "auto or a name where --cluster is given", name, "`all` moves no data")
    if png is not None and name == _ALL and topologies != 1:
        raise must_be("bench", "--topology", "given once where --algorithm all is drawn", topologies)


@contextmanager
def _mover(asked: list[PlacedBench], where: ClusterOptions, *, timing_only: bool) -> "Iterator[TensorMover | None]":
    """Yield the mover of data, or None where no data is moved; it checks all requests before ranks are started."""
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
    """Return the label of the progress bar of a measurement."""
    return f"{asked.operation.name} on {asked.site.topology.name}"


def _compare(asked: list[PlacedBench], png: Path | None, *, as_json: bool) -> None:
    """Compare all algorithms on each topology, print the rows as JSON or text, and draw those of the first topology."""
    tables = [_comparison_rows(each, as_json=as_json) for each in asked]
    if as_json:
        common.print_json(
            [asdict(row) | {"fastest": best_rows(rows)[row.size_bytes] is row} for rows in tables for row in rows]
        )
    write_png(png, "chart.algorithm_chart:algorithm_figure", [row for row in tables[0] if isinstance(row, BenchRow)])


def _comparison_rows(asked: PlacedBench, *, as_json: bool) -> list[BenchRow | UntimedRow]:
    """Return the rows of all algorithms; as text they are printed one by one."""
    if as_json:
        return list(with_progress(compare(asked), _label(asked), len(algorithm_names(asked)) * len(asked.request.sizes)))
    rows, shown = tee(compare(asked))
    for line in compare_lines(asked, shown):
        print_text(line)
    print_text("")
    return list(rows)


def _check_axes(topology: Topology, axes: tuple[int, ...]) -> None:
    """Refuse a value of `--axes` that does not name each dimension of the topology once.

    Raises:
        InputError: `--axes` does not name each dimension once.
    """
    dims = topology.dims or (topology.n_npus,)
    if axes and sorted(axes) != list(range(len(dims))):
        what = f"each dimension of {topology.name} once: {', '.join(map(str, range(len(dims))))} in any order"
        raise must_be("bench", "--axes", what, ",".join(map(str, axes)))


def _sizes(size: int | None, begin: int | None, end: int | None, factor: float) -> tuple[int, ...]:
    """Return the sizes in bytes that the options give.

    Raises:
        InputError: there is no size, or there are two kinds of size options.
    """
    if size is not None and (begin is not None or end is not None):
        raise InputError("bench: give --size, or -b and -e, not both")
    low = size if size is not None else begin
    if low is None:
        raise InputError("bench: no size given; give --size 64MiB, or -b 1MiB -e 64MiB")
    return sizes_between(low, low if end is None else end, factor)


_COLUMNS: tuple[Column[BenchRow], ...] = (
    Column("topology", lambda row: row.topology),
    Column("operation", lambda row: row.operation),
    Column("algorithm", lambda row: row.built),
    Column("ranks", lambda row: str(row.ranks)),
    Column("size", lambda row: format_size(row.size_bytes)),
    Column("type", lambda row: row.dtype),
    Column("time", lambda row: format_time(row.time_s)),
    Column("algbw", lambda row: f"{row.algbw_Bps / 1e9:.3f}", "(GB/s)"),
    Column("busbw", lambda row: f"{row.busbw_Bps / 1e9:.3f}", "(GB/s)"),
    *BOUND_COLUMNS,
    Column("wrong", lambda row: "-" if row.wrong is None else str(row.wrong)),
)


def _table(rows: list[BenchRow]) -> str:
    """Return the report of all rows as text."""
    moved = "no data was moved" if rows[0].wrong is None else "every element of every rank was checked"
    overhead = format_time(rows[0].send_overhead_s)
    engines = ", ".join(sorted({row.how for row in rows}))
    named = ((f"{row.operation} {row.built} of {format_size(row.size_bytes)} on {row.topology}", row.spread) for row in rows)
    chaotic = [line for name, spread in named for line in spread_lines(name, spread)]
    lines = [
        column_table(_COLUMNS, rows),
        "",
        f"virtual time (engine: {engines}); {moved}; send overhead {overhead}",
        *_by_library(rows),
        *_passed_over(rows),
        *chaotic,
        bounds_text(rows),
        "",
        *merged_assumption_lines([(row.topology, row.assumptions) for row in rows]),
    ]
    return "\n".join(lines)


def _by_library(rows: list[BenchRow]) -> list[str]:
    """Return a line for each choice of a library, with the sizes that it holds for."""
    said = [(row.topology, row.chosen, row.size_bytes) for row in rows if row.chosen]
    alike = [(key, [size for *_, size in of]) for key, of in groupby(said, key=lambda each: each[:2])]
    ranges = [" to ".join(dict.fromkeys(map(format_size, (sizes[0], sizes[-1])))) for _, sizes in alike]
    return [f"chosen on {name}, {sizes}: {chosen}" for ((name, chosen), _), sizes in zip(alike, ranges, strict=True)]


def _passed_over(rows: list[BenchRow]) -> list[str]:
    """Return a line for each topology with the algorithms that `auto` did not try."""
    by_topology: dict[str, set[str]] = {}
    for row in rows:
        by_topology.setdefault(row.topology, set()).update(row.passed_over)
    why = "too many messages to be timed for a choice; name one with --algorithm to time it"
    return [f"not tried on {name}: {', '.join(sorted(passed))}: {why}" for name, passed in by_topology.items() if passed]
