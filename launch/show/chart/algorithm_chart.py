"""Charts that compare algorithms, or topologies: bars of time where there is one size, else lines of time against size."""

from collections import defaultdict
from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from emu.study.measure.bench import BenchRow
from emu.units import format_size
from launch.show.canvas import rank_range
from launch.show.chart.time_chart import PALE, Bar, Line, bars, lines

_BEST = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's, safe for colour-blind readers
_MOST_LETTERS = 44  # most letters of the names of algorithms that share a line
_MARKS = "osD^vP*Xhd<>8p"


def algorithm_figure(rows: Sequence[BenchRow]) -> Figure:
    """Return a chart of how long each algorithm takes for one operation on one topology."""
    sizes = sorted({row.size_bytes for row in rows})
    title = f"{rows[0].operation} among {rows[0].ranks} ranks of {rows[0].topology}"
    if len(sizes) == 1:
        return bars([Bar(row.built, row.time_s, _of_bound(row)) for row in rows], f"{title}, {format_size(sizes[0])}")
    return lines(_lines(rows), f"{title}\nin colour: algorithms that are the fastest at some size")


def _of_bound(row: BenchRow) -> str:
    """Return the note of a bar, such as `0.812 of the bound`; "" where no bound is known."""
    return "" if row.of_bound is None else f"{row.of_bound:.3f} of the bound"


def _lines(rows: Sequence[BenchRow]) -> list[Line]:
    """Return one line for all algorithms that take equal times.

    A line is pale where others are faster at every size.
    """
    times: dict[str, dict[int, float]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row.size_bytes):
        times[row.built][row.size_bytes] = row.time_s
    alike: dict[tuple[tuple[int, float], ...], list[str]] = defaultdict(list)
    for name, of in sorted(times.items()):
        alike[tuple(of.items())].append(name)
    least = {size: min(of[size] for of in times.values() if size in of) for size in {row.size_bytes for row in rows}}
    best = [points for points in alike if any(least[size] == time_s for size, time_s in points)]
    colour = {points: _BEST[i % len(_BEST)] for i, points in enumerate(best)}
    return [_line(_short_names(names), points, colour.get(points, PALE)) for points, names in alike.items()]


def _line(name: str, points: Sequence[tuple[int, float]], colour: str) -> Line:
    """Return a line through points of size in bytes and time in seconds."""
    return Line(name, tuple(size for size, _ in points), tuple(time_s for _, time_s in points), colour)


def _short_names(names: Sequence[str]) -> str:
    """Return the first names and the number of the others, such as `direct, hyperx-direct and 3 more`."""
    shown = 1
    while shown < len(names) and len(", ".join(names[: shown + 1])) <= _MOST_LETTERS:
        shown += 1
    more = f" and {len(names) - shown} more" if shown < len(names) else ""
    return ", ".join(names[:shown]) + more


def topology_figure(rows: Sequence[BenchRow]) -> Figure:
    """Return a chart of how long one operation takes on each topology, and by which algorithm."""
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
    return lines(drawn, title, marks=mark)
