"""The frame of a drawing of a page: two axes that begin at 0, with round numbers along them."""

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import NamedTuple

_WIDE, _HIGH = 1100, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, _WIDE - 24, 16, _HIGH - 52
_TICKS = 8  # of an axis, about


class Tick(NamedTuple):
    """A place of an axis."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """What is told along it."""

    name: str
    most: float
    scale: float = 1.0  # of the numbers at its ticks
    unit: str = ""

    def x(self, value: float) -> str:
        """Where a value is, along the drawing."""
        return f"{_LEFT + self._share(value) * (_RIGHT - _LEFT):.1f}"

    def y(self, value: float) -> str:
        """Where a value is, up the drawing."""
        return f"{_BOTTOM - self._share(value) * (_BOTTOM - _TOP):.1f}"

    def round(self) -> list[float]:
        """Values from 0 on whose numbers are round."""
        whole = self.most * self.scale
        power = 10.0 ** floor(log10(whole / _TICKS)) if whole > 0 else 1.0
        step = next(each * power for each in (1, 2, 5, 10) if ceil(whole / (each * power)) <= _TICKS + 1)
        return [i * step / self.scale for i in range(floor(whole / step + 1e-9) + 1)]

    def halved(self) -> range:
        """The same of bytes: the most is cut in two until pieces are small enough."""
        step = 2 ** (int(self.most) // _TICKS).bit_length()
        return range(0, int(self.most) + 1, step)

    def number(self, value: float) -> str:
        """A value as a tick has it."""
        return f"{value * self.scale:.6g}{self.unit}"

    def _share(self, value: float) -> float:
        return min(value / self.most, 1.0)


@dataclass(frozen=True, slots=True)
class Frame:
    """What the template draws of it."""

    across: str
    up: str
    below: tuple[Tick, ...]
    beside: tuple[Tick, ...]
    wide: int = _WIDE
    high: int = _HIGH
    left: int = _LEFT
    right: int = _RIGHT
    top: int = _TOP
    bottom: int = _BOTTOM


def framed(across: Axis, up: Axis, below: tuple[Tick, ...] = ()) -> Frame:
    """Both axes with round numbers, unless the lower one has ticks of its own."""
    along = below or tuple(Tick(across.x(at), across.number(at)) for at in across.round())
    return Frame(across.name, up.name, along, tuple(Tick(up.y(at), up.number(at)) for at in up.round()))
