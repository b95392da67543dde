"""The plans that a search has timed, each in its best placement, and the times that decide whether it continues."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from emu.model.plan.plan import Plan
from emu.study.planning.plan_request import Candidate
from emu.study.planning.plan_row import PlanRow
from emu.study.planning.search.search_jobs import REFUSED, JobResult
from emu.study.planning.search.search_state import SearchState


@dataclass
class BestPlans:
    """The rows of all candidates that are timed so far, and the best placement of each plan.

    A time is by the quick way (composed) or in full.
    """

    top: int  # plans of the table
    state: SearchState
    rows: dict[Candidate, PlanRow] = field(default_factory=dict)
    quick_s: dict[Candidate, float] = field(default_factory=dict)  # times by the quick way
    best: dict[tuple[int, Plan], tuple[float, Candidate]] = field(default_factory=dict)  # of each plan its best placement
    first_s: float = inf  # time of the best plan so far, by the quick way
    refusal: str = ""  # the error of the first candidate whose step cannot be timed
    worst_s: float = inf  # time of the slowest plan of the table, once it is full

    @property
    def lacking(self) -> int:
        """The number of plans that the table lacks."""
        return max(0, self.top - len(self.best))

    def store(self, candidate: Candidate, found: JobResult) -> None:
        """Store the quick result of a candidate's step, and update the best plans."""
        if REFUSED in found:
            self.refusal = self.refusal or found[REFUSED]
            return
        row = self.rows[candidate] = PlanRow.stored(found)
        key, mine = candidate[:2], (row.step_time_s, candidate)
        self.best[key] = min(mine, self.best.get(key, mine), key=lambda each: (each[0], each[1].tie_key))
        self.quick_s[candidate] = row.step_time_s
        self.first_s = min(self.first_s, row.step_time_s)
        if not self.lacking:
            self.worst_s = sorted(time_s for time_s, _ in self.best.values())[self.top - 1]
        self.state.note_time(row.step_time_s, candidate)

    def within(self, share: float) -> list[Candidate]:
        """Return the candidates that are slower than the last plan of the table by at most a share of its time."""
        return [each for each, time_s in self.quick_s.items() if time_s <= (1 + share) * self.worst_s]

    def rank_anew(self, timed: Iterable[Candidate]) -> None:
        """Replace the best plans by those of timed candidates, which come in the order of their times.

        The first placement of a plan is its best.
        """
        self.best = {}
        for candidate in timed:
            self.best.setdefault(candidate[:2], (self.rows[candidate].step_time_s, candidate))

    def ranked(self) -> list[Candidate]:
        """Return the candidates of the table, each plan in its best placement, the fastest first."""
        every = sorted(self.best.values(), key=lambda each: (each[0], each[1].tie_key))
        return [candidate for _, candidate in every[: self.top]]

    def rows_of(self, candidates: Iterable[Candidate]) -> list[PlanRow]:
        """Return the rows of candidates that have one, each plan in its best placement among them."""
        best: dict[tuple[int, Plan], PlanRow] = {}
        for each in (each for each in candidates if each in self.rows):
            row, key = self.rows[each], each[:2]
            best[key] = min(row, best.get(key, row), key=lambda one: (one.step_time_s, one.axes))
        return list(best.values())

    def known(self) -> dict[Candidate, PlanRow]:
        """Return the rows of the best candidates that are known, also from before an interruption, the fastest first."""
        rows, best = {**self.state.before, **self.rows}, dict[tuple[int, Plan], Candidate]()
        for candidate, row in rows.items():
            key = candidate[:2]
            if key not in best or row.step_time_s < rows[best[key]].step_time_s:
                best[key] = candidate
        by_time = sorted(best.values(), key=lambda each: rows[each].step_time_s)
        return {each: rows[each] for each in by_time[: self.top]}
