"""A paper whose rows are worked out again: its rows as printed, and what works each out: a way of its own, or a sum.

A row has a place: `3` is table 3, `fig 17` a figure, `6.4` a section and `eq 7` an equation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from emu.errors import InputError, must_be
from launch.papers.figure import Figure
from launch.papers.sums import IS, summed
from launch.papers.targets import Answer, Row, Target, judged

Way = Callable[[Any, Target], "Answer | float | str"]  # of a paper and a row


@dataclass(eq=False)
class Paper:
    """Its rows; a subclass has a way to each, by the first words of the row's id."""

    targets: list[Target]
    ways: ClassVar[Mapping[str, Way]] = MappingProxyType({})
    figures: ClassVar[Mapping[str, Callable[[Any], Figure | Sequence[Figure]]]] = MappingProxyType({})  # by number
    notes: ClassVar[Sequence[str]] = ()  # what all rows assume, where it is the same for every run

    @property
    def places(self) -> tuple[str, ...]:
        """Where rows are, each place once."""
        return tuple(dict.fromkeys(target.table for target in self.targets))

    def of(self, place: str | None = None) -> list[Target]:
        """The rows of a place as printed, of a figure those of its parts too (17: 17a, 17b); of all unless it is given.

        Raises:
            InputError: no row is there, and no figure is drawn.
        """
        found = [target for target in self.targets if place is None or _is_in(place, target.table)]
        if not found and str(place).removeprefix("fig ") not in self.figures:
            known = ", ".join(map(told_of, self.places))
            raise must_be("repro", "a table or figure", f"one with rows ({known})", told_of(str(place)))
        return found

    def rows(self, place: str | None = None) -> Iterator[Row]:
        """The same beside their answers, each worked out when it is asked for."""
        for target in self.of(place):
            yield judged(target, self.answer(target))

    def answer(self, target: Target) -> Answer:
        """What Emu says of a row; why not, where it says nothing."""
        words = max((words for words in self.ways if target.id.startswith(words)), key=len, default=None)
        if words is None and IS not in target.given:
            return Answer(None)
        try:
            found = summed(target) if words is None or IS in target.given else self.ways[words](self, target)
        except InputError as error:
            return Answer(None, (f"it cannot be worked out: {error}",))
        return found if isinstance(found, Answer) else Answer(found)

    def assumptions(self) -> Sequence[str]:
        """Of all rows."""
        return self.notes


def _is_in(place: str, table: str) -> bool:
    return table == place or (place.startswith("fig ") and table.rstrip("abcdefgh") == place)


def called(way: Callable[[], Answer | float | str]) -> Way:
    """The way to a row that asks neither the paper nor the row."""
    return lambda _, __: way()


def told_of(place: str) -> str:
    """A place in words."""
    kind, _, number = place.rpartition(" ")
    named = {"fig": "figure", "eq": "equation", "app": "appendix", "": "section" if "." in number else "table"}
    return f"{named.get(kind, kind)} {number}"
