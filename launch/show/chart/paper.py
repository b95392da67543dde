"""A figure of a paper, worked out again: lines or bars of ours, and marks where the paper prints a value."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from launch.papers.figure import Curve, Figure
from launch.show.page import INK, page, save

_WIDE_IN, _HIGH_IN = 10.0, 5.6
_MARKS = "osD^v<>ph*"


def draw_figure(figure: Figure, path: Path) -> None:
    """Draw it to a file.

    Raises:
        InputError: the file cannot be written.
    """
    save(picture(figure), path, "--png")


def picture(figure: Figure) -> Picture:
    """The picture of `draw_figure`."""
    drawn, axes = page(_WIDE_IN, _HIGH_IN, figure.title)
    ours = [curve for curve in figure.curves if not curve.printed]
    for i, curve in enumerate(ours):
        if figure.words:
            _bars(axes, curve, i, len(ours))
        else:
            axes.plot(curve.x, curve.y, marker=_MARKS[i % 10], markersize=4, color=colormaps["tab10"](i % 10), label=curve.name)
    for curve in (curve for curve in figure.curves if curve.printed):
        axes.plot(curve.x, curve.y, "x", markersize=9, markeredgewidth=2, color=INK, label=curve.name, zorder=4)
    _dress(axes, figure)
    drawn.legend(loc="outside lower left", fontsize=8, frameon=False, ncols=4)
    return drawn


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
    axes.set_xlabel(figure.x, color=INK)
    axes.set_ylabel(figure.y, color=INK)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _words(words: Sequence[str]) -> list[str]:
    return [word.replace(" ", "\n", 1) if len(words) > 6 else word for word in words]
