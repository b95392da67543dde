"""The changes that the choice of algorithms for a whole step brings, in words."""

from collections.abc import Sequence

from emu.study.training.step.choices import AlgorithmChange, StepChoice
from emu.study.training.step.step import Step
from emu.units import format_size, format_time


def step_choice_text(step: Step) -> str:
    """Return the changes and both step times; "" where algorithms were not chosen for the step.

    An example: `dp all_gather: ring instead of direct; 7.7 s instead of 11.9 s`.
    """
    if step.auto is None:
        return ""
    if not step.auto.changed:
        return "for the whole step, no choice is better than the fastest algorithm of each request"
    return f"{changes_told(step.auto)}; {_times(step)} with the fastest algorithm of each request"


def changes_told(auto: StepChoice) -> str:
    """Return what was changed alone, such as `dp all_gather: ring instead of direct`."""
    return "; ".join(_changes(auto))


def _changes(auto: StepChoice) -> list[str]:
    """Return a text for each change; it names sizes where an operation of an axis changes more than once."""
    several = {key for key in _keys(auto.changed) if _keys(auto.changed).count(key) > 1}
    return [
        f"{each.axis} {each.operation}{_sizes(each) * ((each.axis, each.operation) in several)}: "
        f"{each.algorithm} instead of {each.instead_of}"
        for each in auto.changed
    ]


def _keys(changed: Sequence[AlgorithmChange]) -> list[tuple[str, str]]:
    """Return the axis and the operation of each change."""
    return [(each.axis, each.operation) for each in changed]


def _sizes(each: AlgorithmChange) -> str:
    """Return the sizes of a change in words."""
    least, most = format_size(each.least_bytes), format_size(each.most_bytes)
    return f" of {least}" if least == most else f" of {least} to {most}"


def _times(step: Step) -> str:
    """Return both step times in words."""
    assert step.auto is not None, "it was chosen for the step"
    return f"{format_time(step.step_time_s)} instead of {format_time(step.auto.alone_step_time_s)}"
