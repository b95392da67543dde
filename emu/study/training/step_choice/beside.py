"""A step whose schedules are synthesised: by those for each axis alone or, where it is shorter, for what other axes leave.

The choice is made axis by axis. In an axis, all schedules are made with what the other axes take of the links at the same time,
if the composed step gets shorter by them.
"""

from collections.abc import Container
from contextlib import suppress
from dataclasses import replace

from emu.collective.choice import AlgorithmOnDims, Choice, Chooser, Request
from emu.errors import InputError
from emu.study.choice.chooser import made_beside
from emu.study.training.composed.links_left import LinksLeft
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.step.step import TimedTrace
from emu.study.training.step_choice.free_requests import is_made


def time_made(step: StepOnFabric) -> TimedTrace:
    """Return the timed step by its choice, or by schedules that are made on what other axes leave if that is shorter.

    Raises:
        InputError: As `StepOnFabric.timed`.
    """
    found = step.timed()
    with suppress(InputError):  # the step cannot be composed, or not by these schedules
        choice = _choice_beside(step)
        if choice is not None:
            return min(found, step.by(choice).timed(), key=lambda each: each.report.step_time_s)
    return found


def _choice_beside(step: StepOnFabric) -> Choice | None:
    """Return the choice in which some axes have schedules for what others leave; None if no axis gains by them."""
    own = step.choice.chooser
    beside = made_beside(own, LinksLeft(step).of)
    if beside is None:
        return None
    axes = sorted({each.axis_name for each in step.asked.requests if is_made(each, step.choice)})
    least_s, taken = step.coarse_report().step_time_s, set[str]()
    for axis in axes:
        changed = replace(step.choice, chooser=_by_axis(own, beside, taken | {axis}))
        time_s = step.by(changed).coarse_report().step_time_s
        if time_s < least_s:
            least_s = time_s
            taken.add(axis)
    return replace(step.choice, chooser=_by_axis(own, beside, taken)) if taken else None


def _by_axis(own: Chooser | None, beside: Chooser, axes: Container[str]) -> Chooser:
    """Return a chooser that asks `beside` first for the requests of some axes, else its own."""

    def choose(request: Request) -> AlgorithmOnDims | None:
        found = beside(request) if request.axis in axes else None
        return found or (own(request) if own else None)

    return choose
