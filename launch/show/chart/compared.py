"""Algorithms against one another, as a log-log plot of time against size."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from emu.study.measure.bench import BenchRow
from emu.study.measure.choose import best_rows
from launch.show.write import writing


def draw_compared(rows: Sequence[BenchRow], path: Path) -> None:
    """Draw time against size, a line an algorithm.

    Raises:
        InputError: the file cannot be written.
    """
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xscale="log", yscale="log")
    best = best_rows(list(rows))
    for number, name in enumerate(dict.fromkeys(row.built for row in rows)):
        of = sorted((row for row in rows if row.built == name), key=lambda row: row.size_bytes)
        style = "-" if any(best[row.size_bytes] is row for row in of) else ":"
        colour = colormaps["tab20"](number % 20)
        axes.plot([r.size_bytes for r in of], [r.time_s for r in of], style, marker="o", markersize=3, color=colour, label=name)
    axes.set_xlabel("size (B)")
    axes.set_ylabel("virtual time (s)")
    axes.set_title(f"{rows[0].operation} among {rows[0].ranks} ranks of {rows[0].topology}", loc="left", fontsize=11)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, frameon=False, title="solid: the fastest at a size")
    with writing("bench", path):
        figure.savefig(path, dpi=120, format="png")
