"""A descent over what serves each coordinate of a step: one is moved at a time, several where no single one helps.

The descent ends where nothing helps, or after so many steps have been timed: a number, so that any machine finds the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import NamedTuple

from emu.study.training.served.coordinates import Coordinate, Option

NEVER = float("inf")
WORTH = 1e-4  # of the time so far, that a move must save at least
_TOGETHER = {2: 24, 3: 16}  # how many coordinates move together, and how many such moves are tried from one place
_CHEAPEST = 32  # single moves, of which several are put together
_AXES = 12  # moves of all coordinates of an axis to one name, that are tried from one place

ServedBy = Mapping[Coordinate, Option]  # what serves each coordinate


class Judged(NamedTuple):
    """A step that was timed."""

    time_s: float
    exposed_s: Mapping[str, float]  # of communication, by axis


class Move(NamedTuple):
    """One coordinate served by another of its options, and how much longer the step takes for that move alone."""

    costs_s: float
    coordinate: Coordinate
    option: Option


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
        """Return the best that is found from several starts, and its time; of equal ones, what is found from the first.

        The first start is taken as it is where it is near the floor. Otherwise the coordinates of each axis are moved together
        from the fastest start. Then single moves are made from there and from each start, the fastest first; from the best that
        is found so, several coordinates are moved together.
        """
        if self.judged(starts[0]).time_s <= self.floor_s:
            return starts[0], self.judged(starts[0]).time_s
        by_time = sorted(starts, key=lambda start: self.judged(start).time_s)
        served, time_s = min(map(self._descend, (self._by_axis(by_time[0]), *by_time)), key=lambda each: each[1])
        while moved := self._together(served, time_s):
            served, time_s = self._descend(moved)
        self.most = len(self.known) + len(self.options)
        return self._plainest(served, time_s)

    def _by_axis(self, served: ServedBy) -> ServedBy:
        """Return the choice where each axis, the most exposed first, has the name that helps most, as far as it has it."""
        exposed_s = self.judged(served).exposed_s
        for axis in sorted({c.axis for c in self.options}, key=lambda axis: (-exposed_s.get(axis, 0.0), axis)):
            own = {c: {option.name: option for option in self.options[c]} for c in self.options if c.axis == axis}
            names = dict.fromkeys(name for by_name in own.values() for name in by_name)
            moved = [{**served, **{c: of[name] for c, of in own.items() if name in of}} for name in names]
            best = min(moved, key=lambda each: self.judged(each).time_s)
            served = best if self._helps(best, self.judged(served).time_s) else served
        return served

    def _plainest(self, served: ServedBy, time_s: float) -> tuple[ServedBy, float]:
        """Return the choice without moves that save nothing: each coordinate by its first option where that is no slower."""
        for coordinate, options in self.options.items():
            plainer = {**served, coordinate: options[0]}
            plainer_s = self.judged(plainer).time_s
            if plainer_s <= time_s:
                served, time_s = plainer, plainer_s
        return served, time_s

    def _descend(self, served: ServedBy) -> tuple[ServedBy, float]:
        """Return where single moves lead, and the time there."""
        time_s, exposed_s = self.judged(served)
        order = sorted(self.options, key=lambda c: (-exposed_s.get(c.axis, 0.0), -self.weight_s[c], c))
        while moved := self._single(served, time_s, order):
            served, time_s = moved, self.judged(moved).time_s
        return served, time_s

    def _single(self, served: ServedBy, time_s: float, order: Sequence[Coordinate]) -> ServedBy | None:
        """The move of the first coordinate that has one that helps, to the option that helps most; None: none does."""
        for coordinate in order if time_s > self.floor_s else ():
            changed = [{**served, coordinate: option} for option in self._others(served, coordinate)]
            best = min(changed, key=lambda each: self.judged(each).time_s, default=served)
            if self._helps(best, time_s):
                return best
        return None

    def _together(self, served: ServedBy, time_s: float) -> ServedBy | None:
        """The first move of several coordinates that helps, those first whose single moves cost least; None: none does."""
        moves = self._moves(served, time_s) if time_s > self.floor_s else []
        cheapest = sorted(moves, key=lambda move: move.costs_s)[:_CHEAPEST]
        for several in (*_of_axes(moves), *_several(cheapest)):
            changed = {**served, **{move.coordinate: move.option for move in several}}
            if self._helps(changed, time_s):
                return changed
        return None

    def _moves(self, served: ServedBy, time_s: float) -> list[Move]:
        """Every single move whose step can be timed."""
        pairs = [(coordinate, option) for coordinate in self.options for option in self._others(served, coordinate)]
        moves = [Move(self.judged({**served, of: option}).time_s - time_s, of, option) for of, option in pairs]
        return [move for move in moves if move.costs_s < NEVER]

    def _others(self, served: ServedBy, coordinate: Coordinate) -> list[Option]:
        return [option for option in self.options[coordinate] if option.name != served[coordinate].name]

    def _helps(self, served: ServedBy, time_s: float) -> bool:
        return self.judged(served).time_s < time_s * (1 - WORTH)

    def judged(self, served: ServedBy) -> Judged:
        """Return a step's time, timed if it is not known; never, once enough have been."""
        key = tuple(served[coordinate].name for coordinate in self.options)
        if key not in self.known:
            if len(self.known) >= self.most:
                return Judged(NEVER, {})
            self.known[key] = self.judge(served)
        return self.known[key]


def _of_axes(moves: Sequence[Move]) -> list[tuple[Move, ...]]:
    """All coordinates of an axis to options of one name, as far as they have it; those first that cost least."""
    found: dict[tuple[str, str], tuple[Move, ...]] = {}
    for move in moves:
        key = move.coordinate.axis, move.option.name
        found[key] = (*found.get(key, ()), move)
    return sorted((several for several in found.values() if len(several) > 1), key=_cost_s)[:_AXES]


def _several(moves: Sequence[Move]) -> Iterator[tuple[Move, ...]]:
    """Two different coordinates, then three; those first that cost least."""
    for size, most in _TOGETHER.items():
        every = (several for several in combinations(moves, size) if len({move.coordinate for move in several}) == size)
        yield from islice(sorted(every, key=_cost_s), most)


def _cost_s(moves: Sequence[Move]) -> float:
    return sum(move.costs_s for move in moves)
