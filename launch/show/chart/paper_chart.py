"""A chart that repeats a figure of a paper: Emu's values as lines or bars, printed values as crosses."""

from collections.abc import Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from launch.papers.paper import Curve, Figure
from launch.show.canvas import INK, dress, hue, new_page

_WIDE_IN, _HIGH_IN = 10.0, 5.6
_PART_IN = 3.6  # height of a part
_PART_LETTERS = 56  # letters of a line above a part, so that it fits the part
_MARKS, _MARKED = "osD^v<>ph*", 40


def picture(figure: Figure | Sequence[Figure]) -> Picture:
    """Return a figure of a paper, drawn as a picture; several figures are drawn side by side, two in a row."""
    if not isinstance(figure, Figure):
        return _pictures(figure)
    drawn, axes = new_page(_WIDE_IN, _HIGH_IN, figure.title)
    _draw(axes, figure, _names([figure]))
    drawn.legend(loc="outside lower left", fontsize=8, frameon=False, ncols=4)
    return drawn


def _pictures(parts: Sequence[Figure]) -> Picture:
    """Return several figures of a paper, side by side in one picture.

    There is one legend where all parts have the same curves, else each part has its own.
    """
    rows = -(-len(parts) // 2)
    drawn, whole = new_page(_WIDE_IN, _PART_IN * rows + 1.0, "")
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
    """Return the names of the curves that Emu computes, each once; the index of a name decides its colour."""
    return list(dict.fromkeys(curve.name for part in parts for curve in part.curves if not curve.printed))


def _draw(axes: Axes, figure: Figure, names: Sequence[str]) -> None:
    """Draw the curves that Emu computes, then the printed values over them."""
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
    """Draw a curve as a line, with a mark at each of its points if there are 40 points at most."""
    marks = {"marker": _MARKS[at % 10], "markersize": 4} if len(curve.x) <= _MARKED else {"linewidth": 1.0}
    axes.plot(curve.x, curve.y, color=hue(at), label=curve.name, **marks)


def _bars(axes: Axes, curve: Curve, at: int, of: int) -> None:
    """Draw a curve as bars beside the bars of the other curves.

    Args:
        axes: The axes to draw on.
        curve: The curve.
        at: The number of the curve, from 0.
        of: The number of curves.
    """
    wide = 0.8 / of
    places = np.asarray(curve.x) + (at - (of - 1) / 2) * wide
    axes.bar(places, curve.y, wide, color=hue(at), label=curve.name)


def _dress(axes: Axes, figure: Figure) -> None:
    """Set scales, ticks, labels and the grid of the axes."""
    if "x" in figure.log:
        axes.set_xscale("log", base=2)
    if "y" in figure.log:
        axes.set_yscale("log")
    if figure.words:
        two_lines = len(figure.words) > 6
        axes.set_xticks(range(len(figure.words)), [w.replace(" ", "\n", 1) if two_lines else w for w in figure.words])
    if figure.low is not None:
        axes.set_ylim(bottom=figure.low)
    dress(axes, figure.x, figure.y)
