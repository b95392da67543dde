"""A chart that compares topologies: bars of time where there is one size, else lines of time against size."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from emu.study.measure.bench_row import BenchRow
from emu.units import format_size
from launch.show.canvas import rank_range, save
from launch.show.chart.bar_chart import Bar, bars
from launch.show.chart.line_chart import Line, lines

_MARKS = "osD^vP*Xhd<>8p"


def draw_topologies(rows: Sequence[BenchRow], path: Path) -> None:
    """Draw to a file how long one operation takes on each topology, and by which algorithm.

    Raises:
        WriteError: the file cannot be written.
    """
    save(topology_figure(rows), path)


def topology_figure(rows: Sequence[BenchRow]) -> Figure:
    """Return the figure that `draw_topologies` writes."""
    ranks = sorted({row.ranks for row in rows})
    title = f"{rows[0].operation} among {rank_range(ranks)} ranks"
    if len({row.size_bytes for row in rows}) == 1:
        return bars([Bar(row.topology, row.time_s, row.built) for row in rows], f"{title}, {format_size(rows[0].size_bytes)}")
    return _by_size(rows, title)


def _by_size(rows: Sequence[BenchRow], title: str) -> Figure:
    """Return lines of time against size, with a colour for each topology and a mark for each algorithm."""
    mark = {name: _MARKS[i % len(_MARKS)] for i, name in enumerate(dict.fromkeys(row.built for row in rows))}
    names, drawn = list(dict.fromkeys(row.topology for row in rows)), []
    for number, name in enumerate(names):
        of = sorted((row for row in rows if row.topology == name), key=lambda row: row.size_bytes)
        colour = to_hex(colormaps["tab10"](number % 10))
        points = tuple(row.size_bytes for row in of), tuple(row.time_s for row in of)
        drawn.append(Line(name, *points, colour, tuple(mark[row.built] for row in of)))
    return lines(drawn, title, mark)
