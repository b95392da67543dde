"""The rows and the table of a search for plans, and the reason why one row is slower than another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emu.model.plan.plan import TITLES
from emu.study.training.estimate import StepEstimate
from emu.study.training.step.step import LEFT_OUT, TimedTrace, shared_fields
from emu.trace.report.mean_parts import MeanParts
from emu.units import format_time

# How a search ends: none of its candidates that was not timed may be among the best; a limit of its `Work` is reached; or a
# signal has ended it.
PROVED, OUT_OF_WORK, INTERRUPTED = "proved", "worked", "interrupted"
# What decides a candidate: the memory of the device, or that it cannot be generated; a bound in any placement, or by the times
# of its own requests; its composed time; or nothing, as the search ended before.
DECIDED_BY = ("memory", "bound", "requests", "composed", "undecided")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlanRow:
    """A plan on one topology with its timed step.

    The parts of the step are means over all ranks, so that plans can be compared.
    """

    topology: str
    plan: str
    axes: str  # that of neighbouring NPUs first
    step_time_s: float
    tokens_per_s: float
    mfu: float  # 0..1
    hfu: float
    mean_over_ranks: MeanParts
    peak_memory_bytes: int
    memory_by_part_bytes: Mapping[str, int]
    algorithms: Mapping[str, str]
    engine: str  # the method by which it was timed: sweep, quotient, solver, or `composed`
    bound_s: float | None = None  # lower bound of its composed step; None: the search had not come so far
    least_untimed_s: float | None = None  # the least that plans without a time may take; None: more than this row (proved)
    beside: bool = False  # whether the user named this plan; else the search found it
    why: str = ""  # why it is slower than the first row; "": it is the first

    def __repr__(self) -> str:
        return f"<PlanRow {self.plan} on {self.topology}: {format_time(self.step_time_s)}, MFU {self.mfu:.3f}>"

    @staticmethod
    def of(step: StepEstimate, timed: TimedTrace) -> "PlanRow":
        """Return the row of an estimate, by the two values that timing a prepared estimate returns."""
        return PlanRow(**{**shared_fields(step, PlanRow), "mean_over_ranks": timed.mean_over_ranks()})

    @staticmethod
    def stored(found: Mapping[str, Any]) -> "PlanRow":
        """Return the row that was stored as a mapping by `asdict`."""
        return PlanRow(**{**found, "mean_over_ranks": MeanParts(**found["mean_over_ranks"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """The table of a search: its plans, the fastest first, and how the search ended.

    `plans` and `candidates` count what was possible, `timed` the candidates that had to be timed, `decided` the others by what
    decided on them.
    """

    model: str
    npus: int
    device: str
    memory_bytes: int  # of the device; 0: not known
    either_way: float | None = field(default=None, metadata=LEFT_OUT)  # share by which times may be too high or low
    either_way_by: str | None = field(default=None, metadata=LEFT_OUT)  # the runs from which this share is known
    beyond_runs: str | None = field(default=None, metadata=LEFT_OUT)  # why it need not hold; None: it holds
    global_batch: int
    seq: int
    software: str
    given: str  # words that all plans searched have
    not_searched: tuple[str, ...]  # settings and placements that the search leaves out, in words
    plans: int  # how many plans the model and the software allow
    candidates: int  # those that may fit the memory, in each placement on each topology
    timed: int  # candidates that had to be timed: their bounds are not above the time of the last plan of the table
    ended: str  # how the search has ended: PROVED, OUT_OF_WORK or INTERRUPTED
    decided: Mapping[str, int]  # numbers of candidates by what has decided on them: see `DECIDED_BY`
    least_s: float | None  # the least that undecided candidates may take; None: all are decided
    rows: tuple[PlanRow, ...]
    front: tuple[PlanRow, ...]  # timed plans that no other beats in both memory and MFU
    seen: tuple[tuple[int, float], ...]  # bytes of memory and MFU of each timed plan
    assumptions: tuple[str, ...]
    wall_s: float

    @property
    def fastest(self) -> PlanRow:
        """The fastest row that was found by the search."""
        return next(row for row in self.rows if not row.why)


def parts_s(row: PlanRow) -> dict[str, float]:
    """Return the parts of a step in seconds by name, as means over all ranks; they add up to the step time."""
    of = row.mean_over_ranks
    return {"compute": of.compute_s, **of.exposed_comm_by_axis_s, "bubble": of.bubble_s, "straggling": of.idle_s - of.bubble_s}


def reason_of(row: PlanRow, best: PlanRow) -> str:
    """Return a text that says why a row is slower than the best row: the part of the step that differs most."""
    if row.step_time_s <= best.step_time_s:
        less_s = best.step_time_s - row.step_time_s
        return f"{format_time(less_s)} faster than the best that was found" if less_s else "takes as long"
    own, other = parts_s(row), parts_s(best)
    worst = max({**own, **other}, key=lambda part: own.get(part, 0.0) - other.get(part, 0.0))
    more = own.get(worst, 0.0) - other.get(worst, 0.0)
    return f"{format_time(row.step_time_s - best.step_time_s)} slower: {_difference_text(worst, format_time(more), row, best)}"


def _difference_text(part: str, more: str, row: PlanRow, best: PlanRow) -> str:
    """Return the phrase on the part of the step in which a row loses most time against the best row.

    Args:
        part: The part, a key of `parts_s`.
        more: How much more time it takes than in the best plan, in words.
        row: The row.
        best: The row of the best plan.
    """
    if part == "compute":
        return f"{more} more computation{_computes(row, best)}"
    if part == "bubble":
        return f"{more} more waiting for other stages (bubble)"
    if part == "straggling":
        return f"{more} more waiting for other ranks of the same stage (straggling)"
    kind = f"{TITLES[part]} parallel" if part in TITLES else part
    return f"{more} more exposed {kind} communication ({part})"


def _computes(row: PlanRow, best: PlanRow) -> str:
    """Return the cause of more computation, as far as the settings of the two plans show it."""
    mine, other = (_recomputes(each) for each in (row, best))
    order = ("none", "selective", "ops", "full")
    if order.index(mine) > order.index(other):
        return f", of it what recompute={mine} works out again"
    of, best_of = row.mean_over_ranks, best.mean_over_ranks
    if (of.optimizer_s or 0.0) - (best_of.optimizer_s or 0.0) > 0.5 * (of.compute_s - best_of.compute_s):
        return ", most of it the optimizer's"
    return ", as its operators are smaller or more of them are whole on each rank"


def _recomputes(row: PlanRow) -> str:
    """Return the setting `recompute` of a row's plan."""
    return dict(word.partition("=")[::2] for word in row.plan.split(",")).get("recompute", "none")
