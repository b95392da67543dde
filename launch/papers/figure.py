"""A figure of a paper as data: titles of axes, Emu's curves and printed values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Curve(NamedTuple):
    """A line of a figure, or its bars of one colour."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    printed: bool = False  # the paper's own values, drawn as marks


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with the axes of the paper."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log: str = ""  # which of x and y have a logarithmic axis
    words: Sequence[str] = ()  # at 0, 1, 2, ... of x: then there are bars
    low: float | None = None  # where y begins; None: at 0 for bars, else by what is drawn
