"""How timing grows with the number of ranks: `python -m benchmarks.growth [PNG]` measures, prints a table and draws it.

Each point is a case of `benchmarks.scale` in a process of its own, end to end, as far as 2**24 messages allow. The slopes are
those of straight lines through the points of 512 ranks and more.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.scale import LINK, Collective, apart, measure
from emu.files import check_file
from launch.show.canvas import INK, save

SIZES = tuple(2**k for k in range(3, 14))
LARGE = 512  # from here on the work of the ranks, not what every call costs, is seen
MAX_MESSAGES = 2**24


def grid(n: int) -> tuple[int, int]:
    """A power of two as the squarest of grids, the longer side first."""
    side = 2 ** (n.bit_length() // 2)
    return side, n // side


def _switch(n: int) -> str:
    return f"switch:n={n},{LINK}"


def _torus(n: int) -> str:
    x, y = grid(n)
    return f"torus:dims={x}x{y},{LINK}"


def _fat_tree(n: int) -> str:
    x, y = grid(n)
    return f"fat-tree:pgft:down={x}x{y},up=1x{x}"


class Series(NamedTuple):
    """One line of the plot."""

    label: str
    colour: str  # Okabe and Ito's, told apart by all eyes
    case: Callable[[int], Collective]
    messages: Callable[[int], int]  # that are timed

    def sizes(self) -> list[int]:
        """Ranks that are not too many messages."""
        return [n for n in SIZES if self.messages(n) <= MAX_MESSAGES]


def _pairs(n: int) -> int:
    return n * (n - 1)


def _both_halves(n: int) -> int:
    return 2 * _pairs(n)


def _few(n: int) -> int:
    return n


def _ring(n: int, *, declared: bool) -> Collective:
    return Collective(_switch(n), "all_reduce", "ring", declared=declared)


def _direct(n: int) -> Collective:
    return Collective(_switch(n), "all_reduce", "direct", declared=False)


def _at_once(fabric: Callable[[int], str], n: int) -> Collective:
    return Collective(fabric(n), "all_to_all", "at-once")


def _hierarchical(n: int) -> Collective:
    return Collective(_torus(n), "all_reduce", "hierarchical-ring", grid(n))


SERIES = (
    Series("all_to_all at once, ECMP fat tree, every message", "#D55E00", partial(_at_once, _fat_tree), _pairs),
    Series("all_reduce ring, switch, every message", "#0072B2", partial(_ring, declared=False), _both_halves),
    Series("all_reduce direct, switch, every message", "#CC79A7", _direct, _both_halves),
    Series("all_to_all at once, torus, declared symmetry", "#009E73", partial(_at_once, _torus), _few),
    Series("all_reduce ring, switch, declared symmetry", "#56B4E9", partial(_ring, declared=True), _few),
    Series("all_reduce hierarchical ring, torus, declared symmetry", "#E69F00", _hierarchical, _few),
)


class Point(NamedTuple):
    """One measurement."""

    n: int
    wall_s: float
    peak_gb: float
    how: str


def measured(series: Series) -> list[Point]:
    """The points of one line, the least of three times each."""
    points = []
    for n in series.sizes():
        found = apart(partial(measure, series.case(n)))
        points.append(Point(n, min(found.wall_s), found.peak_gb, found.how))
        sys.stdout.write(f"| {series.label} | {n:,} | {points[-1].wall_s:.3g} | {found.peak_gb:.2f} | {found.how} |\n")
        sys.stdout.flush()
    return points


def slope(points: list[Point]) -> float:
    """The k of a time that grows as n^k, from `LARGE` ranks on."""
    n, wall_s = np.array([(p.n, p.wall_s) for p in points if p.n >= LARGE]).T
    return float(np.polyfit(np.log(n), np.log(wall_s), 1)[0])


def _seconds(value: float, _: int) -> str:
    return f"{value * 1e3:g} ms" if value < 1 else f"{value:g} s"


def draw(lines: list[tuple[Series, list[Point]]], path: Path) -> None:
    """Time against ranks, a line a series, with its slope."""
    figure = Figure(figsize=(10.5, 5.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xscale="log", yscale="log")
    for series, points in lines:
        n, wall_s = [p.n for p in points], [p.wall_s for p in points]
        label = f"{series.label}: ~ n$^{{{slope(points):.1f}}}$"
        style = "--s" if series.messages is _few else "-o"
        axes.plot(n, wall_s, style, markersize=4, color=series.colour, label=label)
    axes.xaxis.set_major_locator(FixedLocator(SIZES))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(_seconds))
    axes.set_xlabel("ranks n", color=INK)
    axes.set_ylabel("wall time, one core", color=INK)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.set_title(
        "A collective from nothing to its last message: schedule, topology, dependencies, routes, time", loc="left", fontsize=11
    )
    axes.legend(
        loc="upper left", fontsize=9, frameon=False, title=f"with the growth of each from {LARGE} ranks on", alignment="left"
    )
    save(figure, path)


def main() -> None:
    """Print a line a point, then draw."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("growth.png")
    check_file("PNG", path)
    sys.stdout.write("| series | ranks | wall (s) | GB | how |\n|---|---|---|---|---|\n")
    draw([(series, measured(series)) for series in SERIES], path)


if __name__ == "__main__":
    main()
