"""What choosing for a whole step has changed, in words."""

from collections.abc import Sequence

from emu.study.training.step.changed import Changed, ChosenForStep
from emu.study.training.step.step import Step
from emu.units import format_size, format_time


def changed_told(step: Step) -> str:
    """Such as `dp all_gather: ring instead of direct; 7.7 s instead of 11.9 s`; "" where nothing was chosen for the step."""
    if step.auto is None:
        return ""
    if not step.auto.changed:
        return "for the step nothing is better than what is the fastest for each request alone"
    return f"{changes_told(step.auto)}; {_times(step)} with what is the fastest for each request alone"


def changes_told(auto: ChosenForStep) -> str:
    """Return what was changed alone, such as `dp all_gather: ring instead of direct`."""
    return "; ".join(_changes(auto))


def _changes(auto: ChosenForStep) -> list[str]:
    """One for each axis, operation and algorithms; with the sizes where an operation of an axis has several."""
    several = {key for key in _keys(auto.changed) if _keys(auto.changed).count(key) > 1}
    return [
        f"{each.axis} {each.operation}{_sizes(each) * ((each.axis, each.operation) in several)}: "
        f"{each.algorithm} instead of {each.instead_of}"
        for each in auto.changed
    ]


def _keys(changed: Sequence[Changed]) -> list[tuple[str, str]]:
    return [(each.axis, each.operation) for each in changed]


def _sizes(each: Changed) -> str:
    least, most = format_size(each.least_bytes), format_size(each.most_bytes)
    return f" of {least}" if least == most else f" of {least} to {most}"


def _times(step: Step) -> str:
    assert step.auto is not None, "it was chosen for the step"
    return f"{format_time(step.step_time_s)} instead of {format_time(step.auto.alone_step_time_s)}"
