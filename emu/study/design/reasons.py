"""The reasons in words why a point of a front is not like another one: what is different, and what that changes."""

import re
from collections.abc import Mapping

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([^\d]*)")  # and a unit; of sizes such as 4x8, no one can say that they are twice 2x8
_TIMES = {2.0: "twice the {}", 0.5: "half the {}"}
_DEFAULT = "the default"
_NAMES = {"npus": "NPUs"}


def differences(own: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the settings in which a point differs from another one, in words."""
    names = [name for name in dict.fromkeys((*own, *other)) if own.get(name) != other.get(name)]
    return [_difference(name, own.get(name, _DEFAULT), other.get(name, _DEFAULT)) for name in names]


def _difference(name: str, own: str, other: str) -> str:
    """Return in words how a setting differs, such as `twice the bandwidth`."""
    numbers = _NUMBER.fullmatch(own), _NUMBER.fullmatch(other)
    if numbers[0] and numbers[1] and numbers[0][2] == numbers[1][2] and float(numbers[1][1]):
        told = _TIMES.get(float(numbers[0][1]) / float(numbers[1][1]))
        if told:
            return told.format(_NAMES.get(name, name))
    return f"{_NAMES.get(name, name)}={own} instead of {other}"


def change_text(own: float, other: float, more: str, less: str) -> str:
    """Return a change in words, such as `4 % faster`; "" if there is none that three digits show.

    Args:
        own: The value.
        other: The value that it is compared with.
        more: The word for a larger value.
        less: The word for a smaller value.
    """
    share = 100 * (own / other - 1) if other else 0.0
    if abs(share) < 0.005:
        return ""
    if share >= 900:
        return f"{own / other:.3g} times as {_POSITIVE.get(more, more)}"
    return f"{abs(share):.3g} % {more if share > 0 else less}"


_POSITIVE = {"faster": "fast", "dearer": "dear", "more power": "much power"}
