"""The parts of a step (computation, exposed communication, bubble, straggling), and the colour of each in all pictures."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from emu.study.planning.search.row import PlanRow
from emu.study.training.step.step import Step
from emu.units import format_time
from launch.show.text.table import Column, figures

COMPUTE, BUBBLE, IDLE = "#0072B2", "#d8dde2", "#eef0f2"
_AXES = {"tp": "#E69F00", "cp": "#CC79A7", "ep": "#009E73", "dp": "#D55E00", "pp": "#56B4E9"}  # Okabe and Ito's
_OTHERS = ("#F0E442", "#7c8894", "#8c564b", "#9467bd")
_PLAN = ("tp", "cp", "ep", "dp", "pp")
_LEAST = 1e-3  # share of the longest step below which a part is left out


StepTimes = Step | PlanRow  # the parts of its time add up to the step time


class StepPart(NamedTuple):
    """A part of several steps: a name, a colour and a time for each step."""

    name: str
    colour: str
    times_s: tuple[float, ...]  # time of the part in each step


def exposed_axes(results: Sequence[StepTimes]) -> list[str]:
    """Return the axes that have exposed communication in any of the steps, in the order of a plan."""
    return axes_in_order(axis for r in results for axis, s in r.exposed_comm_by_axis_s.items() if s)


def axes_in_order(axes: Iterable[str]) -> list[str]:
    """Return each axis once: those of a plan in the order of a plan, then the others by name."""
    found = sorted(set(axes))
    return [axis for axis in _PLAN if axis in found] + [axis for axis in found if axis not in _PLAN]


def exposed_column(axis: str, head: str, unit: str = "") -> Column[Any]:
    """Return the column of the exposed communication of one axis, for tables of steps."""
    return figures(head, lambda step: step.exposed_comm_by_axis_s.get(axis, 0.0), format_time, unit)


def colours_of(axes: Sequence[str]) -> dict[str, str]:
    """Return the colour of each axis of communication."""
    others = cycle(_OTHERS)
    return {axis: _AXES.get(axis) or next(others) for axis in axes}


def step_parts(steps: Sequence[StepTimes]) -> list[StepPart]:
    """Return the parts of several steps, without those that are below a thousandth of the longest step in all of them."""
    exposed = [
        StepPart(f"{axis or 'other'} exposed", colour, tuple(s.exposed_comm_by_axis_s.get(axis, 0.0) for s in steps))
        for axis, colour in colours_of(exposed_axes(steps)).items()
    ]
    bubble = StepPart("bubble", BUBBLE, tuple(s.bubble_s for s in steps))
    straggling = StepPart("straggling", IDLE, tuple(s.idle_s - s.bubble_s for s in steps))
    found = [StepPart("compute", COMPUTE, tuple(s.compute_s for s in steps)), *exposed, bubble, straggling]
    least = _LEAST * max(s.step_time_s for s in steps)
    return [part for part in found if max(part.times_s) > least]
