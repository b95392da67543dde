"""The choices of algorithms for a step that is to be timed: searched once, and kept in a cache between commands.

Each choice lists how it differs from the one that takes the fastest algorithm for each request alone.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from emu.arrays import digest
from emu.collective.algorithm import Choice
from emu.study.choice.algorithm_cache import keep_entry, recall_entry
from emu.study.training.step.choices import AlgorithmChange, StepChoice
from emu.study.training.step.step import TimedTrace
from emu.study.training.step_choice.descent import NEVER
from emu.study.training.step_choice.options import Coordinate
from emu.study.training.step_choice.step_to_serve import DescentResult, StepToServe, TimingEffort


class ServedStep(NamedTuple):
    """One choice of algorithms for a step, with its time."""

    choice: Choice
    time_s: float  # time of the composed step
    changed: tuple[AlgorithmChange, ...]


def choices_for(step: StepToServe, *key: object) -> list[ServedStep]:
    """Return the best choice for a step, the choice of the fastest alone, and those of other choosers; each different one once.

    Args:
        step: The step.
        key: Everything that decides the choice, besides the topology and the code.

    Raises:
        InputError: the step cannot be composed.
    """
    name = digest(("step", step.most_steps, *key))
    found = _read(recall_entry(step.topology, name))
    if found is None:
        found = step.find()
        names = [[*coordinate, option] for coordinate, option in found.names.items()]
        keep_entry(step.topology, name, [names, found.time_s, dict(found.times_s)])
    return served_steps(step, found)


def _read(kept: Any) -> DescentResult | None:
    """Return the result of a descent from a cache entry; None if there is none, or if it cannot be read."""
    with suppress(ValueError, TypeError, AttributeError):
        named, time_s, times_s = kept
        names = {Coordinate(*coordinate): option for *coordinate, option in named}
        return DescentResult(names, float(time_s), {name: float(each_s) for name, each_s in times_s.items()})
    return None


def fastest_step(
    choices: Sequence[ServedStep], timed: Callable[[Choice], TimedTrace], near: float = TimingEffort().near
) -> TimedTrace:
    """Return the step timed by the choice with the shortest step; of equal ones by the choice that changes least.

    Args:
        choices: Choices in the order of `choices_for`.
        timed: A function that times the step as it is reported: as a whole graph, or composed.
        near: Times the best composed time, up to which choices are timed.
    """
    worth = [each for each in choices if each.time_s <= choices[0].time_s * near]
    found = [(each, timed(each.choice)) for each in worth]
    times_s = {each.changed: each.time_s for each in choices} | {each.changed: step.report.step_time_s for each, step in found}
    chosen, step = min(found, key=lambda each: (each[1].report.step_time_s, len(each[0].changed)))
    return replace(step, auto=StepChoice(alone_step_time_s=times_s[()], changed=chosen.changed))


def served_steps(step: StepToServe, found: DescentResult) -> list[ServedStep]:
    """Return the choice that a descent found, then the fastest alone, then those of other choosers; each different one once."""
    every = step.by_coordinate
    by_names = [(found.names, found.time_s), *((dict.fromkeys(every, name), s) for name, s in found.times_s.items())]
    choices = [(step.choice_of(names), time_s) for names, time_s in by_names if time_s < NEVER]
    first = {
        tuple(step.served(coordinate, choice) for coordinate in every): (choice, time_s) for choice, time_s in reversed(choices)
    }
    return [ServedStep(choice, time_s, algorithm_changes(step, choice)) for choice, time_s in reversed(first.values())]


def algorithm_changes(step: StepToServe, choice: Choice) -> tuple[AlgorithmChange, ...]:
    """Return, for each coordinate that differs, how a choice differs from serving each request alone."""
    found = (_algorithm_change(step, coordinate, choice) for coordinate in step.by_coordinate)
    return tuple(each for each in found if each is not None)


def _algorithm_change(step: StepToServe, coordinate: Coordinate, choice: Choice) -> AlgorithmChange | None:
    """Return the change of one coordinate; None if it has none."""
    pairs = [
        (q.size_bytes, str(now), str(before))
        for q in step.by_coordinate[coordinate]
        for now, before in zip(step.algorithms_of(q, choice), step.algorithms_of(q, step.choice), strict=True)
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
