"""The frontier of a search: its entries in the order of their bounds, and of each split of the NPUs apart.

A split is the sizes of a plan's axes, and how it shards states.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import log2
from typing import NamedTuple

from emu.study.planning.plan_request import Candidate

# The rungs of the ladder of bounds, by the way a bound is found. A search goes through them from the last number to the
# first, so that of equal bounds the one that is worked out furthest comes first. SEQUENCE: by the time of one sequence;
# OWN_PASSES: by the plan's own passes; REDUCED: by its reductions of gradients, too; ALL_PARTS: by all parts of the model, on
# one topology; PLACED: in one placement; READY: final, so that the step is timed next.
READY, PLACED, ALL_PARTS, REDUCED, OWN_PASSES, SEQUENCE = range(6)
_TOGETHER = 64  # the most entries of a batch
_AS_LEAST = 1.005  # a batch has entries with bounds up to this times the least bound
# Shares by which the bound of a split counts for more where promising plans are looked for.
_AGAIN = 0.01  # each time that a promising plan was looked for in it
_LONG = 0.01  # each time that the turns of its pipeline are twice as many


class Entry(NamedTuple):
    """A candidate, or a plan in any placement, with a lower bound of its time in seconds.

    `rung` says how far the bound is worked out; `number` is unique and orders entries with equal bounds.
    """

    bound_s: float
    rung: int  # how far its bound is worked out: READY, PLACED and so on
    number: int  # unique
    candidate: Candidate

    @property
    def split(self) -> Hashable:
        """The key of its plan's split: the sizes of the axes, and how states are sharded."""
        plan = self.candidate.plan
        return plan.sharding, plan.tp, plan.cp, plan.pp, plan.ep


@dataclass
class Frontier:
    """The entries (plans and candidates with their bounds) that a search has still to decide, in a heap for each split."""

    heaps: dict[Hashable, list[Entry]] = field(default_factory=dict)
    added: int = 0
    _firsts: list[Entry] = field(default_factory=list)  # a heap of entries that were the first of their split

    def add(self, bound_s: float, rung: int, candidate: Candidate) -> None:
        """Add an entry, numbered after all entries before it.

        Args:
            bound_s: The lower bound of its time.
            rung: How this bound was found, one of the constants from READY on.
            candidate: The candidate, or a plan in any placement.
        """
        self.added += 1
        self._push(Entry(bound_s, rung, self.added, candidate))

    @property
    def entries(self) -> list[Entry]:
        """All entries, in any order; another thread may ask."""
        return [entry for heap in [*self.heaps.values()] for entry in [*heap]]

    def least(self) -> Entry | None:
        """Return the entry with the lowest bound; None if there are no entries."""
        while self._firsts:
            first = self._firsts[0]
            if first is self.first_of(first.split):
                return first
            heappop(self._firsts)  # another has come before it, or it was taken off
        return None

    def has(self, most_s: float) -> bool:
        """Return whether there is an entry whose bound is at most `most_s`."""
        least = self.least()
        return least is not None and least.bound_s <= most_s

    def has_in(self, split: Hashable, most_s: float) -> bool:
        """Return whether a split has an entry with a bound of at most `most_s` seconds."""
        first = self.first_of(split)
        return first is not None and first.bound_s <= most_s

    def first_of(self, split: Hashable) -> Entry | None:
        """Return the entry of a split (the sizes of tp, pp and so on) with the lowest bound; None if there is none."""
        heap = self.heaps.get(split)
        return heap[0] if heap else None

    def pop(self, split: Hashable) -> Entry:
        """Remove the entry with the lowest bound of all in a split (the sizes of tp, pp and so on), and return it."""
        heap = self.heaps[split]
        found = heappop(heap)
        if heap:
            heappush(self._firsts, heap[0])
        return found

    def take_batch(self, most_s: float) -> list[Entry]:
        """Remove and return the entries to process next, with bounds of at most `most_s` seconds.

        It is the first entry alone if its step is ready to be timed. Else it is those that are not ready, with bounds of up to
        `_AS_LEAST` times the least one.
        """
        found, ready, least = list[Entry](), list[Entry](), self.least()
        while least is not None and len(found) < _TOGETHER and least.bound_s <= most_s:
            entry = self.pop(least.split)
            if not found:
                most_s = min(most_s, entry.bound_s * _AS_LEAST)
            (ready if entry.rung == READY and found else found).append(entry)
            if found[0].rung == READY:
                break
            least = self.least()
        for entry in ready:
            self._push(entry)
        return found

    def promising(self, most_s: float, tried: Counter[Hashable]) -> Hashable | None:
        """Return the split whose first plan is to be timed next, of those with a bound of at most `most_s` seconds.

        It is the one with the least bound. The bound counts for more, the more often a plan of the split was looked for, so
        that other splits come, too; and the more turns a pipeline takes, as such a step takes long to time. None: none is left.

        Args:
            most_s: The limit of the bounds.
            tried: How often a promising plan was looked for in each split.
        """
        near = {split: heap[0] for split, heap in self.heaps.items() if heap and heap[0].bound_s <= most_s}

        def counts(split: Hashable) -> tuple[float, Entry]:
            plan = near[split].candidate.plan
            more = _AGAIN * tried[split] + _LONG * log2(plan.passes * plan.pp * plan.vp)
            return near[split].bound_s * (1 + more), near[split]

        return min(near, key=counts, default=None)

    def _push(self, entry: Entry) -> None:
        """Add an entry to the heap of its split."""
        heap = self.heaps.setdefault(entry.split, [])
        heappush(heap, entry)
        if heap[0] is entry:
            heappush(self._firsts, entry)
