"""Estimates of a step on several topologies as one table.

Also here: the report of a step that was estimated on one topology, as text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from emu.model.stack.stack import find_software
from emu.study.training.estimate import StepEstimate
from emu.units import format_size, format_time
from launch.show.text.step_choice import step_choice_text
from launch.show.text.step_report import expected_told, foot_lines, off_told, rate_lines, step_lines
from launch.show.text.table import merged_assumption_lines, table

_PLAN = ("tp", "cp", "ep", "dp", "pp")


def estimates_report(results: Sequence[StepEstimate]) -> str:
    """Return a table with a line for each topology and a column of exposed communication for each axis."""
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
    of = dict.fromkeys(f"{r.model} by {r.plan}, software={r.software}" for r in results)
    algorithms = [f"{r.topology}: {', '.join(f'{op} {by}' for op, by in r.algorithms.items()) or 'none'}" for r in results]
    algorithms += [f"{r.topology}: auto, {step_choice_text(r)}" for r in results if r.auto is not None]
    lines = [
        *of,
        f"{first.device}; placement {first.axes}: neighbouring NPUs are on the first axis",
        "",
        table(head, rows, units=units),
    ]
    algorithms = [f"expected: {off_told(first.device, first.either_way, first.either_way_by)}", *algorithms]
    return "\n".join([*lines, "", *algorithms, "", *merged_assumption_lines([(r.topology, r.assumptions) for r in results])])


class ExposedTimes(Protocol):
    """A step with exposed communication."""

    @property
    def exposed_comm_by_axis_s(self) -> Mapping[str, float]:
        """The exposed communication of each axis in seconds."""


def exposed_axes(results: Sequence[ExposedTimes]) -> list[str]:
    """Return the axes that have exposed communication in any of the steps, in the order of a plan."""
    return axes_in_order(axis for r in results for axis, s in r.exposed_comm_by_axis_s.items() if s)


def axes_in_order(axes: Iterable[str]) -> list[str]:
    """Return each axis once: those of a plan in the order of a plan, then the others by name."""
    found = sorted(set(axes))
    return [axis for axis in _PLAN if axis in found] + [axis for axis in found if axis not in _PLAN]


def _row(r: StepEstimate, axes: Sequence[str]) -> tuple[str, ...]:
    """Return the cells of one estimate."""
    exposed = [format_time(r.exposed_comm_by_axis_s.get(axis, 0.0)) for axis in axes]
    times = (format_time(r.step_time_s), format_time(r.compute_s), *exposed, format_time(r.idle_s))
    size = (str(r.ranks), str(r.dp), str(r.global_batch))
    timed = (r.how, str(r.domain), f"{r.tasks}", f"{r.wall_s:.1f}")
    return (r.topology, *size, *times, f"{r.mfu:.3f}", format_size(r.peak_memory_bytes), *timed)


def estimate_report(r: StepEstimate) -> str:
    """Return the figures of one estimate as text."""
    ranks = "all ranks" if r.domain == r.ranks else f"{r.domain} of {r.ranks} ranks, which stand for all"
    software = f"software={r.software}{'' if find_software(r.software).is_executed else ' (generated, not executed)'}"
    lines = [
        f"{r.model} on {r.ranks} {r.device} of {r.topology}, {r.plan}, {software}",
        *([] if r.stack == f"software={r.software}" else [f"with {r.stack}"]),
        "",
        *step_lines(r),
        f"expected        {expected_told(r)}",
        *rate_lines(r),
        *([f"placement       {r.axes}: neighbouring NPUs are on the first axis"] if r.axes else []),
        f"timed           {r.tasks:,} tasks of {ranks} (engine: {r.how}), in {r.wall_s:.1f} s",
        *foot_lines(r),
    ]
    return "\n".join(lines)
