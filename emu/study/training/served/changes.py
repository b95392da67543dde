"""Ways to serve a step, and in what each differs from serving every request by what is the fastest for it alone."""

from typing import NamedTuple

from emu.collective.algorithm import Choice
from emu.study.training.served.coordinates import Coordinate
from emu.study.training.served.descent import NEVER
from emu.study.training.served.requests import OpenRequests
from emu.study.training.served.served import Found, StepToServe
from emu.study.training.step.changed import Changed


class ServedStep(NamedTuple):
    """One way to serve a step."""

    choice: Choice
    time_s: float  # of the step as it is composed
    changed: tuple[Changed, ...]


def served_steps(step: StepToServe, found: Found) -> list[ServedStep]:
    """Return what serves a step best, then what is the fastest alone, then what others choose; each different one once."""
    every = step.requests.by_coordinate
    by_names = [(found.names, found.time_s), *((dict.fromkeys(every, name), s) for name, s in found.times_s.items())]
    choices = [(step.named(names), time_s) for names, time_s in by_names if time_s < NEVER]
    steps = [ServedStep(choice, time_s, changed(step.requests, choice)) for choice, time_s in choices]
    return list({each.changed: each for each in reversed(steps)}.values())[::-1]


def changed(requests: OpenRequests, choice: Choice) -> tuple[Changed, ...]:
    """Return what a choice serves otherwise than each request alone."""
    found = (_changed(requests, coordinate, choice) for coordinate in requests.by_coordinate)
    return tuple(each for each in found if each is not None)


def _changed(requests: OpenRequests, coordinate: Coordinate, choice: Choice) -> Changed | None:
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
    return Changed(
        axis=coordinate.axis,
        operation=coordinate.operation,
        least_bytes=min(sizes),
        most_bytes=max(sizes),
        algorithm=now,
        instead_of=before,
    )
