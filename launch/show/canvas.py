"""Drawing pages with matplotlib: figures with titles, wrapped text, spread labels, and picture files."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from scipy.optimize import isotonic_regression

from emu.arrays import F64
from emu.errors import InputError
from emu.files import write_file
from launch.shell import output_text

INK, GREY = "#22313f", "#7c8894"
TITLE_PT = 11.0
NOTEBOOK_DPI = 100.0  # a notebook keeps its pictures, and shows them no wider than its page
_MARGIN_IN = 0.12
_LINE = 1.35  # height of a line of text, in the size of its letters
_UNDATED = {"png": ("Software",), "svg": ("Date",), "pdf": ("CreationDate",)}  # entries that would differ from run to run
_BREAKS = re.compile(r"(?<=[\s,:/;])")  # places at which a line may end


_GIVEN: ContextVar[Axes | None] = ContextVar("axes that the next page is drawn into", default=None)


class ShownAxes(Axes):
    """Matplotlib axes that a notebook shows as their whole figure."""

    def _repr_png_(self) -> bytes:
        owner = self.get_figure(root=True)
        assert owner is not None
        return picture_bytes(owner, "png", NOTEBOOK_DPI)


class ShownFigure(Figure):
    """A matplotlib figure that a notebook shows, and whose axes are shown too."""

    def add_subplot(self, *args: Any, **kwargs: Any) -> Any:
        """Return new axes of the class `ShownAxes`; arguments as in matplotlib."""
        return super().add_subplot(*args, **{"axes_class": ShownAxes, **kwargs})

    def _repr_png_(self) -> bytes:
        return picture_bytes(self, "png", NOTEBOOK_DPI)


def picture_bytes(figure: Figure, kind: str, dpi: float | Literal["figure"] = "figure") -> bytes:
    """Return a figure as the bytes of a file; equal figures give equal bytes.

    Args:
        figure: The figure.
        kind: `png`, `svg` or `pdf`.
        dpi: Dots an inch.
    """
    drawn = io.BytesIO()
    with rc_context({"svg.hashsalt": "emu"}):
        figure.savefig(drawn, format=kind, dpi=dpi, metadata=dict.fromkeys(_UNDATED[kind]))
    return drawn.getvalue()


@contextmanager
def drawing_into(axes: Axes) -> Iterator[None]:
    """Draw the next page into the user's axes instead of a new figure, while the context lasts."""
    before = _GIVEN.set(axes)
    try:
        yield
    finally:
        _GIVEN.reset(before)


def new_page(wide_in: float, high_in: float, title: str) -> tuple[Figure, Axes]:
    """Return an empty figure with a title at its top, and its axes; or those that `drawing_into` gives.

    The figure is as much higher as the lines of the title after the first need.

    Args:
        wide_in: The width in inches.
        high_in: The height in inches, with one line of title.
        title: The title; it is broken into lines that fit the width.
    """
    given = _GIVEN.get()
    if given is not None:
        given.set_title(title, fontsize=TITLE_PT, color=INK, wrap=True)
        owner = given.get_figure(root=True)
        assert owner is not None
        return owner, given
    lines = wrap(title, TITLE_PT, wide_in - 2 * _MARGIN_IN)
    figure = ShownFigure(figsize=(wide_in, high_in + (len(lines) - 1) * TITLE_PT * _LINE / 72), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle("\n".join(lines), x=_MARGIN_IN / wide_in, ha="left", fontsize=TITLE_PT, color=INK)
    return figure, figure.add_subplot()


def add_legend(figure: Figure, axes: Axes, ncols: int, handles: Sequence[Artist] | None = None, size_pt: float = 8.0) -> None:
    """Write the legend of a page below its drawing, or inside the user's axes.

    Args:
        figure: The page.
        axes: The drawing.
        ncols: The number of columns.
        handles: The marks with their labels; None: all that are drawn.
        size_pt: The size of the letters.
    """
    shown: Mapping[str, Any] = {"fontsize": size_pt, "frameon": False, **({} if handles is None else {"handles": handles})}
    if _GIVEN.get() is not None:
        axes.legend(**shown)
    else:
        figure.legend(loc="outside lower left", ncols=ncols, **shown)


def check_own_page(what: str) -> None:
    """Refuse to draw into given axes a picture that has several panels.

    Args:
        what: The picture, in words for the message.

    Raises:
        InputError: axes are given by `drawing_into`.
    """
    if _GIVEN.get() is not None:
        raise InputError(f"plot: {what} has two panels; leave `ax` out, and take the axes of the figure that is returned")


def dress(axes: Axes, below: str, beside: str = "", grid: Literal["both", "y"] | None = "both") -> None:
    """Name the axes of a chart, draw a grid, and leave out the frame above and at the right.

    Args:
        axes: The axes.
        below: The name of the lower axis.
        beside: The name of the axis at the left; "": none.
        grid: The axes whose ticks have lines; None: neither.
    """
    axes.set_xlabel(below, color=INK)
    axes.set_ylabel(beside, color=INK)
    if grid is not None:
        axes.grid(axis=grid, visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Write the figure to a PNG, SVG or PDF file, by its ending.

    Raises:
        WriteError: the file cannot be written.
    """
    kind = path.suffix[1:].lower()
    write_file(output_text("--png"), path, picture_bytes(figure, kind if kind in _UNDATED else "png"))


def hue(number: int) -> str:
    """Return the colour of line number `number` of a chart."""
    return to_hex(colormaps["tab10"](number % 10))


def wrap(text: str, size_pt: float, wide_in: float, weight: str = "normal") -> list[str]:
    """Return the lines of a text, none wider than `wide_in` inches.

    A line ends after a space, a comma, a colon, a slash or a semicolon, and inside a word that is too long for one line.
    """
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines.append("")
        for piece in _pieces(paragraph, size_pt, wide_in, weight):
            if lines[-1] and text_width_pt((lines[-1] + piece).rstrip(), size_pt, weight) > 72 * wide_in:
                lines.append("")
            lines[-1] += piece
    return [line.rstrip() for line in lines]


def _pieces(text: str, size_pt: float, wide_in: float, weight: str) -> Iterable[str]:
    """Yield the words of a text, between which a line may be broken; a word too long for a line is yielded letter by letter."""
    for piece in _BREAKS.split(text):
        yield from [piece] if text_width_pt(piece.rstrip(), size_pt, weight) <= 72 * wide_in else piece


@lru_cache(maxsize=4096)
def text_width_pt(text: str, size_pt: float, weight: str = "normal") -> float:
    """Return the width of a line of text in points."""
    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size_pt, weight=weight), ismath=False)[0])


def spread_apart(places: F64, apart: float) -> F64:
    """Return sorted positions moved by the least squares so that neighbours are at least `apart` apart."""
    steps = apart * np.arange(len(places))
    moved: F64 = isotonic_regression(places - steps).x + steps
    return moved
