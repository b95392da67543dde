"""Lines over two axes that begin at 0, as a drawing of a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10
from typing import NamedTuple

from launch.show.html.page import Key, Svg
from launch.show.html.scatter import Tick

_WIDE, _HIGH = 1100, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 16, 52  # margins
_TICKS = 8  # of an axis, about
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7c8894", "#22313f", "#999933", "#882255")


class Stairs(NamedTuple):
    """A line that keeps each value until the next."""

    name: str
    x: Sequence[float]  # one more than values: where the last one ends
    y: Sequence[float]


class Axis(NamedTuple):
    """What is told along it."""

    name: str
    most: float
    scale: float = 1.0  # of the numbers at its ticks
    unit: str = ""


class Drawn(NamedTuple):
    """A line as it is drawn."""

    points: str
    colour: str
    told: str


@dataclass(frozen=True, slots=True)
class Lines:
    """What the template draws."""

    wide: int
    high: int
    left: int
    right: int
    top: int
    bottom: int
    below: tuple[Tick, ...]
    beside: tuple[Tick, ...]
    across: str
    up: str
    lines: tuple[Drawn, ...]


def stairs(told: str, rows: Sequence[Stairs], across: Axis, up: Axis) -> Svg:
    """The drawing; a line and its key have the same colour in every drawing of the same rows."""
    right, bottom = _WIDE - _RIGHT, _HIGH - _BOTTOM

    def x(value: float) -> str:
        return f"{_LEFT + min(value / across.most, 1.0) * (right - _LEFT):.1f}"

    def y(value: float) -> str:
        return f"{bottom - min(value / up.most, 1.0) * (bottom - _TOP):.1f}"

    def path(row: Stairs) -> str:
        ends = zip(pairwise(row.x), row.y, strict=True)
        return " ".join(f"{x(begin)},{y(value)} {x(end)},{y(value)}" for (begin, end), value in _merged(ends))

    drawn = tuple(Drawn(path(row), _COLOURS[i % len(_COLOURS)], row.name) for i, row in enumerate(rows))
    below = tuple(Tick(x(at), _number(at, across)) for at in _ticks(across))
    beside = tuple(Tick(y(at), _number(at, up)) for at in _ticks(up))
    data = Lines(_WIDE, _HIGH, _LEFT, right, _TOP, bottom, below, beside, across.name, up.name, drawn)
    return Svg("lines.html", told, data, tuple(Key(line.told, line.colour) for line in drawn))


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


def _ticks(axis: Axis) -> list[float]:
    """Round numbers from 0 on."""
    whole = axis.most * axis.scale
    power = 10.0 ** floor(log10(whole / _TICKS)) if whole > 0 else 1.0
    step = next(each * power for each in (1, 2, 5, 10) if ceil(whole / (each * power)) <= _TICKS + 1)
    return [i * step / axis.scale for i in range(floor(whole / step + 1e-9) + 1)]


def _number(at: float, axis: Axis) -> str:
    return f"{at * axis.scale:.6g}{axis.unit}"
