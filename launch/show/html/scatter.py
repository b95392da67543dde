"""The HTML chart of MFU against memory: all plans that were timed, and the line of those that no plan beats in both."""

from dataclasses import dataclass
from typing import NamedTuple

from emu.study.planning.search.row import PlanRow, PlanTable
from emu.units import format_size, format_time
from launch.show.html.frame import AxisTick, ChartAxis, Frame, frame_of
from launch.show.html.page import LegendKey, Svg

_PALE, _FRONT, _BEST, _YOURS = "#b9c6d2", "#0072B2", "#D55E00", "#009E73"  # Okabe and Ito's
_FAR = 4  # a device's memory above so many times the largest plan is not drawn
_ROOM = 1.06  # end of an axis in largest values, so that no mark is cut


class PlanMark(NamedTuple):
    """The mark of one plan."""

    x: str
    y: str
    radius: int
    colour: str
    told: str


class MemoryLimit(NamedTuple):
    """The line at the memory of the device."""

    x: str
    text: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """A chart of plans, as the template `scatter.html` draws it."""

    frame: Frame
    marks: tuple[PlanMark, ...]
    front: str  # SVG points of the line
    limit: MemoryLimit | None


class _Scale(NamedTuple):
    """The axes of memory and MFU."""

    memory: ChartAxis
    mfu: ChartAxis

    def of(self, size: float, mfu: float) -> tuple[str, str]:
        """Return the place of a plan in the drawing."""
        return self.memory.x(size), self.mfu.y(mfu)


def scatter(planned: PlanTable) -> Svg:
    """Return the chart of the plans of a search."""
    sizes = [size for size, _ in planned.seen] + [row.peak_memory_bytes for row in planned.rows]
    has = planned.memory_bytes if planned.memory_bytes < _FAR * max(sizes) else 0
    memory = ChartAxis("memory of the rank that holds most", _ROOM * max(*sizes, has))
    scale = _Scale(memory, ChartAxis("MFU", _ROOM * max(_mfus(planned))))
    below = tuple(AxisTick(memory.x(at), format_size(at) if at else "0") for at in memory.binary_ticks())
    limit = MemoryLimit(memory.x(has), f"{format_size(has)} of the {planned.device}") if has else None
    front = " ".join(",".join(scale.of(row.peak_memory_bytes, row.mfu)) for row in planned.front)
    drawn = Scatter(frame_of(*scale, below), tuple(_marks(planned, scale)), front, limit)
    told = f"MFU against the memory of the rank that holds most, of {len(planned.seen)} plans"
    yours = [LegendKey("yours", _YOURS)] if any(row.beside for row in planned.rows) else []
    keys = (
        LegendKey("plans that were timed", _PALE),
        LegendKey("no plan beats these in both", _FRONT),
        LegendKey("fastest", _BEST),
        *yours,
    )
    return Svg("scatter.html", told, drawn, keys)


def _mfus(planned: PlanTable) -> list[float]:
    """Return the MFU of all plans that are drawn."""
    return [mfu for _, mfu in planned.seen] + [row.mfu for row in planned.rows]


def _marks(planned: PlanTable, scale: _Scale) -> list[PlanMark]:
    """Return the marks of all plans: first all that were timed, last the fastest and yours, which are drawn over the others."""
    seen = [
        PlanMark(*scale.of(size, mfu), 3, _PALE, f"MFU {mfu:.3f}, {format_size(size)} a rank") for size, mfu in planned.seen
    ]
    front = [_mark(row, scale, 5, _FRONT) for row in planned.front]
    yours = [_mark(row, scale, 7, _YOURS) for row in planned.rows if row.beside]
    return [*seen, *front, _mark(planned.fastest, scale, 8, _BEST), *yours]


def _mark(row: PlanRow, scale: _Scale, radius: int, colour: str) -> PlanMark:
    """Return the mark of one plan, with its plan as the text that appears when it is pointed at."""
    told = f"{row.plan}: MFU {row.mfu:.3f}, {format_size(row.peak_memory_bytes)} a rank, {format_time(row.step_time_s)}"
    return PlanMark(*scale.of(row.peak_memory_bytes, row.mfu), radius, colour, told)
