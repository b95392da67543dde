"""A chart of stair lines on an HTML page: lines that keep each value until the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from launch.show.html.frame import ChartAxis, Frame, frame_of
from launch.show.html.page import LegendKey, Svg

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7c8894", "#22313f", "#999933", "#882255")


class Stairs(NamedTuple):
    """A line that keeps each value until the next."""

    name: str
    x: Sequence[float]  # where each value begins, and where the last one ends
    y: Sequence[float]


class StairLine(NamedTuple):
    """A stair line as the template draws it."""

    points: str
    colour: str
    told: str


@dataclass(frozen=True, slots=True)
class StairChart:
    """A chart of stair lines, as the template `lines.html` draws it."""

    frame: Frame
    lines: tuple[StairLine, ...]


def stair_chart(told: str, rows: Sequence[Stairs], across: ChartAxis, up: ChartAxis) -> Svg:
    """Return a chart of stair lines with its legend; the number of a line gives its colour.

    Args:
        told: The description of the chart for readers who cannot see it.
        rows: The lines.
        across: The lower axis.
        up: The axis at the left.
    """

    def path(row: Stairs) -> str:
        ends = zip(pairwise(row.x), row.y, strict=True)
        return " ".join(
            f"{across.x(begin)},{up.y(value)} {across.x(end)},{up.y(value)}" for (begin, end), value in _merge_equal(ends)
        )

    drawn = tuple(StairLine(path(row), _COLOURS[i % len(_COLOURS)], row.name) for i, row in enumerate(rows))
    return Svg(
        "lines.html", told, StairChart(frame_of(across, up), drawn), tuple(LegendKey(line.told, line.colour) for line in drawn)
    )


Span = tuple[tuple[float, float], float]


def _merge_equal(spans: "zip[Span]") -> list[Span]:
    """Return the spans, with neighbours of equal value merged into one."""
    found: list[Span] = []
    for (begin, end), value in spans:
        if found and found[-1][1] == value:
            found[-1] = ((found[-1][0][0], end), value)
        else:
            found.append(((begin, end), value))
    return found
