"""The reports of estimates: the figures of a step on one topology, a table of several, and the table of the plans of a search.

The steps of a sweep are CSV for other programs, and a table for a reader.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from emu.model.stack.stack import find_software
from emu.study.planning.find import STARTED_AGAIN
from emu.study.planning.plan_row import INTERRUPTED, PROVED, PlanRow, PlanTable
from emu.study.planning.search.search import MOST_AFTER_FIRST, MOST_WORK
from emu.study.training.estimate import StepEstimate
from emu.units import format_size, format_time, is_whole
from launch.shell import is_in_shell, setting_text
from launch.show.blocks import Fact, fact_lines
from launch.show.step_parts import MEANS_TOLD, axes_in_order, exposed_columns, means_of, part_column
from launch.show.text.packet_lines import packet_facts
from launch.show.text.step_report import algorithm_lines, has_error, off_text, step_choice_text, step_text
from launch.show.text.table import Column, column_table, figures, merged_assumption_lines


def proof_text(row: PlanRow) -> str:
    """Return whether a row is proved as text, or else the least time of a plan that may be faster."""
    return "proved" if row.least_untimed_s is None else f"from {format_time(row.least_untimed_s)}"


PROOF = "proved: no plan that was not timed can be faster; from TIME: a plan that was not timed may take as little"


def plan_columns(rows: Sequence[PlanRow], number: str = "") -> list[Column[PlanRow]]:
    """Return the columns of a table of plans, with one of exposed communication for each axis.

    Args:
        rows: The plans.
        number: The head of their numbers, from 1; a star marks a plan that the user named.
    """
    numbers = {id(row): number for number, row in enumerate(rows, 1)}
    several = len({row.topology for row in rows}) > 1
    return [
        Column(number, lambda row: f"{numbers[id(row)]}{'*' * row.beside}", key=lambda row: numbers[id(row)]),
        Column("plan", lambda row: row.plan),
        Column("placement", lambda row: row.axes),
        figures("step", lambda row: row.step_time_s, format_time),
        Column("proof", proof_text, key=lambda row: row.least_untimed_s or 0.0),
        figures("MFU", lambda row: row.mfu, "{:.3f}".format),
        *exposed_columns(rows, str, "exposed"),
        part_column("bubble", lambda of: of.bubble_s),
        figures("memory", lambda row: row.peak_memory_bytes, format_size, "a rank"),
        *([Column("topology", lambda row: row.topology)] if several else []),
    ]


def plans_report(planned: PlanTable) -> str:
    """Return a table of plans, fastest first, with the reason why each is slower, and the assumptions."""
    rows = planned.rows
    topologies = dict.fromkeys(row.topology for row in rows)
    lines = [
        f"{planned.model} on {planned.npus} {planned.device} of {', '.join(topologies)}, "
        f"{planned.global_batch} sequences of {planned.seq} tokens, software={planned.software}",
        *("", column_table(plan_columns(rows), rows), "", f"exposed and bubble: {MEANS_TOLD}", PROOF, "", *_reasons(rows), ""),
        *fact_lines([Fact("expected", _expected_text(planned))]),
        *fact_lines([Fact("searched", f"{searched_text(planned)}, in {planned.wall_s:.1f} s"), *unsearched(planned)]),
        *merged_assumption_lines([("", planned.assumptions)]),
    ]
    return "\n".join(lines)


def _expected_text(planned: PlanTable) -> str | None:
    """Return a note on the expected error of the steps of plans; None: no run of their kind is known."""
    known = planned.either_way is not None or planned.beyond_runs is not None
    return f"{'each step ' * has_error(planned)}{off_text(planned)}" if known else None


def searched_text(planned: PlanTable) -> str:
    """Return a note on the numbers of plans: all, those that may fit the memory, and those that were timed."""
    given = f" with {planned.given}" if planned.given else ""
    return (
        f"{planned.plans:,} plans{given}; with their placements, {planned.candidates:,} candidates may fit the memory; "
        f"{planned.timed:,} had to be timed"
    )


def unsearched(planned: PlanTable) -> list[Fact]:
    """Return facts on the settings that were not searched, and on candidates that were neither timed nor ruled out."""
    undecided = None if planned.ended == PROVED else _undecided_text(planned)
    return [Fact("not searched", "; ".join(planned.not_searched)), Fact("not decided", undecided)]


def _undecided_text(planned: PlanTable) -> str:
    """Return a note on the candidates that a search left undecided, with their least possible time."""
    least = "" if planned.least_s is None else f", none of which takes less than {format_time(planned.least_s)}"
    told = f"{planned.decided['undecided']:,} candidates{least}"
    proves = "--all" if is_in_shell() else setting_text("prove_all")
    if planned.ended == INTERRUPTED:
        return f"{told}: the search was interrupted; {STARTED_AGAIN}"
    most, more = (f"{of.steps:,} steps, {of.requests:,} requests or {of.plans:,} plans" for of in (MOST_WORK, MOST_AFTER_FIRST))
    return (
        f"{told}: a search ends after {most}, and after {more} more once it has the first plan; {proves} proves all, and "
        f"words ({'--plan' if is_in_shell() else '`plan`'}) search some of them"
    )


def _reasons(rows: Sequence[PlanRow]) -> list[str]:
    """Return a line for each plan with the reason why it is slower than the first."""
    told = [f"{number:>2}  {row.why}" for number, row in enumerate(rows, 1) if row.why]
    yours = f"*  a plan of yours ({'--beside' if is_in_shell() else '`beside`'})"
    star = ["", yours] if any(row.beside for row in rows) else []
    alone = "no other plan is listed: no other fits, or no other was asked for"
    return ["why it is slower than the first:", *told, *star] if told else [alone, *star]


SweepStep = StepEstimate | PlanRow  # a step of the given plan, or of the best plan found
_RATES = ("step_time_s", "tokens_per_s", "mfu", "hfu", "peak_memory_bytes")
_OF_ESTIMATE = ("ranks", "dp", "global_batch", *_RATES)
_OF_PLAN = ("plan", "axes", *_RATES)
_MEANS = ("compute_s", "exposed_comm_s", "idle_s", "bubble_s")  # over all ranks


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A point of a sweep on one topology, with its step or the reason why there is none."""

    topology: str
    point: Mapping[str, str]
    refused: str  # reason why there is no step; "": there is one
    step: SweepStep | None


def sweep_record(row: SweepRow) -> dict[str, object]:
    """Return a point of a sweep as one flat row; times are in seconds, `mean_` values are means over ranks.

    A point without a step has only the reason.
    """
    point = {name.replace("-", "_"): int(value) if is_whole(value) else value for name, value in row.point.items()}
    where: dict[str, object] = {**point, "topology": row.topology, "refused": row.refused}
    if row.step is None:
        return where
    of, names = means_of(row.step), _OF_PLAN if isinstance(row.step, PlanRow) else _OF_ESTIMATE
    by_axis = of.exposed_comm_by_axis_s
    exposed = {f"mean_exposed_{axis or 'other'}_s": by_axis[axis] for axis in axes_in_order(by_axis)}
    step = {name: getattr(row.step, name) for name in names} | {f"mean_{name}": getattr(of, name) for name in _MEANS}
    return where | _engine_fields(row.step) | step | exposed


def _engine_fields(step: SweepStep) -> dict[str, object]:
    """Return the engine, the network and the fluid time of a step by packets; nothing of other steps."""
    if isinstance(step, StepEstimate) and step.packets is not None:
        return {"engine": step.engine, "network": step.packets.network, "fluid_step_time_s": step.packets.fluid_s}
    return {}


def sweep_text(row: SweepRow) -> str:
    """Return a point of a sweep as a short text: its values, the topology and the step time."""
    values = ", ".join(f"{name}={value}" for name, value in row.point.items())
    return f"{values} on {row.topology}: {row.refused if row.step is None else format_time(row.step.step_time_s)}"


def sweep_report(rows: Sequence[SweepRow]) -> str:
    """Return the table of a sweep: a line for each point and topology, with its step or the reason why there is none."""
    every = [row.step for row in rows if row.step is not None]

    def of_step(head: str, text: Callable[[SweepStep], str]) -> Column[SweepRow]:
        return Column(head, lambda row: "-" if row.step is None else text(row.step))

    columns = [
        *(Column(name, lambda row, name=name: row.point[name]) for name in rows[0].point),  # type: ignore[misc]
        Column("topology", lambda row: row.topology),
        *([of_step("plan", lambda step: step.plan)] if any(isinstance(step, PlanRow) for step in every) else []),
        of_step("step", lambda step: format_time(step.step_time_s)),
        of_step("MFU", lambda step: "-" if step.mfu is None else f"{step.mfu:.3f}"),
        of_step("tokens/s", lambda step: "-" if step.tokens_per_s is None else f"{step.tokens_per_s:,.0f}"),
        of_step("memory", lambda step: format_size(step.peak_memory_bytes)),
        *([Column("refused", lambda row: row.refused)] if len(every) < len(rows) else []),
    ]
    return column_table(columns, rows)


def _estimate_columns(results: Sequence[StepEstimate]) -> list[Column[StepEstimate]]:
    """Return the columns of the table of estimates, with one of exposed communication for each axis."""
    return [
        Column("topology", lambda r: r.topology),
        figures("NPUs", lambda r: r.ranks),
        figures("dp", lambda r: r.dp),
        figures("batch", lambda r: r.global_batch),
        figures("step", lambda r: r.step_time_s, format_time),
        part_column("compute", lambda of: of.compute_s),
        *exposed_columns(results, str, " exposed"),
        part_column("idle", lambda of: of.idle_s),
        figures("MFU", lambda r: r.mfu, "{:.3f}".format),
        figures("memory", lambda r: r.peak_memory_bytes, format_size, "a rank"),
        Column("engine", lambda r: r.engine),
        figures("timed", lambda r: r.timed_ranks, unit="ranks"),
        figures("tasks", lambda r: r.tasks),
        figures("wall", lambda r: r.wall_s, "{:.1f}".format, "(s)"),
    ]


def estimates_report(results: Sequence[StepEstimate]) -> str:
    """Return a table with a line for each topology and a column of exposed communication for each axis."""
    first = results[0]
    algorithms = [f"{r.topology}: {line}" for r in results for line in algorithm_lines(r)]
    algorithms += [f"{r.topology}: auto, {step_choice_text(r)}" for r in results if step_choice_text(r)]
    lines = [
        *dict.fromkeys(f"{r.model} by {r.plan}, software={r.software}" for r in results),
        f"{first.device}; placement {first.axes}: neighbouring NPUs are on the first axis",
        "",
        column_table(_estimate_columns(results), results),
        "",
        f"compute, exposed and idle: {MEANS_TOLD}",
        f"expected: {off_text(first)}",
    ]
    told = [*lines, *algorithms, *_packet_lines(results), ""]
    return "\n".join([*told, *merged_assumption_lines([(r.topology, r.assumptions) for r in results])])


def _packet_lines(results: Sequence[StepEstimate]) -> Iterator[str]:
    """Yield sentences on the times by packets of the step on each topology."""
    for r in results:
        for fact in packet_facts(r.step_time_s, r.packets, r.fabric_check):
            yield f"{r.topology}: {fact.label}{' ' * bool(fact.label)}{fact.text}"


def estimate_report(r: StepEstimate) -> str:
    """Return the figures of one estimate as text."""
    ranks = "all ranks" if r.timed_ranks == r.ranks else f"{r.timed_ranks} of {r.ranks} ranks, which stand for all"
    software = f"software={r.software}{'' if find_software(r.software).is_executed else ' (generated, not executed)'}"
    own = [] if r.stack == f"software={r.software}" else [f"with {r.stack}"]
    more = [
        Fact("placement", f"{r.axes}: neighbouring NPUs are on the first axis" if r.axes else None),
        Fact("timed", f"{r.tasks:,} tasks of {ranks} (engine: {r.engine}), in {r.wall_s:.1f} s"),
    ]
    head = [f"{r.model} on {r.ranks} {r.device} of {r.topology}, {r.plan}, {software}", *own, ""]
    return step_text(r, head, more, of_kind=True)
