"""The choice for a step that is to be timed: looked for once, kept between commands, and held against what it replaces."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from emu.arrays import digest
from emu.collective.algorithm import Choice
from emu.study.choice.kept import keep_entry, recall_entry
from emu.study.training.served.changes import ServedStep, served_steps
from emu.study.training.served.coordinates import Coordinate
from emu.study.training.served.served import Found, StepToServe
from emu.study.training.step.changed import ChosenForStep
from emu.study.training.step.step import TimedTrace

_NEAR = 1.03  # times the best as it was judged, up to which others are timed, too: a whole graph may say otherwise


def choices_for(step: StepToServe, *key: object) -> list[ServedStep]:
    """What serves a step best, what is the fastest alone, and what others choose, as far as they differ.

    Args:
        step: The step.
        key: Whatever it follows from besides the topology and the code.

    Raises:
        InputError: the step cannot be composed.
    """
    name = digest(("step", *key))
    found = _read(recall_entry(step.topology, name))
    if found is None:
        found = step.find()
        names = [[*coordinate, option] for coordinate, option in found.names.items()]
        keep_entry(step.topology, name, [names, found.time_s, dict(found.times_s)])
    return served_steps(step, found)


def _read(kept: Any) -> Found | None:
    """What was kept; None: nothing, or nothing that can be read."""
    with suppress(ValueError, TypeError, AttributeError):
        named, time_s, times_s = kept
        names = {Coordinate(*coordinate): option for *coordinate, option in named}
        return Found(names, float(time_s), {name: float(each_s) for name, each_s in times_s.items()})
    return None


def timed_by(choices: Sequence[ServedStep], timed: Callable[[Choice], TimedTrace]) -> TimedTrace:
    """The step served by the choice with which it takes least; of equal ones by what changes least.

    Args:
        choices: As `choices_for` has them.
        timed: The step as it is reported: a whole graph, or composed.
    """
    worth = [each for each in choices if each.time_s <= choices[0].time_s * _NEAR]
    found = [(each, timed(each.choice)) for each in worth]
    times_s = {each.changed: each.time_s for each in choices} | {each.changed: step.report.step_time_s for each, step in found}
    chosen, step = min(found, key=lambda each: (each[1].report.step_time_s, len(each[0].changed)))
    return replace(step, auto=ChosenForStep(alone_step_time_s=times_s[()], changed=chosen.changed))
