"""Knowledge of a search so far: the fastest plans, and the least time that a plan may take that was not timed.

Both are kept among the results. So neither goes back when a search is started again, and an interrupted search has a table.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell
from emu.study.planning.search.row import Candidate, PlanRow
from emu.study.planning.search.timer import COMPOSED, FULL, QUICK, REFUSED, Job, ResultCache, StepJob
from emu.units import format_time

NO_TIME = float("inf")


Advance = Callable[..., None]  # advances by one, and tells a line if one is given


class Progress(Protocol):
    """A function that shows the progress of one part of a search while a context lasts."""

    def __call__(
        self, label: str, total: int | None, state: Callable[[], str] | None = None, /
    ) -> AbstractContextManager[Advance]:
        """Return the context.

        Args:
            label: The name of the part.
            total: The number of advances; None: it is not known.
            state: A function that says in words what is done and what is left; None: the number of advances says it.
        """


def _hidden(told: str = "") -> None:
    """Show nothing."""


def quiet(label: str, total: int | None, state: Callable[[], str] | None = None, /) -> AbstractContextManager[Advance]:
    """Return a context for progress that is not shown."""
    return nullcontext(_hidden)


@dataclass
class SearchState:
    """The fastest plans and the bound that a search knows, with what it knew when it was interrupted before."""

    kept: ResultCache
    name: str  # of the search in the cache
    name_of: Callable[[Job], str]  # the name of a job's result there
    advance: Advance = _hidden
    least_s: float = 0.0  # no candidate that is not timed takes less
    best: tuple[float, Candidate] | None = None  # the fastest by the quick way, and its time
    before: dict[Candidate, PlanRow] = field(default_factory=dict)  # the fastest of an interrupted search
    _told_s: float = NO_TIME  # the time of the best that was told

    def load(self) -> None:
        """Take over what an interrupted search knew, if all its results are there."""
        found = self.kept.read(self.name)
        rows = {candidate: self._rows(candidate) for candidate in map(_candidate, found["best"])} if found else {}
        if not found or not all(rows.values()):
            return
        self.least_s = NO_TIME if found["least_s"] is None else found["least_s"]
        for candidate, own in rows.items():
            self.before[candidate] = own[0]
            self._improve(own[-1].step_time_s, candidate)

    def save(self, best: Sequence[Candidate]) -> None:
        """Keep the bound and the fastest candidates."""
        self.kept.write(self.name, {"least_s": finite(self.least_s), "best": [_words(each) for each in best]})

    def timed(self, time_s: float, candidate: Candidate) -> None:
        """Note the time of a candidate, and tell it if it is the best."""
        self._improve(time_s, candidate)
        self._tell()

    def bounded(self, least_s: float) -> None:
        """Note that no candidate that is not timed takes less than a time, and tell it where this proves the best."""
        was_proved, self.least_s = self.is_proved, max(self.least_s, least_s)
        if self.is_proved and not was_proved:
            self._told_s = NO_TIME
        self._tell()

    @property
    def is_proved(self) -> bool:
        """True where no plan that was not timed is as fast as the best."""
        return self.best is not None and self.best[0] < self.least_s

    def told(self) -> str:
        """Return in words the best and the bound."""
        least = "" if self.least_s == NO_TIME else f" takes less than {format_time(self.least_s)}"
        rest = f"no plan that is left{least}" if least else "no plan is left"
        if self.best is None:
            return rest
        time_s, (_, plan, _) = self.best
        return f"{'proved' if self.is_proved else 'so far'} the fastest: {spell(plan)}, {format_time(time_s)}; {rest}"

    def _improve(self, time_s: float, candidate: Candidate) -> None:
        """Take a candidate for the best if it is faster."""
        if self.best is None or (time_s, candidate.words) < (self.best[0], self.best[1].words):
            self.best = time_s, candidate

    def _tell(self) -> None:
        """Show the best if it is another than the last that was shown, or newly proved."""
        if self.best is not None and self.best[0] < self._told_s:
            self._told_s = self.best[0]
            self.advance(self.told())

    def _rows(self, candidate: Candidate) -> list[PlanRow]:
        """Return the rows of a candidate, that of the best way first and that of the quick way last; none if this is lost."""
        *better, quick = (self.kept.read(self.name_of(StepJob(candidate, how))) for how in (FULL, COMPOSED, QUICK))
        return [PlanRow.stored(row) for row in (*better, quick) if row and REFUSED not in row] if quick else []


def finite(time_s: float) -> float | None:
    """Return a time; None for one without end."""
    return None if time_s == NO_TIME else time_s


def _words(candidate: Candidate) -> dict[str, Any]:
    """Return a candidate as JSON."""
    return {"topology": candidate.topology, "plan": asdict(candidate.plan), "axes": candidate.axes}


def _candidate(found: Mapping[str, Any]) -> Candidate:
    """Return the candidate of `_words`."""
    plan = Plan(**{**found["plan"], "layers": tuple(found["plan"]["layers"])})
    return Candidate(found["topology"], plan, tuple(found["axes"]))
