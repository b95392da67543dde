"""A step estimated on several topologies, as one table."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from emu.study.training.estimate import Estimated
from emu.units import format_size, format_time
from launch.show.text.assumed import assumed_of_all
from launch.show.text.changed import changed_told
from launch.show.text.estimate import off_told
from launch.show.text.table import table

_PLAN = ("tp", "cp", "ep", "dp", "pp")


def estimates_report(results: Sequence[Estimated]) -> str:
    """A line a topology; exposed communication has a column an axis."""
    first, axes = results[0], exposed_axes(results)
    head = (
        "topology",
        "NPUs",
        "dp",
        "batch",
        "step",
        "compute",
        *axes,
        "idle",
        "MFU",
        "memory",
        "engine",
        "timed",
        "tasks",
        "wall",
    )
    by_axis = ("", *(" exposed" for _ in axes), "")
    units = ("", "", "", "", "", *by_axis, "", "a rank", "", "ranks", "", "(s)")
    rows = [_row(r, axes) for r in results]
    of = dict.fromkeys(f"{r.model} by {r.plan}, as {r.software} asks" for r in results)
    algorithms = [f"{r.topology}: {', '.join(f'{op} {by}' for op, by in r.algorithms.items()) or 'none'}" for r in results]
    algorithms += [f"{r.topology}: auto, {changed_told(r)}" for r in results if r.auto is not None]
    lines = [
        *of,
        f"{first.device}; placement {first.axes}: the axis of neighbouring NPUs first",
        "",
        table(head, rows, units=units),
    ]
    algorithms = [f"expected: {off_told(first)}", *algorithms]
    return "\n".join([*lines, "", *algorithms, "", *assumed_of_all([(r.topology, r.assumptions) for r in results])])


class Exposed(Protocol):
    """What has exposed communication."""

    @property
    def exposed_comm_by_axis_s(self) -> Mapping[str, float]:
        """Seconds of each axis."""


def exposed_axes(results: Sequence[Exposed]) -> list[str]:
    """The axes with exposed communication of any of several steps, those of a plan in its order."""
    return in_order(axis for r in results for axis, s in r.exposed_comm_by_axis_s.items() if s)


def in_order(axes: Iterable[str]) -> list[str]:
    """Each axis once, those of a plan in its order."""
    found = sorted(set(axes))
    return [axis for axis in _PLAN if axis in found] + [axis for axis in found if axis not in _PLAN]


def _row(r: Estimated, axes: Sequence[str]) -> tuple[str, ...]:
    exposed = [format_time(r.exposed_comm_by_axis_s.get(axis, 0.0)) for axis in axes]
    times = (format_time(r.step_time_s), format_time(r.compute_s), *exposed, format_time(r.idle_s))
    size = (str(r.ranks), str(r.dp), str(r.global_batch))
    timed = (r.how, str(r.domain), f"{r.tasks}", f"{r.wall_s:.1f}")
    return (r.topology, *size, *times, f"{r.mfu:.3f}", format_size(r.peak_memory_bytes), *timed)
