"""What a step is made of, and the colour of each part in all pictures."""

from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple, Protocol

from launch.show.text.estimates import Exposed, exposed_axes

COMPUTE, BUBBLE, IDLE = "#0072B2", "#d8dde2", "#eef0f2"
_AXES = {"tp": "#E69F00", "cp": "#CC79A7", "ep": "#009E73", "dp": "#D55E00", "pp": "#56B4E9"}  # Okabe and Ito's
_OTHERS = ("#F0E442", "#7c8894", "#8c564b", "#9467bd")
_LEAST = 1e-3  # of a step, below which a part is left out


class Parted(Exposed, Protocol):
    """What has the parts of a step, which add up to its time; seconds."""

    @property
    def step_time_s(self) -> float:
        """All of it."""

    @property
    def compute_s(self) -> float:
        """Something is computed."""

    @property
    def bubble_s(self) -> float:
        """Of the idle time, waiting for other stages of the pipeline; the rest is waiting for ranks of the same stage."""

    @property
    def idle_s(self) -> float:
        """Neither computation nor communication."""


class Part(NamedTuple):
    """One of them."""

    name: str
    colour: str
    times_s: tuple[float, ...]  # one a step


def colours_of(axes: Sequence[str]) -> dict[str, str]:
    """The colour of each axis of communication."""
    others = cycle(_OTHERS)
    return {axis: _AXES.get(axis) or next(others) for axis in axes}


def step_parts(steps: Sequence[Parted]) -> list[Part]:
    """The parts of several steps, those left out that nowhere take a thousandth of a step."""
    exposed = [
        Part(f"{axis or 'other'} exposed", colour, tuple(s.exposed_comm_by_axis_s.get(axis, 0.0) for s in steps))
        for axis, colour in colours_of(exposed_axes(steps)).items()
    ]
    bubble = Part("bubble", BUBBLE, tuple(s.bubble_s for s in steps))
    straggling = Part("straggling", IDLE, tuple(s.idle_s - s.bubble_s for s in steps))
    found = [Part("compute", COMPUTE, tuple(s.compute_s for s in steps)), *exposed, bubble, straggling]
    least = _LEAST * max(s.step_time_s for s in steps)
    return [part for part in found if max(part.times_s) > least]
