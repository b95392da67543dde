"""Synthesised schedules in a table: times, bounds and trees, beside the fastest algorithm of the catalogue."""

from collections.abc import Iterator, Sequence

from emu.bound.limit import CROSSED, LATENCY, PATHS, TRIED
from emu.bound.trees import ALL_CUTS, HALVES, PROGRAM
from emu.study.synthesis_row import SynthesisRow
from emu.synthesis.exchange.exchange_families import GRID_LANES, GRID_STREAMS, PATH_LANES, PATH_STREAMS, QUICKEST
from emu.synthesis.variants import BOTH_WAYS, GRID, GRID_AXES, HOP_STREAMS, IN_SWITCHES, LANES, MATCHED, STREAMS
from emu.units import format_size, format_time
from launch.show.text.collective_table import BOUND_MEANINGS
from launch.show.text.table import Column, column_table, merged_assumption_lines

_ORDERS = {
    MATCHED: "a link that is free takes the block that has waited longest; trees grow in time",
    GRID: "the sends of rank 0 are matched in time, and every rank sends what translations of the grid make of them",
    GRID_AXES: "as translated, over hops along one axis of the grid",
    LANES: "packed trees; every link of a rank carries one message after another",
    BOTH_WAYS: "streams of trees to the roots and of trees from them at the same time; a linear program divides the links",
    STREAMS: "packed trees; each hop of each tree is a queue of its own, and shares links with others",
    HOP_STREAMS: "as streams; trees are packed in what a linear program gives each hop that the router offers",
    IN_SWITCHES: "trees that pass switches which copy and add, by a linear program; each hop is a queue of its own",
    QUICKEST: "every block takes its quickest path, all at the same time",
    PATH_LANES: "parts of blocks on the paths of a linear program; every link of a rank carries one message after another",
    PATH_STREAMS: "parts of blocks on the paths of a linear program; each hop of each part is a queue of its own",
    GRID_LANES: "as paths in lanes, for rank 0; every rank sends what translations of the grid make of it",
    GRID_STREAMS: "as paths in streams, for rank 0; every rank sends what translations of the grid make of it",
}
_BOUNDS = {
    ALL_CUTS: "the bytes that a set of nodes must send to the other nodes, over the links out of it; the slowest of all sets",
    PROGRAM: "links are divided among trees to the roots and trees from them by a linear program",
    HALVES: "the best trees of a reduce_scatter, then those of an all_gather; the program is too large",
    **{by: BOUND_MEANINGS[by] for by in (TRIED, CROSSED, PATHS, LATENCY)},
}


def _share(value: float | None) -> str:
    """Return a share as text; "-" for None."""
    return "-" if value is None else f"{value:.3f}"


_COLUMNS: tuple[Column[SynthesisRow], ...] = (
    Column("topology", lambda row: row.topology),
    Column("operation", lambda row: row.operation),
    Column("ranks", lambda row: str(row.ranks)),
    Column("size", lambda row: format_size(row.size_bytes)),
    Column("time", lambda row: format_time(row.time_s)),
    Column("busbw", lambda row: f"{row.busbw_Bps / 1e9:.3f}", "(GB/s)"),
    Column("of_bound", lambda row: _share(row.of_bound)),
    Column("of_tree_bound", lambda row: _share(row.of_tree_bound if row.tree_bound_s else None)),  # 0: blocks are empty
    Column("of_routes_bound", lambda row: _share(row.of_routes_bound)),
    Column("order", lambda row: row.order),
    Column("trees", lambda row: str(row.trees)),
    Column("pieces", lambda row: str(row.pieces)),
    Column("best of the catalogue", lambda row: row.best or "-"),
    Column("its time", lambda row: "-" if row.best_time_s is None else format_time(row.best_time_s)),
)


def synthesis_report(rows: Sequence[SynthesisRow]) -> str:
    """Return the table of rows, then what their words mean and what they rest on."""
    return "\n".join([column_table(_COLUMNS, rows), "", *_notes(rows)]) + "\n"


def _notes(rows: Sequence[SynthesisRow]) -> Iterator[str]:
    """Yield the lines below the table."""
    yield "Every schedule is proved. trees: of all roots, or paths of parts; pieces: of each part, one after another. Orders:"
    yield from (f"  {order}: {_ORDERS[order]}" for order in _ORDERS if order in {row.order for row in rows})
    yield "of_tree_bound: what the best trees take, or the bound of an all_to_all, divided by the time. It is given by:"
    yield from (f"  {kind}: {_BOUNDS[kind]}" for kind in _BOUNDS if kind in {row.tree_bound for row in rows})
    if any(row.of_routes_bound is not None for row in rows):
        yield "of_routes_bound: as of_tree_bound, over the ways that the router offers alone, by the best prices of links found"
    yield from (f"cut short on {row.topology}: best so far, of {row.tried} schedules" for row in rows if row.cut_short)
    if any(row.assumptions for row in rows):
        yield from ("", *merged_assumption_lines([(row.topology, row.assumptions) for row in rows]))
