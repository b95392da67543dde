"""Branch and bound over candidates, each timed as a composed step: what is known so far, and what is asked next.

Candidates come in the order of their bounds (`emu.study.planning.bound`), the own placement of every plan before the others, so
that plans that differ are known early. Those whose bound is above the time of the last plan of the table cannot be in it, nor
can any after them. Nor can those whose bound by the times of their own requests is above it (`emu.study.planning.placed`):
what is found is what timing every candidate finds.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from emu.model.model import Model
from emu.model.peak import memory_by_part
from emu.model.plan import Plan
from emu.model.stack import Stack
from emu.study.planning.kept import Kept, Names
from emu.study.planning.placed import Placed
from emu.study.planning.rates import Taken
from emu.study.planning.requests import Request
from emu.study.planning.row import Candidate, PlanRow
from emu.study.planning.timed import COMPOSED, FULL, REFUSED, Found, Lone, Step, Submit, Waiting, ahead
from emu.study.training.placed import axes_of

Progress = Callable[[str, int | None], AbstractContextManager[Callable[[], None]]]
_FIRST, _MOST = 128, 512  # candidates that are looked at together: first fewer, so that some times are known soon
_NO_TIME = float("inf")


def quiet(label: str, total: int | None) -> AbstractContextManager[Callable[[], None]]:
    """Progress that nobody looks at."""
    return nullcontext(lambda: None)


class Bounded(NamedTuple):
    """A candidate that may be one of the best."""

    bound_s: float
    candidate: Candidate

    @property
    def order(self) -> tuple[object, ...]:
        """By which candidates are looked at."""
        return self.bound_s, *self.candidate.words


def _rounds(candidates: Sequence[Bounded]) -> tuple[list[Bounded], list[Bounded]]:
    """Each plan's own placement; then the others."""
    own = [each.candidate.axes == axes_of(each.candidate.plan) for each in candidates]
    return [each for each, first in zip(candidates, own, strict=True) if first], [
        each for each, first in zip(candidates, own, strict=True) if not first
    ]


def _together(candidates: Sequence[Bounded]) -> Iterator[Sequence[Bounded]]:
    """Some candidates after others, at first a few."""
    begun = 0
    while begun < len(candidates):
        size = min(_MOST, max(_FIRST, begun))
        yield candidates[begun : begun + size]
        begun += size


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
    placed: Placed
    progress: Progress = quiet
    best: dict[tuple[int, Plan], tuple[float, Candidate]] = field(default_factory=dict)  # of each plan its best placement
    rows: dict[Candidate, PlanRow] = field(default_factory=dict)
    least_s: dict[Candidate, float] = field(default_factory=dict)  # bounds by the times of requests, as far as they matter
    memory: dict[Plan, int] = field(default_factory=dict)
    worst_s: float = _NO_TIME  # of the plans that are wanted, once there are as many

    def time(self, candidates: Sequence[Bounded], submit: Submit, side_by_side: int) -> None:
        """Time all that may be among the best, in the order of their bounds."""
        with self.progress(f"timing the best of {len(candidates):,} candidates", len(candidates)) as advance:
            for of_round in _rounds(candidates):
                for together in _together(of_round):
                    self._time([each.candidate for each in together if each.bound_s <= self.worst_s], submit, side_by_side)
                    for _ in together:
                        advance()

    def _time(self, candidates: Sequence[Candidate], submit: Submit, side_by_side: int) -> None:
        """Those that may be among the best by the times of their requests."""

        def times(topology: int, wanted: Mapping[Hashable, Request]) -> Mapping[Hashable, Taken]:
            return self._times(topology, wanted, submit, side_by_side)

        found = self.placed.there_s(candidates, self.worst_s, times)
        self.least_s |= found
        in_order = sorted(found, key=lambda each: (found[each], *each.words))

        def asked() -> Iterator[tuple[Candidate, Waiting]]:
            for each in in_order:
                if found[each] > self.worst_s:
                    return
                if self.fits(each.plan):
                    yield each, self._asked(Step(each, COMPOSED), submit)

        for candidate, step in ahead(asked(), side_by_side):
            self._take(candidate, step)

    def _times(
        self, topology: int, wanted: Mapping[Hashable, Request], submit: Submit, side_by_side: int
    ) -> dict[Hashable, Taken]:
        """Of requests; one that cannot be timed counts nothing."""
        found = dict[Hashable, Taken]()
        jobs = ((name, Lone(topology, request)) for name, request in wanted.items())
        for name, took in ahead(((name, self._asked(job, submit)) for name, job in jobs), 16 * side_by_side):
            self.kept.write(self.names.of(Lone(topology, wanted[name])), took)
            found[name] = Taken(0.0, 0.0) if REFUSED in took else Taken(**took)
        return found

    def needed(self) -> list[Candidate]:
        """The candidates that had to be timed; how many more were depends on what ran side by side."""
        return [each for each, least_s in self.least_s.items() if least_s <= self.worst_s and self.fits(each.plan)]

    def seen(self) -> list[PlanRow]:
        """Of those that had to be timed, each plan at its best placement."""
        best: dict[tuple[int, Plan], PlanRow] = {}
        for each in (each for each in self.needed() if each in self.rows):
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

    def _asked(self, job: Step | Lone, submit: Submit) -> Waiting:
        """What is kept of a job, or is timed now."""
        known = self.kept.read(self.names.of(job))
        return submit(job) if known is None else _Known(known)

    def full(self, candidates: Sequence[Candidate], submit: Submit, side_by_side: int, how: str = FULL) -> list[Candidate]:
        """Time these too, by default as `estimate` does; those that could be, the fastest first."""
        found_all = dict[Candidate, float]()
        with self.progress(f"timing {len(candidates)} of them in full", len(candidates)) as advance:
            for candidate, found in ahead(((c, self._asked(Step(c, how), submit)) for c in candidates), side_by_side):
                self.kept.write(self.names.of(Step(candidate, how)), found)
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
        self.kept.write(self.names.of(Step(candidate, COMPOSED)), found)
        if REFUSED in found:
            return
        row = self.rows[candidate] = PlanRow.read(found)
        key, mine = (candidate.topology, candidate.plan), (row.step_time_s, candidate)
        self.best[key] = min(mine, self.best.get(key, mine), key=lambda each: (each[0], each[1].words))
        if len(self.best) >= self.most:
            self.worst_s = sorted(time_s for time_s, _ in self.best.values())[self.most - 1]
