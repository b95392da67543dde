"""Lines over two axes that begin at 0, as a drawing of a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from launch.show.html.frame import Axis, Frame, framed
from launch.show.html.page import Key, Svg

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7c8894", "#22313f", "#999933", "#882255")


class Stairs(NamedTuple):
    """A line that keeps each value until the next."""

    name: str
    x: Sequence[float]  # one more than values: where the last one ends
    y: Sequence[float]


class Drawn(NamedTuple):
    """A line as it is drawn."""

    points: str
    colour: str
    told: str


@dataclass(frozen=True, slots=True)
class Lines:
    """What the template draws."""

    frame: Frame
    lines: tuple[Drawn, ...]


def stairs(told: str, rows: Sequence[Stairs], across: Axis, up: Axis) -> Svg:
    """The drawing; a line and its key have the same colour in every drawing of the same rows."""

    def path(row: Stairs) -> str:
        ends = zip(pairwise(row.x), row.y, strict=True)
        return " ".join(
            f"{across.x(begin)},{up.y(value)} {across.x(end)},{up.y(value)}" for (begin, end), value in _merged(ends)
        )

    drawn = tuple(Drawn(path(row), _COLOURS[i % len(_COLOURS)], row.name) for i, row in enumerate(rows))
    return Svg("lines.html", told, Lines(framed(across, up), drawn), tuple(Key(line.told, line.colour) for line in drawn))


Span = tuple[tuple[float, float], float]


def _merged(spans: "zip[Span]") -> list[Span]:
    """Neighbours of one value are one."""
    found: list[Span] = []
    for (begin, end), value in spans:
        if found and found[-1][1] == value:
            found[-1] = ((found[-1][0][0], end), value)
        else:
            found.append(((begin, end), value))
    return found
