"""A descent over what serves each coordinate of a step: one is moved at a time, two where no single one helps.

It ends where nothing helps, or after so many steps have been timed: a number, so that any machine finds the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import NamedTuple

from emu.study.training.served.coordinates import Coordinate, Option

_WORTH = 1e-4  # of the time so far, that a move must save at least
_NEVER = float("inf")

ServedBy = Mapping[Coordinate, Option]  # what serves each coordinate


class Judged(NamedTuple):
    """A step that was timed."""

    time_s: float
    exposed_s: Mapping[str, float]  # of communication, by axis


@dataclass(eq=False)
class Descent:
    """The search for one step; what was timed is known from then on."""

    options: Mapping[Coordinate, Sequence[Option]]  # the plainest first
    weight_s: Mapping[Coordinate, float]  # that the requests of each take together, one after another
    judge: Callable[[ServedBy], Judged]
    most: int  # steps that are timed; then one more for each coordinate
    floor_s: float  # what takes no longer is good enough
    known: dict[tuple[str, ...], Judged] = field(default_factory=dict)

    def best(self, starts: Sequence[ServedBy]) -> tuple[ServedBy, float]:
        """The best that is found from several starts, and its time; of equal ones, what is found from the first.

        Every start is timed, and the descent begins from the fastest. The first is taken as it is where it is near the floor.
        """
        judged = {i: self.judged(start) for i, start in enumerate(starts)}
        if judged[0].time_s <= self.floor_s:
            return starts[0], judged[0].time_s
        by_time = sorted(judged, key=lambda i: (judged[i].time_s, i))
        found = [self._descend(starts[i], judged[i]) for i in by_time]
        served, time_s = min(found, key=lambda each: each[1])
        self.most = len(self.known) + len(self.options)
        return self._plainest(served, time_s)

    def _plainest(self, served: ServedBy, time_s: float) -> tuple[ServedBy, float]:
        """The same without the moves that save nothing: each coordinate by its first option where that is no slower."""
        for coordinate, options in self.options.items():
            plainer = {**served, coordinate: options[0]}
            plainer_s = self.judged(plainer).time_s
            if plainer_s <= time_s:
                served, time_s = plainer, plainer_s
        return served, time_s

    def _descend(self, start: ServedBy, judged: Judged) -> tuple[ServedBy, float]:
        served, time_s = start, judged.time_s
        order = sorted(self.options, key=lambda c: (-judged.exposed_s.get(c.axis, 0.0), -self.weight_s[c], c))
        while time_s > self.floor_s and (moved := self._move(served, time_s, order, 1) or self._move(served, time_s, order, 2)):
            served, time_s = moved
        return served, time_s

    def _move(
        self, served: ServedBy, time_s: float, order: Sequence[Coordinate], together: int
    ) -> tuple[ServedBy, float] | None:
        """The first move of so many coordinates together that helps, by the options of them that help most; None: none does."""
        for coordinates in combinations(order, together):
            tried = [
                dict(zip(coordinates, options, strict=True)) for options in product(*(self.options[c] for c in coordinates))
            ]
            changed = [{**served, **each} for each in tried if all(served[c].name != o.name for c, o in each.items())]
            times = [self.judged(each).time_s for each in changed]
            best = min(range(len(times)), key=lambda i: (times[i], i), default=None)
            if best is not None and times[best] < time_s * (1 - _WORTH):
                return changed[best], times[best]
        return None

    def judged(self, served: ServedBy) -> Judged:
        """Of a step, timed if it is not known; never, once enough have been."""
        key = tuple(served[coordinate].name for coordinate in self.options)
        if key not in self.known:
            if len(self.known) >= self.most:
                return Judged(_NEVER, {})
            self.known[key] = self.judge(served)
        return self.known[key]
