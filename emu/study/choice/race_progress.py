"""The race of algorithms that is under way in this process: the display of progress says how far it is."""

from collections.abc import Iterator
from contextlib import contextmanager


class RaceProgress:
    """The algorithm that a race times at this moment, and the number of those that may be timed after it."""

    def __init__(self) -> None:
        self._told = ""

    def note(self, operation: str, name: str, ranks: int, left: int) -> None:
        """Store that an algorithm of an operation is timed now, and how many are left that may be faster."""
        self._told = f"timing {operation} {name} on {ranks} ranks, {left} algorithms left"

    @contextmanager
    def race(self) -> Iterator[None]:
        """Forget the last algorithm when the context of a race ends."""
        try:
            yield
        finally:
            self._told = ""

    def text(self) -> str:
        """Return a sentence on the algorithm that is timed now; an empty text where no race is under way."""
        return self._told


RACE = RaceProgress()
