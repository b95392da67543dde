"""The search for the options (algorithms) that make one training step the shortest, by descent.

The search is a descent: it changes the option of one coordinate at a time, or of several where no single change helps. It ends
where no change helps, or after a fixed number of steps has been timed. The limit is a number of steps and not a wall time, so
that every machine finds the same options.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import NamedTuple

from emu.study.training.step_choice.options import Coordinate, Option

NEVER = float("inf")
LEAST_GAIN = 1e-4  # share of the present time that a move must save at least
_TOGETHER = {2: 24, 3: 16}  # numbers of coordinates that move together, and how many such moves are tried
_CHEAPEST = 32  # single moves that joint moves are made of
_AXES = 12  # joint moves of a whole axis that are tried from one place

OptionByCoordinate = Mapping[Coordinate, Option]  # the option of each coordinate


class StepTime(NamedTuple):
    """The time of a step, and its exposed communication."""

    time_s: float
    exposed_s: Mapping[str, float]  # exposed communication by axis


class Move(NamedTuple):
    """A change of one coordinate to another of its options, and the seconds that this change alone adds to the step.

    A coordinate is a set of requests that get one option, which is an algorithm.
    """

    costs_s: float
    coordinate: Coordinate
    option: Option


@dataclass(eq=False)
class Descent:
    """The descent for one step; it stores the time of each combination of options that was timed."""

    options: Mapping[Coordinate, Sequence[Option]]  # the options of each coordinate, the plainest first
    weight_s: Mapping[Coordinate, float]  # seconds of all requests of a coordinate, one after another
    judge: Callable[[OptionByCoordinate], StepTime]
    most: int  # limit of steps that are timed; at the end one more for each coordinate
    good_enough_s: float  # a step of at most this time ends the descent
    known: dict[tuple[str, ...], StepTime] = field(default_factory=dict)

    def best(self, starts: Sequence[OptionByCoordinate]) -> tuple[OptionByCoordinate, float]:
        """Return the best options found from several starts, and the time of the step with them.

        The first start is returned unchanged where its time is good enough. Otherwise all coordinates of each axis are moved
        together from the fastest start. Then single moves are made from the result and from each start, the fastest first. From
        the best result several coordinates are moved together. Of equal results the one from the first start is returned.
        """
        if self.time_of(starts[0]).time_s <= self.good_enough_s:
            return starts[0], self.time_of(starts[0]).time_s
        by_time = sorted(starts, key=lambda start: self.time_of(start).time_s)
        served, time_s = min(map(self._descend, (self._best_by_axis(by_time[0]), *by_time)), key=lambda each: each[1])
        while moved := self._joint_move(served, time_s):
            served, time_s = self._descend(moved)
        self.most = len(self.known) + len(self.options)
        return self._plainest(served, time_s)

    def _best_by_axis(self, served: OptionByCoordinate) -> OptionByCoordinate:
        """Return the options after all coordinates of each axis were set to the one name that shortens the step most.

        The axis with the most exposed communication moves first. A coordinate that has no option of the name stays as it is.
        """
        exposed_s = self.time_of(served).exposed_s
        for axis in sorted({c.axis for c in self.options}, key=lambda axis: (-exposed_s.get(axis, 0.0), axis)):
            own = {c: {option.name: option for option in self.options[c]} for c in self.options if c.axis == axis}
            names = dict.fromkeys(name for by_name in own.values() for name in by_name)
            moved = [{**served, **{c: of[name] for c, of in own.items() if name in of}} for name in names]
            best = min(moved, key=lambda each: self.time_of(each).time_s)
            served = best if self._helps(best, self.time_of(served).time_s) else served
        return served

    def _plainest(self, served: OptionByCoordinate, time_s: float) -> tuple[OptionByCoordinate, float]:
        """Return the options, and the step's time, after each move to a first option that makes the step no longer."""
        for coordinate, options in self.options.items():
            plainer = {**served, coordinate: options[0]}
            plainer_s = self.time_of(plainer).time_s
            if plainer_s <= time_s:
                served, time_s = plainer, plainer_s
        return served, time_s

    def _descend(self, served: OptionByCoordinate) -> tuple[OptionByCoordinate, float]:
        """Return the options at which no single move makes the step shorter, and the seconds of the step with them."""
        time_s, exposed_s = self.time_of(served)
        order = sorted(self.options, key=lambda c: (-exposed_s.get(c.axis, 0.0), -self.weight_s[c], c))
        while moved := self._single_move(served, time_s, order):
            served, time_s = moved, self.time_of(moved).time_s
        return served, time_s

    def _single_move(self, served: OptionByCoordinate, time_s: float, order: Sequence[Coordinate]) -> OptionByCoordinate | None:
        """Return the options after the first coordinate with a helpful move made its best move; None if none helps."""
        for coordinate in order if time_s > self.good_enough_s else ():
            changed = [{**served, coordinate: option} for option in self._other_options(served, coordinate)]
            best = min(changed, key=lambda each: self.time_of(each).time_s, default=served)
            if self._helps(best, time_s):
                return best
        return None

    def _joint_move(self, served: OptionByCoordinate, time_s: float) -> OptionByCoordinate | None:
        """Return the options after the first helpful joint move, cheapest first; None if none helps."""
        moves = self._moves(served, time_s) if time_s > self.good_enough_s else []
        cheapest = sorted(moves, key=lambda move: move.costs_s)[:_CHEAPEST]
        for several in (*_axis_moves(moves), *_joint_moves(cheapest)):
            changed = {**served, **{move.coordinate: move.option for move in several}}
            if self._helps(changed, time_s):
                return changed
        return None

    def _moves(self, served: OptionByCoordinate, time_s: float) -> list[Move]:
        """Return every single move whose step can be timed."""
        pairs = [(coordinate, option) for coordinate in self.options for option in self._other_options(served, coordinate)]
        moves = [Move(self.time_of({**served, of: option}).time_s - time_s, of, option) for of, option in pairs]
        return [move for move in moves if move.costs_s < NEVER]

    def _other_options(self, served: OptionByCoordinate, coordinate: Coordinate) -> list[Option]:
        """Return the options for a coordinate other than the one that it has now."""
        return [option for option in self.options[coordinate] if option.name != served[coordinate].name]

    def _helps(self, served: OptionByCoordinate, time_s: float) -> bool:
        """Return whether options make the step shorter than `time_s` by more than the least share that counts."""
        return self.time_of(served).time_s < time_s * (1 - LEAST_GAIN)

    def time_of(self, served: OptionByCoordinate) -> StepTime:
        """Return the time of a step with given options, from memory or newly timed; `NEVER` beyond the limit of steps."""
        key = tuple(served[coordinate].name for coordinate in self.options)
        if key not in self.known:
            if len(self.known) >= self.most:
                return StepTime(NEVER, {})
            self.known[key] = self.judge(served)
        return self.known[key]


def _axis_moves(moves: Sequence[Move]) -> list[tuple[Move, ...]]:
    """Return joint moves of all coordinates of one axis to options of one name, cheapest first."""
    found: dict[tuple[str, str], tuple[Move, ...]] = {}
    for move in moves:
        key = move.coordinate.axis, move.option.name
        found[key] = (*found.get(key, ()), move)
    return sorted((several for several in found.values() if len(several) > 1), key=_cost_s)[:_AXES]


def _joint_moves(moves: Sequence[Move]) -> Iterator[tuple[Move, ...]]:
    """Yield joint moves of two different coordinates, then of three, the cheapest first."""
    for size, most in _TOGETHER.items():
        every = (several for several in combinations(moves, size) if len({move.coordinate for move in several}) == size)
        yield from islice(sorted(every, key=_cost_s), most)


def _cost_s(moves: Sequence[Move]) -> float:
    """Return the sum of the seconds by which single moves make the step longer."""
    return sum(move.costs_s for move in moves)
