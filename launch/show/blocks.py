"""Building blocks of reports: facts, which are text lines, key figures of a page, or both; sections and blocks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

from launch.show.text.table import Column, R


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A number at the top of a report page, with its label and a note."""

    name: str  # the name of the JSON field, for programs that read the page
    label: str
    text: str
    value: float | str  # the value for programs that read the page
    note: str = ""


class Fact(NamedTuple):
    """One fact of a report: a label with a text for the text report, or a key figure for the page, or both."""

    label: str  # the label of the line
    text: str | None  # the text after the label; None: the text report has no such line
    figure: KeyFigure | None = None  # None: the page has none


class ColouredPart(NamedTuple):
    """A named and coloured part of a chart: a segment of a bar, or an entry of a legend."""

    name: str
    colour: str
    told: str = ""  # text that appears when the segment is pointed at, or that follows the entry
    share: float = 0.0  # share of the width of the page, 0..1


Block = SimpleNamespace  # a part of a page: the file of its `template` in html/templates, and what that template asks for


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a report page: blocks (texts, tables, pictures) under a title."""

    title: str
    blocks: Sequence[Block]
    note: str = ""  # text under the title


@dataclass(frozen=True, slots=True)
class Page:
    """A report as a page of HTML: a title, key figures and sections."""

    title: str
    subtitle: str
    figures: Sequence[KeyFigure]
    sections: Sequence[Section]


_LABEL = 16  # width of the labels of lines, in letters
# Names of the key figures that come first on a page.
_FIRST = ("step_time_s", "expected_s", "mfu", "tokens_per_s", "compute_s", "exposed_comm_s", "idle_s", "peak_memory_bytes")


def fact_lines(facts: Iterable[Fact]) -> list[str]:
    """Return the text lines of a report: one for each fact that has a text."""
    return [f"{fact.label:<{_LABEL}}{fact.text}" for fact in facts if fact.text is not None]


def key_figures(facts: Iterable[Fact]) -> list[KeyFigure]:
    """Return the key figures of a page in order: step time, rate, parts, memory, then the others."""
    found = [fact.figure for fact in facts if fact.figure is not None]
    return sorted(found, key=lambda figure: _FIRST.index(figure.name) if figure.name in _FIRST else len(_FIRST))


def table_block(columns: Sequence[Column[R]], rows: Sequence[R]) -> Block:
    """Return a table as a block of a page; a click on the head of a column sorts its rows."""
    return Block(template="table.html", columns=columns, rows=rows)


def sentences(lines: Sequence[str]) -> Block:
    """Return sentences as a block of a page: a paragraph for one, a list for several."""
    return Block(template="words.html", lines=lines)


def drawing_block(drawing: str, told: str, data: SimpleNamespace, keys: Sequence[ColouredPart] = ()) -> Block:
    """Return a drawing of a page, with its legend.

    Args:
        drawing: The template of the drawing.
        told: The description for readers who cannot see it.
        data: What that template asks for.
        keys: The legend.
    """
    return Block(template="svg.html", drawing=drawing, told=told, data=data, keys=keys)
