"""The frontier of a search: the candidates and plans that it has still to look at, the least bound first."""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from emu.study.planning.search.row import Candidate

READY, PLACED, ANYWHERE, REDUCED, WORKS, PLAN = range(6)  # the kind of a bound; of equal bounds the best known comes first
_TOGETHER = 64  # limit of entries that are looked at together
_NEAR = 1.005  # times the least bound: limit of their bounds


class Entry(NamedTuple):
    """A candidate, or a plan in any placement, with the bound of its time."""

    bound_s: float
    known: int  # the kind of the bound: READY, PLACED and so on
    number: int  # unique
    candidate: Candidate


@dataclass
class Frontier:
    """A heap of entries."""

    entries: list[Entry] = field(default_factory=list)
    added: int = 0
    least_s: float = 0.0  # the last bound that was taken off; no entry left is below

    def add(self, bound_s: float, known: int, candidate: Candidate) -> None:
        """Add an entry while the search runs."""
        heappush(self.entries, self._entry(bound_s, known, candidate))

    def append(self, bound_s: float, plan: Candidate) -> None:
        """Append a plan before the search begins."""
        self.entries.append(self._entry(bound_s, PLAN, plan))

    def begin(self) -> None:
        """Make a heap of all plans that were appended."""
        heapify(self.entries)

    def has(self, most_s: float) -> bool:
        """Return whether there is an entry whose bound is at most `most_s`."""
        return bool(self.entries) and self.entries[0].bound_s <= most_s

    def first(self, most_s: float) -> list[Entry]:
        """Take off and return the first entry if it is ready to be timed, or else the entries near its bound that are not."""
        found, ready = [heappop(self.entries)], list[Entry]()
        self.least_s = found[0].bound_s
        most_s = min(most_s, found[0].bound_s * _NEAR)
        while found[0].known != READY and self.has(most_s) and len(found) < _TOGETHER:
            entry = heappop(self.entries)
            (ready if entry.known == READY else found).append(entry)
        for entry in ready:
            heappush(self.entries, entry)
        return found

    def _entry(self, bound_s: float, known: int, candidate: Candidate) -> Entry:
        """Return the entry of a candidate, numbered after all entries before it.

        Args:
            bound_s: The lower bound of its time.
            known: The kind of this bound: READY, PLACED and so on.
            candidate: The candidate, or a plan in any placement.
        """
        self.added += 1
        return Entry(bound_s, known, self.added, candidate)
