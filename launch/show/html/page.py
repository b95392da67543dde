"""A report as one HTML file that needs no network: what it is made of, and how it is written.

A page is figures, then sections of blocks; each kind of block has a template of its name in `templates`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from emu.files import write_file

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that the page begins with."""

    name: str  # that of the JSON's field, by which programs find it
    label: str
    text: str
    value: float | str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A place of a table."""

    text: str
    key: float | str | None = None  # what the column is sorted by; None: the text
    wide: bool = False  # a sentence, which a narrow column would stretch over many lines


@dataclass(frozen=True, slots=True)
class Words:
    """Sentences, an item each where there are several."""

    template: ClassVar[str] = "words.html"
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that a click on a head sorts."""

    template: ClassVar[str] = "table.html"
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a bar."""

    name: str
    colour: str
    share: float  # of the whole width, 0..1
    told: str  # when it is pointed at


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar, of pieces side by side."""

    name: str
    pieces: tuple[Piece, ...]
    told: str = ""  # after it


@dataclass(frozen=True, slots=True)
class Key:
    """What a colour stands for."""

    name: str
    colour: str
    told: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars under one another, and what their colours stand for."""

    template: ClassVar[str] = "bars.html"
    bars: tuple[Bar, ...]
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Svg:
    """A drawing by a template of its own."""

    template: ClassVar[str] = "svg.html"
    drawing: str  # its template
    told: str  # what it shows, for those who do not see it
    data: object
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Some blocks under a head."""

    title: str
    blocks: tuple[object, ...]
    note: str = ""  # under the head


@dataclass(frozen=True, slots=True)
class Page:
    """A report."""

    title: str
    subtitle: str
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]


def table_of(head: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> Table:
    """A table of words, or of cells where a column is sorted by something else."""
    cells = [tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows]
    return Table(tuple(head), tuple(cells))


def write_page(page: Page, path: Path) -> None:
    """Write a page, the same bytes each time.

    Raises:
        WriteError: the file cannot be written.
    """
    write_file("--html", path, html_of(page).encode())


def html_of(page: Page) -> str:
    """A page as text."""
    loader = FileSystemLoader(_TEMPLATES)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("page.html").render(page=page)
