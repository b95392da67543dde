"""The parts of a step (computation, exposed communication, bubble, straggling), and the colour of each in all pictures."""

from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple, Protocol

from launch.show.text.estimate_table import ExposedTimes, exposed_axes

COMPUTE, BUBBLE, IDLE = "#0072B2", "#d8dde2", "#eef0f2"
_AXES = {"tp": "#E69F00", "cp": "#CC79A7", "ep": "#009E73", "dp": "#D55E00", "pp": "#56B4E9"}  # Okabe and Ito's
_OTHERS = ("#F0E442", "#7c8894", "#8c564b", "#9467bd")
_LEAST = 1e-3  # share of the longest step below which a part is left out


class StepTimes(ExposedTimes, Protocol):
    """A step with times of its parts; the parts add up to the step time."""

    @property
    def step_time_s(self) -> float:
        """The step time in seconds."""

    @property
    def compute_s(self) -> float:
        """The time in which the rank computes, in seconds."""

    @property
    def bubble_s(self) -> float:
        """The idle time in which the rank waits for other stages of the pipeline, in seconds."""

    @property
    def idle_s(self) -> float:
        """The time in which the rank neither computes nor communicates, in seconds; the bubble is a part of it."""


class StepPart(NamedTuple):
    """A part of several steps: a name, a colour and a time for each step."""

    name: str
    colour: str
    times_s: tuple[float, ...]  # time of the part in each step


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
