"""Reports in parts: figures, which are lines of a text, key figures of a page, or both; the sections and blocks of a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

from launch.show.text.table import Column, R


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A number at the top of a page."""

    name: str  # the name of the JSON field, for programs that read the page
    label: str
    text: str
    value: float | str
    note: str = ""


class Fact(NamedTuple):
    """A figure of a report: a line of its text, a key figure of its page, or both."""

    label: str  # of the line
    text: str | None  # after the label; None: there is no line
    figure: KeyFigure | None = None  # None: the page has none


class ColouredPart(NamedTuple):
    """A part of a chart that has a colour of its own: a segment of a bar, or an entry of a legend."""

    name: str
    colour: str
    told: str = ""  # text that appears when the segment is pointed at, or that follows the entry
    share: float = 0.0  # share of the width of the page, 0..1


Block = SimpleNamespace  # a part of a page: the file of its `template` in html/templates, and what that template asks for


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title."""

    title: str
    blocks: Sequence[Block]
    note: str = ""  # text under the title


@dataclass(frozen=True, slots=True)
class Page:
    """A report as a page: a title, key figures and sections."""

    title: str
    subtitle: str
    figures: Sequence[KeyFigure]
    sections: Sequence[Section]


_LABEL = 16  # letters of the label of a line
_FIRST = ("step_time_s", "mfu", "tokens_per_s", "compute_s", "exposed_comm_s", "idle_s", "peak_memory_bytes")  # on a page


def fact_lines(facts: Iterable[Fact]) -> list[str]:
    """Return the lines of a text that figures give."""
    return [f"{fact.label:<{_LABEL}}{fact.text}" for fact in facts if fact.text is not None]


def key_figures(facts: Iterable[Fact]) -> list[KeyFigure]:
    """Return the key figures of a page that figures give: the step time, how fast that is, its parts, memory, the others."""
    found = [fact.figure for fact in facts if fact.figure is not None]
    return sorted(found, key=lambda figure: _FIRST.index(figure.name) if figure.name in _FIRST else len(_FIRST))


def table_block(columns: Sequence[Column[R]], rows: Sequence[R]) -> Block:
    """Return a table of a page, whose rows a click on a column's head sorts."""
    return Block(template="table.html", columns=columns, rows=rows)


def sentences(lines: Sequence[str]) -> Block:
    """Return sentences of a page: a paragraph where there is one, a list where there are several."""
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
