"""A report as one HTML file that needs no network: the parts of a page, and the writer.

A page has key figures, then sections of blocks. The template of a block is the file that its class names in `templates`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from emu.files import write_file
from launch.show.text.table import Column, R

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
class Cell:
    """A cell of a table."""

    text: str
    key: float | str | None = None  # the column is sorted by this; None: by the text
    wide: bool = False  # whether the cell holds a sentence and needs a wide column


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Sentences: a paragraph where there is one, a list where there are several."""

    template: ClassVar[str] = "words.html"
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose rows a click on a column's head sorts."""

    template: ClassVar[str] = "table.html"
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A segment of a stacked bar."""

    name: str
    colour: str
    share: float  # share of the width of the page, 0..1
    told: str  # text that appears when the segment is pointed at


@dataclass(frozen=True, slots=True)
class StackedBar:
    """A bar of segments side by side."""

    name: str
    pieces: tuple[BarSegment, ...]
    told: str = ""  # text after the bar


@dataclass(frozen=True, slots=True)
class LegendKey:
    """An entry of a legend: a colour and its name."""

    name: str
    colour: str
    told: str = ""


@dataclass(frozen=True, slots=True)
class StackedBars:
    """Stacked bars under one another, with their legend."""

    template: ClassVar[str] = "bars.html"
    bars: tuple[StackedBar, ...]
    keys: tuple[LegendKey, ...]


@dataclass(frozen=True, slots=True)
class Svg:
    """A drawing by a template of its own, with its legend."""

    template: ClassVar[str] = "svg.html"
    drawing: str  # name of its template
    told: str  # description for readers who cannot see it
    data: SimpleNamespace  # what that template asks for
    keys: tuple[LegendKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title."""

    title: str
    blocks: tuple[object, ...]
    note: str = ""  # text under the title


@dataclass(frozen=True, slots=True)
class Page:
    """A report: a title, key figures and sections."""

    title: str
    subtitle: str
    figures: tuple[KeyFigure, ...]
    sections: tuple[Section, ...]


def table_of(head: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> Table:
    """Return a table of texts or cells; a cell can be sorted by something else than its text."""
    cells = [tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows]
    return Table(tuple(head), tuple(cells))


def column_table_of(columns: Sequence[Column[R]], rows: Sequence[R]) -> Table:
    """Return a table of these columns, with a line for each row."""
    cells = [tuple(Cell(c.text(row), c.key(row) if c.key else None) for c in columns) for row in rows]
    return Table(tuple(column.head for column in columns), tuple(cells))


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
