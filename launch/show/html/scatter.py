"""MFU against memory, as a drawing of a page: the plans that were timed, and those that no other beats in both."""

from dataclasses import dataclass
from typing import NamedTuple

from emu.study.planning.row import Planned, PlanRow
from emu.units import format_size, format_time
from launch.show.html.page import Key, Svg

_WIDE, _HIGH = 1100, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 16, 52  # margins
_PALE, _FRONT, _BEST, _YOURS = "#b9c6d2", "#0072B2", "#D55E00", "#009E73"  # Okabe and Ito's
_TICKS = 8  # of an axis, about
_STEPS = (1, 2, 5)  # of MFU between two ticks, times a power of ten
_FAR = 4  # times what the largest plan takes: a memory beyond is not drawn
_ROOM = 1.06  # of the largest, so that its mark is whole


class Mark(NamedTuple):
    """A plan."""

    x: str
    y: str
    radius: int
    colour: str
    told: str


class Tick(NamedTuple):
    """A place of an axis."""

    at: str
    text: str


class Limit(NamedTuple):
    """The memory of the device."""

    x: str
    text: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """What the template draws."""

    wide: int
    high: int
    left: int
    right: int
    top: int
    bottom: int
    below: tuple[Tick, ...]
    beside: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    front: str  # its points
    limit: Limit | None


class _Scale(NamedTuple):
    most_bytes: float
    most_mfu: float

    def x(self, size: float) -> str:
        return f"{_LEFT + size / self.most_bytes * (_WIDE - _LEFT - _RIGHT):.1f}"

    def y(self, mfu: float) -> str:
        return f"{_HIGH - _BOTTOM - mfu / self.most_mfu * (_HIGH - _TOP - _BOTTOM):.1f}"


def scatter(planned: Planned) -> Svg:
    """The drawing."""
    sizes = [size for size, _ in planned.seen] + [row.peak_memory_bytes for row in planned.rows]
    has = planned.memory_bytes if planned.memory_bytes < _FAR * max(sizes) else 0
    scale = _Scale(_ROOM * max(*sizes, has), _ROOM * max(mfu for mfu in _mfus(planned)))
    limit = Limit(scale.x(has), f"{format_size(has)} of the {planned.device}") if has else None
    front = " ".join(f"{scale.x(row.peak_memory_bytes)},{scale.y(row.mfu)}" for row in planned.front)
    marks = tuple(_marks(planned, scale))
    edges = (_LEFT, _WIDE - _RIGHT, _TOP, _HIGH - _BOTTOM)
    drawn = Scatter(_WIDE, _HIGH, *edges, _below(scale), _beside(scale), marks, front, limit)
    told = f"MFU against the memory of the rank that holds most, of {len(planned.seen)} plans"
    yours = [Key("yours", _YOURS)] if any(row.beside for row in planned.rows) else []
    keys = (Key("plans that were timed", _PALE), Key("none has more MFU in less memory", _FRONT), Key("fastest", _BEST), *yours)
    return Svg("scatter.html", told, drawn, keys)


def _mfus(planned: Planned) -> list[float]:
    return [mfu for _, mfu in planned.seen] + [row.mfu for row in planned.rows]


def _marks(planned: Planned, scale: _Scale) -> list[Mark]:
    """The last lie on top."""
    seen = [
        Mark(scale.x(size), scale.y(mfu), 3, _PALE, f"MFU {mfu:.3f}, {format_size(size)} a rank") for size, mfu in planned.seen
    ]
    front = [_mark(row, scale, 5, _FRONT) for row in planned.front]
    yours = [_mark(row, scale, 7, _YOURS) for row in planned.rows if row.beside]
    return [*seen, *front, _mark(planned.fastest, scale, 8, _BEST), *yours]


def _mark(row: PlanRow, scale: _Scale, radius: int, colour: str) -> Mark:
    told = f"{row.plan}: MFU {row.mfu:.3f}, {format_size(row.peak_memory_bytes)} a rank, {format_time(row.step_time_s)}"
    return Mark(scale.x(row.peak_memory_bytes), scale.y(row.mfu), radius, colour, told)


def _below(scale: _Scale) -> tuple[Tick, ...]:
    """Round in binary units."""
    step = 2 ** (int(scale.most_bytes) // _TICKS).bit_length()
    return tuple(Tick(scale.x(at), format_size(at) if at else "0") for at in range(0, int(scale.most_bytes) + 1, step))


def _beside(scale: _Scale) -> tuple[Tick, ...]:
    power = 10.0 ** next(exponent for exponent in range(3, -12, -1) if 10.0**exponent * _TICKS < 2 * scale.most_mfu)
    step = next(step * power for step in (*_STEPS, 10) if scale.most_mfu / (step * power) <= _TICKS)
    count = int(scale.most_mfu / step)
    return tuple(Tick(scale.y(i * step), f"{i * step:.6g}") for i in range(count + 1))
