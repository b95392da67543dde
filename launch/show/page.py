"""What all pictures share: a page, a title that finds room on it, places for labels beside one another, and the file."""

import io
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from scipy.optimize import isotonic_regression

from emu.arrays import F64
from emu.files import write_file

INK, GREY = "#22313f", "#7c8894"
TITLE_PT = 11.0
_MARGIN_IN = 0.12
_LINE = 1.35  # of text, in its size
_BREAKS = re.compile(r"(?<=[\s,:/;])")  # after which a line may end


def page(wide_in: float, high_in: float, title: str) -> tuple[Figure, Axes]:
    """A figure with a title over all of it, in as many lines as it takes; the page grows by those beyond the first."""
    lines = wrapped(title, TITLE_PT, wide_in - 2 * _MARGIN_IN)
    figure = Figure(figsize=(wide_in, high_in + (len(lines) - 1) * TITLE_PT * _LINE / 72), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle("\n".join(lines), x=_MARGIN_IN / wide_in, ha="left", fontsize=TITLE_PT, color=INK)
    return figure, figure.add_subplot()


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, the same bytes each time.

    Raises:
        WriteError: the file cannot be written.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", metadata={"Software": None})
    write_file("--png", path, drawn.getvalue())


def among(ranks: Sequence[int]) -> str:
    """How many ranks titles name: one number, or the least and the most of several that are sorted."""
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"


def wrapped(text: str, size_pt: float, wide_in: float, weight: str = "normal") -> list[str]:
    """The lines of a text that are no wider than this, broken where words, items or names end, else anywhere."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines.append("")
        for piece in _pieces(paragraph, size_pt, wide_in, weight):
            if lines[-1] and wide_pt((lines[-1] + piece).rstrip(), size_pt, weight) > 72 * wide_in:
                lines.append("")
            lines[-1] += piece
    return [line.rstrip() for line in lines]


def _pieces(text: str, size_pt: float, wide_in: float, weight: str) -> Iterable[str]:
    """What stays on one line; the letters of what is too long for any."""
    for piece in _BREAKS.split(text):
        yield from [piece] if wide_pt(piece.rstrip(), size_pt, weight) <= 72 * wide_in else piece


@lru_cache(maxsize=4096)
def wide_pt(text: str, size_pt: float, weight: str = "normal") -> float:
    """How wide a line of text is drawn, in points."""
    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size_pt, weight=weight), ismath=False)[0])


def spaced(places: F64, apart: float) -> F64:
    """Sorted places moved as little as can be, by least squares, so that none are nearer than `apart`."""
    steps = apart * np.arange(len(places))
    moved: F64 = isotonic_regression(places - steps).x + steps
    return moved
