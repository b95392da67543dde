"""A figure of a paper, worked out again: lines or bars of ours, and marks where the paper prints a value."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from launch.papers.figure import Curve, Figure
from launch.show.page import INK, page, save

_WIDE_IN, _HIGH_IN = 10.0, 5.6
_PART_IN = 3.6  # high
_PART_LETTERS = 56  # of a line above a part, so that it stays above its own
_MARKS, _MARKED = "osD^v<>ph*", 40


def draw_figure(figure: Figure | Sequence[Figure], path: Path) -> None:
    """Draw it to a file; several are its parts, side by side, two in a row.

    Raises:
        WriteError: the file cannot be written.
    """
    save(picture(figure), path)


def picture(figure: Figure | Sequence[Figure]) -> Picture:
    """The picture of `draw_figure`."""
    if not isinstance(figure, Figure):
        return _pictures(figure)
    drawn, axes = page(_WIDE_IN, _HIGH_IN, figure.title)
    _draw(axes, figure, _names([figure]))
    drawn.legend(loc="outside lower left", fontsize=8, frameon=False, ncols=4)
    return drawn


def _pictures(parts: Sequence[Figure]) -> Picture:
    """All parts; under one legend where no part has curves of ours that the first has not."""
    rows = -(-len(parts) // 2)
    drawn, whole = page(_WIDE_IN, _PART_IN * rows + 1.0, "")
    drawn.delaxes(whole)
    places = drawn.subplots(rows, 2, squeeze=False).ravel()
    alike = _names(parts) == _names(parts[:1])
    for part, axes in zip(parts, places, strict=False):
        _draw(axes, part, _names(parts if alike else [part]))
        axes.set_title(fill(part.title, _PART_LETTERS), fontsize=10, color=INK)
        axes.tick_params("x", labelsize=8)
        if not alike:
            axes.legend(fontsize=8, frameon=False)
    for axes in places[len(parts) :]:
        drawn.delaxes(axes)
    if alike:
        found = (each for axes in drawn.axes for each in zip(*axes.get_legend_handles_labels(), strict=True))
        marks = {label: mark for mark, label in found}
        drawn.legend([*marks.values()], [*marks], loc="outside lower left", fontsize=8, frameon=False, ncols=4)
    return drawn


def _names(parts: Sequence[Figure]) -> list[str]:
    """Of the curves that are ours, each once: its place gives a curve its colour in every part."""
    return list(dict.fromkeys(curve.name for part in parts for curve in part.curves if not curve.printed))


def _draw(axes: Axes, figure: Figure, names: Sequence[str]) -> None:
    ours = [curve for curve in figure.curves if not curve.printed]
    for i, curve in enumerate(ours):
        if figure.words:
            _bars(axes, curve, i, len(ours))
        else:
            _line(axes, curve, names.index(curve.name))
    for curve in (curve for curve in figure.curves if curve.printed):
        axes.plot(curve.x, curve.y, "x", markersize=9, markeredgewidth=2, color=INK, label=curve.name, zorder=4)
    _dress(axes, figure)


def _line(axes: Axes, curve: Curve, at: int) -> None:
    """With a mark at each point, unless there are many."""
    marks = {"marker": _MARKS[at % 10], "markersize": 4} if len(curve.x) <= _MARKED else {"linewidth": 1.0}
    axes.plot(curve.x, curve.y, color=colormaps["tab10"](at % 10), label=curve.name, **marks)


def _bars(axes: Axes, curve: Curve, at: int, of: int) -> None:
    """Beside those of the other curves."""
    wide = 0.8 / of
    places = np.asarray(curve.x) + (at - (of - 1) / 2) * wide
    axes.bar(places, curve.y, wide, color=colormaps["tab10"](at % 10), label=curve.name)


def _dress(axes: Axes, figure: Figure) -> None:
    if "x" in figure.log:
        axes.set_xscale("log", base=2)
    if "y" in figure.log:
        axes.set_yscale("log")
    if figure.words:
        axes.set_xticks(range(len(figure.words)), _words(figure.words))
    if figure.low is not None:
        axes.set_ylim(bottom=figure.low)
    axes.set_xlabel(figure.x, color=INK)
    axes.set_ylabel(figure.y, color=INK)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _words(words: Sequence[str]) -> list[str]:
    return [word.replace(" ", "\n", 1) if len(words) > 6 else word for word in words]
