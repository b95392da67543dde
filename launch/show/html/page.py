"""A report as one HTML file that needs no network.

The frame of a chart on an HTML page: two axes that begin at 0, with round numbers along them.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from types import SimpleNamespace

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from launch.show.blocks import Block, Page, Section
from launch.show.canvas import picture_bytes

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


def answer_page(title: str, text: str, figure: Figure | None) -> Page:
    """Return the page of an answer that has a picture and a text.

    Args:
        title: The title.
        text: The report as the command prints it.
        figure: The picture; None: there is none.
    """
    sections = [Section("Report", [Block(template="verbatim.html", text=text)])]
    if figure is not None:
        drawn = base64.b64encode(picture_bytes(figure, "svg")).decode()
        sections.insert(0, Section("Picture", [Block(template="picture.html", svg=drawn, told=title)]))
    return Page(title, "", (), sections)


def html_of(page: Page) -> str:
    """Return a page as HTML text; equal pages give equal texts."""
    loader = FileSystemLoader(_TEMPLATES)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("page.html").render(page=page)
