"""The parts of a step (computation, exposed communication, bubble, straggling), and their colours in pictures."""

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from typing import TypeVar

from emu.study.planning.plan_row import PlanRow
from emu.study.training.step.step import Step
from emu.trace.report.mean_parts import MeanParts
from emu.units import format_size, format_time
from launch.show.text.table import Column, figures

COMPUTE, BUBBLE, IDLE = "#0072B2", "#a3aeb9", "#e1e5e9"  # the two greys are told apart in print, too
_AXES = {"tp": "#E69F00", "cp": "#CC79A7", "ep": "#009E73", "dp": "#D55E00", "pp": "#56B4E9"}  # Okabe and Ito's
_OTHERS = ("#F0E442", "#17becf", "#8c564b", "#9467bd")
_PLAN = ("tp", "cp", "ep", "dp", "pp")
_LEAST = 1e-3  # share of the longest step below which a part is left out


ComparedStep = Step | PlanRow  # has the means of its parts over all ranks
R = TypeVar("R", bound=ComparedStep)
PartTimes = Step | MeanParts  # the parts of one step, which add up to the step time
StepPart = tuple[str, str, tuple[float, ...]]  # of several steps: its name, its colour, and its time in each step
MEANS_TOLD = "means over all ranks, which add up to the step"


def means_of(step: ComparedStep) -> MeanParts:
    """Return the seconds of the parts of a step as means over all ranks, by which steps are compared."""
    assert step.mean_over_ranks is not None, "with_means gives a step what tables of several need"
    return step.mean_over_ranks


def exposed_axes(steps: Iterable[PartTimes]) -> list[str]:
    """Return the axes that have exposed communication in any of the steps, in the order of a plan."""
    return axes_in_order(axis for each in steps for axis, s in each.exposed_comm_by_axis_s.items() if s)


def axes_in_order(axes: Iterable[str]) -> list[str]:
    """Return the distinct axes: those of a plan in its order, then the others by name."""
    found = sorted(set(axes))
    return [axis for axis in _PLAN if axis in found] + [axis for axis in found if axis not in _PLAN]


def part_column(head: str, value: Callable[[MeanParts], float], unit: str = "") -> Column[R]:
    """Return the column of one part of the steps, the mean over all ranks."""
    return figures(head, lambda step: value(means_of(step)), format_time, unit)


def exposed_columns(steps: Sequence[R], name: Callable[[str], str], unit: str = "") -> list[Column[R]]:
    """Return a table column of exposed communication for each axis that has any."""

    def column(axis: str) -> Column[R]:
        return part_column(name(axis), lambda of: of.exposed_comm_by_axis_s.get(axis, 0.0), unit)

    return [column(axis) for axis in exposed_axes(map(means_of, steps))]


def comparison_columns(steps: Sequence[Step]) -> list[Column[Step]]:
    """Return the columns of a table of several steps, with a row for each topology."""
    return [
        Column("topology", lambda step: step.topology),
        figures("NPUs", lambda step: step.ranks),
        figures("step", lambda step: step.step_time_s, format_time),
        part_column("computation", lambda of: of.compute_s),
        *exposed_columns(steps, lambda axis: f"{axis or 'other'} exposed"),
        part_column("bubble", lambda of: of.bubble_s),
        part_column("idle", lambda of: of.idle_s),
        *([figures("MFU", lambda step: step.mfu, "{:.3f}".format)] if all(step.mfu is not None for step in steps) else []),
        figures("memory", lambda step: step.peak_memory_bytes, format_size),
    ]


def colours_of(axes: Sequence[str]) -> dict[str, str]:
    """Return the colour of each axis of communication."""
    others = cycle(_OTHERS)
    return {axis: _AXES.get(axis) or next(others) for axis in axes}


def step_parts(steps: Sequence[PartTimes]) -> list[StepPart]:
    """Return the parts of steps for a bar chart, each with its seconds in every step.

    Parts below a thousandth of the longest step are left out.
    """
    exposed = [
        (f"{axis or 'other'} exposed", colour, tuple(s.exposed_comm_by_axis_s.get(axis, 0.0) for s in steps))
        for axis, colour in colours_of(exposed_axes(steps)).items()
    ]
    bubble = ("bubble", BUBBLE, tuple(s.bubble_s for s in steps))
    straggling = ("straggling", IDLE, tuple(s.idle_s - s.bubble_s for s in steps))
    found = [("compute", COMPUTE, tuple(s.compute_s for s in steps)), *exposed, bubble, straggling]
    least = _LEAST * max(s.step_time_s for s in steps)
    return [(name, colour, times_s) for name, colour, times_s in found if max(times_s) > least]
