"""A figure of a paper as data: titles of axes, Emu's curves and printed values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Curve(NamedTuple):
    """A line of a figure, or its bars of one colour."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    printed: bool = False  # whether these are printed values, which are drawn as marks


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with the axes of the paper."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log: str = ""  # axes with a logarithmic scale: "", "x", "y" or "xy"
    words: Sequence[str] = ()  # texts at x = 0, 1, 2, ...; curves are then bars
    low: float | None = None  # lower end of y; None: 0 for bars, else by the values
