"""Branch and bound over candidates, each timed as a composed step: what is known so far, and what is asked next.

Candidates come in the order of their bounds (`emu.study.planning.bound`), the own placement of every plan before the others, so
that plans that differ are known early. Those whose bound is above the time of the last plan of the table cannot be in it, nor
can any after them. Nor can those that are above it by the times of their own requests (`emu.study.training.least`): what is
found is what timing every candidate finds.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from emu.errors import InputError
from emu.model.model import Model
from emu.model.peak import memory_by_part
from emu.model.plan import Plan
from emu.model.stack import Stack
from emu.study.planning.bound import Bounds
from emu.study.planning.kept import Kept, Names
from emu.study.planning.row import Candidate, PlanRow
from emu.study.planning.space import placements
from emu.study.planning.timed import ABOVE, ANY, COMPOSED, FULL, REFUSED, Found, Submit, Waiting, ahead
from emu.study.training.placed import axes_of

Progress = Callable[[str, int | None], AbstractContextManager[Callable[[], None]]]


def quiet(label: str, total: int | None) -> AbstractContextManager[Callable[[], None]]:
    """Progress that nobody looks at."""
    return nullcontext(lambda: None)


class Bounded(NamedTuple):
    """A candidate, and a time that no step of it beats."""

    bound_s: float
    candidate: Candidate

    @property
    def order(self) -> tuple[object, ...]:
        """By which candidates are looked at."""
        return self.bound_s, *self.candidate.words


def bounded(plan: Plan, bounds: Sequence[Bounds]) -> Iterator[Bounded]:
    """The candidates of a plan on each topology; none where it cannot be generated."""
    for number, each in enumerate(bounds):
        try:
            bound_s = each.seconds(plan)
        except InputError:
            return
        yield from (Bounded(bound_s, Candidate(number, plan, axes)) for axes in placements(plan))


def _rounds(candidates: Sequence[Bounded]) -> tuple[list[Bounded], list[Bounded]]:
    """Each plan's own placement; then the others."""
    own = [each.candidate.axes == axes_of(each.candidate.plan) for each in candidates]
    return [each for each, first in zip(candidates, own, strict=True) if first], [
        each for each, first in zip(candidates, own, strict=True) if not first
    ]


class _Known(NamedTuple):
    """Timed before."""

    found: Found

    def get(self) -> Found:
        return self.found


@dataclass
class Search:
    """What is known so far."""

    model: Model
    stack: Stack
    has: int  # bytes of the device's memory; 0: not known
    most: int  # plans that are wanted
    names: Names
    kept: Kept
    progress: Progress = quiet
    best: dict[tuple[int, Plan], tuple[float, Candidate]] = field(default_factory=dict)  # of each plan its best placement
    rows: dict[Candidate, PlanRow] = field(default_factory=dict)
    least_s: dict[Candidate, float] = field(default_factory=dict)  # of the candidates timed, what none of their steps beats
    memory: dict[Plan, int] = field(default_factory=dict)
    worst_s: float = float("inf")  # of the plans that are wanted, once there are as many

    def time(self, candidates: Sequence[Bounded], submit: Submit, side_by_side: int) -> None:
        """Time all that may be among the best, in the order of their bounds."""
        with self.progress(f"timing the best of {len(candidates):,} candidates", len(candidates)) as advance:

            def asked(several: Sequence[Bounded]) -> Iterator[tuple[Candidate, Waiting]]:
                for bound_s, candidate in several:
                    if bound_s > self.worst_s:
                        return
                    if self.fits(candidate.plan):
                        yield candidate, self.ask(candidate, COMPOSED, submit, self.worst_s)
                    advance()

            for several in _rounds(candidates):
                for candidate, found in ahead(asked(several), side_by_side):
                    self._take(candidate, found)

    def needed(self, candidates: Sequence[Bounded]) -> list[Candidate]:
        """Those of the candidates that had to be timed; how many more were depends on what ran side by side."""
        return [each for bound_s, each in candidates if max(bound_s, self.least_s.get(each, ANY)) <= self.worst_s]

    def seen(self, candidates: Sequence[Candidate]) -> list[PlanRow]:
        """Of those that were timed, each plan at its best placement."""
        best: dict[tuple[int, Plan], PlanRow] = {}
        for each in (each for each in candidates if each in self.rows):
            row, key = self.rows[each], (each.topology, each.plan)
            best[key] = min(row, best.get(key, row), key=lambda one: (one.step_time_s, one.axes))
        return list(best.values())

    def fits(self, plan: Plan) -> bool:
        """Whether the memory of the device holds a rank of it."""
        if not self.has:
            return True
        if plan not in self.memory:
            self.memory[plan] = sum(memory_by_part(self.model, plan, self.stack).values())
        return self.memory[plan] <= self.has

    def ask(self, candidate: Candidate, how: str, submit: Submit, enough_s: float = ANY) -> Waiting:
        """What is kept of a candidate, or is timed now; if that takes more than what is enough, only so much is found."""
        known = self.kept.read(self.names.of(candidate, how))
        if known is None or (ABOVE in known and known[ABOVE] <= enough_s):
            return submit(candidate, how, enough_s)
        return _Known(known)

    def full(self, candidates: Sequence[Candidate], submit: Submit, side_by_side: int, how: str = FULL) -> list[Candidate]:
        """Time these too, by default as `estimate` does; those that could be, the fastest first."""
        found_all = dict[Candidate, float]()
        with self.progress(f"timing {len(candidates)} of them in full", len(candidates)) as advance:
            for candidate, found in ahead(((c, self.ask(c, how, submit)) for c in candidates), side_by_side):
                self.kept.write(self.names.of(candidate, how), found)
                if REFUSED not in found:
                    self.rows[candidate] = PlanRow.read(found)
                    found_all[candidate] = self.rows[candidate].step_time_s
                advance()
        return sorted(found_all, key=lambda each: (found_all[each], each.words))

    def ranked(self) -> list[Candidate]:
        """The best plans that are known, each at its best placement."""
        every = sorted(self.best.values(), key=lambda each: (each[0], each[1].words))
        return [candidate for _, candidate in every[: self.most]]

    def _take(self, candidate: Candidate, found: Found) -> None:
        self.kept.write(self.names.of(candidate, COMPOSED), found)
        if REFUSED in found or ABOVE in found:
            return
        row = self.rows[candidate] = PlanRow.read(found)
        self.least_s[candidate] = row.bound_s or 0.0
        key, mine = (candidate.topology, candidate.plan), (row.step_time_s, candidate)
        self.best[key] = min(mine, self.best.get(key, mine), key=lambda each: (each[0], each[1].words))
        if len(self.best) >= self.most:
            self.worst_s = sorted(time_s for time_s, _ in self.best.values())[self.most - 1]
