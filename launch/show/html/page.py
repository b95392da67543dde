"""A report as one HTML file that needs no network: the parts of a page, and the writer.

A page has key figures, then sections of blocks. The template of a block is the file that its class names in `templates`.

The frame of a chart on an HTML page: two axes that begin at 0, with round numbers along them.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from emu.files import write_file
from launch.show.canvas import picture_bytes
from launch.show.text.table import Column

_WIDE, _HIGH = 1100, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, _WIDE - 24, 16, _HIGH - 52
_TICKS = 8  # ticks of an axis, about
AxisTick = tuple[str, str]  # a place in units of the drawing, and the text there


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """An axis of a chart: its name, its upper end, and how its numbers are written."""

    name: str
    most: float
    scale: float = 1.0  # factor of the numbers at its ticks
    unit: str = ""

    def x(self, value: float) -> str:
        """Return the place of a value along the width of the drawing."""
        return f"{_LEFT + self._share(value) * (_RIGHT - _LEFT):.1f}"

    def y(self, value: float) -> str:
        """Return the place of a value along the height of the drawing."""
        return f"{_BOTTOM - self._share(value) * (_BOTTOM - _TOP):.1f}"

    def decimal_ticks(self) -> list[float]:
        """Return values from 0 to the upper end at which ticks have round decimal numbers."""
        whole = self.most * self.scale
        power = 10.0 ** floor(log10(whole / _TICKS)) if whole > 0 else 1.0
        step = next(each * power for each in (1, 2, 5, 10) if ceil(whole / (each * power)) <= _TICKS + 1)
        return [i * step / self.scale for i in range(floor(whole / step + 1e-9) + 1)]

    def binary_ticks(self) -> range:
        """Return values from 0 to the upper end in steps of a power of two, for axes of bytes."""
        step = 2 ** (int(self.most) // _TICKS).bit_length()
        return range(0, int(self.most) + 1, step)

    def number(self, value: float) -> str:
        """Return the text of a tick at a value."""
        return f"{value * self.scale:.6g}{self.unit}"

    def _share(self, value: float) -> float:
        """Return the place of a value between 0 and the upper end, from 0 to 1."""
        return min(value / self.most, 1.0)


def frame_of(across: ChartAxis, up: ChartAxis, below: Sequence[AxisTick] = ()) -> SimpleNamespace:
    """Return the axes, the ticks and the size of a chart, as the template `axes.html` draws them.

    Args:
        across: The lower axis.
        up: The axis at the left.
        below: The ticks of the lower axis; empty: round decimal numbers.
    """
    along = below or [(across.x(at), across.number(at)) for at in across.decimal_ticks()]
    beside = [(up.y(at), up.number(at)) for at in up.decimal_ticks()]
    size = {"wide": _WIDE, "high": _HIGH, "left": _LEFT, "right": _RIGHT, "top": _TOP, "bottom": _BOTTOM}
    return SimpleNamespace(across=across.name, up=up.name, below=along, beside=beside, **size)


_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A number at the top of a page."""

    name: str  # the name of the JSON field, for programs that read the page
    label: str
    text: str
    value: float | str
    note: str = ""


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Sentences: a paragraph where there is one, a list where there are several."""

    template: ClassVar[str] = "words.html"
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Text in columns, as a command prints it."""

    template: ClassVar[str] = "verbatim.html"
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that needs no further file."""

    template: ClassVar[str] = "picture.html"
    svg: str  # the SVG file in base64
    told: str  # description for readers who cannot see it


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose rows a click on a column's head sorts."""

    template: ClassVar[str] = "table.html"
    columns: Sequence[Column[Any]]
    rows: Sequence[Any]


class ColouredPart(NamedTuple):
    """A part of a chart that has a colour of its own: a segment of a bar, or an entry of a legend."""

    name: str
    colour: str
    told: str = ""  # text that appears when the segment is pointed at, or that follows the entry
    share: float = 0.0  # share of the width of the page, 0..1


@dataclass(frozen=True, slots=True)
class StackedBars:
    """Stacked bars under one another, with their legend."""

    template: ClassVar[str] = "bars.html"
    bars: Sequence[tuple[str, Sequence[ColouredPart], str]]  # text above the bar, its segments, and text after it
    keys: Sequence[ColouredPart]


@dataclass(frozen=True, slots=True)
class Svg:
    """A drawing by a template of its own, with its legend."""

    template: ClassVar[str] = "svg.html"
    drawing: str  # name of its template
    told: str  # description for readers who cannot see it
    data: SimpleNamespace  # what that template asks for
    keys: Sequence[ColouredPart] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title."""

    title: str
    blocks: Sequence[TextBlock | Verbatim | Picture | Table | StackedBars | Svg]
    note: str = ""  # text under the title


@dataclass(frozen=True, slots=True)
class Page:
    """A report: a title, key figures and sections."""

    title: str
    subtitle: str
    figures: Sequence[KeyFigure]
    sections: Sequence[Section]


def answer_page(title: str, text: str, figure: Figure | None) -> Page:
    """Return the page of an answer that has a picture and a text.

    Args:
        title: The title.
        text: The report as the command prints it.
        figure: The picture; None: there is none.
    """
    sections = [Section("Report", [Verbatim(text)])]
    if figure is not None:
        drawn = base64.b64encode(picture_bytes(figure, "svg")).decode()
        sections.insert(0, Section("Picture", [Picture(drawn, title)]))
    return Page(title, "", (), sections)


def write_page(page: Page, path: Path) -> None:
    """Write a page to a file; equal pages give equal bytes.

    Raises:
        WriteError: the file cannot be written.
    """
    write_file("--html", path, html_of(page).encode())


def html_of(page: Page) -> str:
    """Return a page as HTML text."""
    loader = FileSystemLoader(_TEMPLATES)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("page.html").render(page=page)
