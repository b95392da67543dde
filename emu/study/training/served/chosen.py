"""The choice for a step that is to be timed: looked for once, kept between commands, and held against what it replaces.

Each way to serve the step says in what it differs from serving every request by what is the fastest for it alone.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from emu.arrays import digest
from emu.collective.algorithm import Choice
from emu.study.choice.algorithm_cache import keep_entry, recall_entry
from emu.study.training.served.coordinates import Coordinate
from emu.study.training.served.descent import NEVER
from emu.study.training.served.requests import OpenRequests
from emu.study.training.served.served import Found, StepToServe
from emu.study.training.step.step import TimedTrace
from emu.study.training.step.step_choice import AlgorithmChange, StepChoice

_NEAR = 1.03  # times the best as it was judged, up to which others are timed, too: a whole graph may say otherwise


class ServedStep(NamedTuple):
    """One way to serve a step."""

    choice: Choice
    time_s: float  # of the step as it is composed
    changed: tuple[AlgorithmChange, ...]


def choices_for(step: StepToServe, *key: object) -> list[ServedStep]:
    """Return what serves a step best, what is the fastest alone, and what others choose, as far as they differ.

    Args:
        step: The step.
        key: All that the choice follows from besides the topology and the code.

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
    """Return the step served by the choice with which it takes least; of equal ones by what changes least.

    Args:
        choices: As `choices_for` has them.
        timed: The step as it is reported: a whole graph, or composed.
    """
    worth = [each for each in choices if each.time_s <= choices[0].time_s * _NEAR]
    found = [(each, timed(each.choice)) for each in worth]
    times_s = {each.changed: each.time_s for each in choices} | {each.changed: step.report.step_time_s for each, step in found}
    chosen, step = min(found, key=lambda each: (each[1].report.step_time_s, len(each[0].changed)))
    return replace(step, auto=StepChoice(alone_step_time_s=times_s[()], changed=chosen.changed))


def served_steps(step: StepToServe, found: Found) -> list[ServedStep]:
    """Return what serves a step best, then what is the fastest alone, then what others choose; each different one once."""
    every = step.requests.by_coordinate
    by_names = [(found.names, found.time_s), *((dict.fromkeys(every, name), s) for name, s in found.times_s.items())]
    choices = [(step.named(names), time_s) for names, time_s in by_names if time_s < NEVER]
    first = {
        tuple(step.requests.served(coordinate, choice) for coordinate in every): (choice, time_s)
        for choice, time_s in reversed(choices)
    }
    return [ServedStep(choice, time_s, changed(step.requests, choice)) for choice, time_s in reversed(first.values())]


def changed(requests: OpenRequests, choice: Choice) -> tuple[AlgorithmChange, ...]:
    """Return what a choice serves otherwise than each request alone."""
    found = (_changed(requests, coordinate, choice) for coordinate in requests.by_coordinate)
    return tuple(each for each in found if each is not None)


def _changed(requests: OpenRequests, coordinate: Coordinate, choice: Choice) -> AlgorithmChange | None:
    """The change of one coordinate; None: there is none."""
    pairs = [
        (q.size_bytes, str(now), str(before))
        for q in requests.by_coordinate[coordinate]
        for now, before in zip(requests.of_groups(q, choice), requests.of_groups(q, requests.choice), strict=True)
        if now != before
    ]
    if not pairs:
        return None
    sizes, *names = zip(*pairs, strict=True)
    now, before = (" or ".join(dict.fromkeys(each)) for each in names)
    return AlgorithmChange(
        axis=coordinate.axis,
        operation=coordinate.operation,
        least_bytes=min(sizes),
        most_bytes=max(sizes),
        algorithm=now,
        instead_of=before,
    )
