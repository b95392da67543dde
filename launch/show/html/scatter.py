"""MFU against memory, as a drawing of a page: the plans that were timed, and those that no other beats in both."""

from dataclasses import dataclass
from typing import NamedTuple

from emu.study.planning.search.row import Planned, PlanRow
from emu.units import format_size, format_time
from launch.show.html.frame import Axis, Frame, Tick, framed
from launch.show.html.page import Key, Svg

_PALE, _FRONT, _BEST, _YOURS = "#b9c6d2", "#0072B2", "#D55E00", "#009E73"  # Okabe and Ito's
_FAR = 4  # times what the largest plan takes: a memory beyond is not drawn
_ROOM = 1.06  # of the largest, so that its mark is whole


class Mark(NamedTuple):
    """A plan."""

    x: str
    y: str
    radius: int
    colour: str
    told: str


class Limit(NamedTuple):
    """The memory of the device."""

    x: str
    text: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """What the template draws."""

    frame: Frame
    marks: tuple[Mark, ...]
    front: str  # its points
    limit: Limit | None


class _Scale(NamedTuple):
    memory: Axis
    mfu: Axis

    def of(self, size: float, mfu: float) -> tuple[str, str]:
        """Where a plan is."""
        return self.memory.x(size), self.mfu.y(mfu)


def scatter(planned: Planned) -> Svg:
    """The drawing."""
    sizes = [size for size, _ in planned.seen] + [row.peak_memory_bytes for row in planned.rows]
    has = planned.memory_bytes if planned.memory_bytes < _FAR * max(sizes) else 0
    memory = Axis("memory of the rank that holds most", _ROOM * max(*sizes, has))
    scale = _Scale(memory, Axis("MFU", _ROOM * max(_mfus(planned))))
    below = tuple(Tick(memory.x(at), format_size(at) if at else "0") for at in memory.halved())
    limit = Limit(memory.x(has), f"{format_size(has)} of the {planned.device}") if has else None
    front = " ".join(",".join(scale.of(row.peak_memory_bytes, row.mfu)) for row in planned.front)
    drawn = Scatter(framed(*scale, below), tuple(_marks(planned, scale)), front, limit)
    told = f"MFU against the memory of the rank that holds most, of {len(planned.seen)} plans"
    yours = [Key("yours", _YOURS)] if any(row.beside for row in planned.rows) else []
    keys = (Key("plans that were timed", _PALE), Key("none has more MFU in less memory", _FRONT), Key("fastest", _BEST), *yours)
    return Svg("scatter.html", told, drawn, keys)


def _mfus(planned: Planned) -> list[float]:
    return [mfu for _, mfu in planned.seen] + [row.mfu for row in planned.rows]


def _marks(planned: Planned, scale: _Scale) -> list[Mark]:
    """The last lie on top."""
    seen = [Mark(*scale.of(size, mfu), 3, _PALE, f"MFU {mfu:.3f}, {format_size(size)} a rank") for size, mfu in planned.seen]
    front = [_mark(row, scale, 5, _FRONT) for row in planned.front]
    yours = [_mark(row, scale, 7, _YOURS) for row in planned.rows if row.beside]
    return [*seen, *front, _mark(planned.fastest, scale, 8, _BEST), *yours]


def _mark(row: PlanRow, scale: _Scale, radius: int, colour: str) -> Mark:
    told = f"{row.plan}: MFU {row.mfu:.3f}, {format_size(row.peak_memory_bytes)} a rank, {format_time(row.step_time_s)}"
    return Mark(*scale.of(row.peak_memory_bytes, row.mfu), radius, colour, told)
