"""What a search has still to look at, the least bound first."""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from emu.study.planning.search.row import Candidate

READY, PLACED, ANYWHERE, REDUCED, WORKS, PLAN = range(6)  # what a bound rests on; of equal bounds the best known comes first
_TOGETHER = 64  # that are looked at together at most
_NEAR = 1.005  # times the least bound, up to which they are


class Entry(NamedTuple):
    """A candidate, or a plan in any placement, on any topology."""

    bound_s: float
    known: int
    number: int  # no two have the same
    candidate: Candidate


@dataclass
class Frontier:
    """A heap of entries."""

    entries: list[Entry] = field(default_factory=list)
    added: int = 0
    least_s: float = 0.0  # the bound of what was asked for last: of all that is left none is below

    def add(self, bound_s: float, known: int, candidate: Candidate) -> None:
        """One that was found while others were looked at."""
        heappush(self.entries, self._entry(bound_s, known, candidate))

    def append(self, bound_s: float, plan: Candidate) -> None:
        """One of many plans, of which the first is asked for once the search begins."""
        self.entries.append(self._entry(bound_s, PLAN, plan))

    def begin(self) -> None:
        """All plans are there."""
        heapify(self.entries)

    def has(self, most_s: float) -> bool:
        """Whether there is one whose bound is not above that."""
        return bool(self.entries) and self.entries[0].bound_s <= most_s

    def first(self, most_s: float) -> list[Entry]:
        """Taken off: the first, if it is ready to be timed; else those of about its bound that are not."""
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
        self.added += 1
        return Entry(bound_s, known, self.added, candidate)
