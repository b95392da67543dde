"""The figures of a step, of a script or of a training run: as text, and as the key figures of pages."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from emu.cluster.pace.timeliness import SHARE_IN_TIME, PaceFigures
from emu.study.training.step.choices import StepChoice
from emu.study.training.step.rate import timed_dtypes_text
from emu.study.training.step.step import CostlyRequest, Step
from emu.trace.report.critical_path import PathPart
from emu.units import format_size, format_time
from launch.show.blocks import Fact, KeyFigure, fact_lines
from launch.show.step_parts import ComparedStep, axes_in_order
from launch.show.text.packet_lines import packet_facts
from launch.show.text.profile_report import measured_facts, profile_tables, read_facts
from launch.show.text.table import Column, assumption_lines, column_table, figures, spread_lines

if TYPE_CHECKING:  # they load torch
    from emu.study.planning.plan_row import PlanTable
    from emu.study.training.train import TrainingResult

_SHOWN = 8  # limit of the step times that are listed
_GROUPS = 4  # limit of the lines about other steps
_PARTS, _LEAST = 5, 0.005  # limit of the parts or ranks that are listed; the least share that is listed


def part_facts(step: Step) -> list[Fact]:
    """Return lines on how long each part of the step took, and on the times of other steps."""
    what, took = "whole script" if step.whole_script else "step", format_time(step.step_time_s)
    alike = ", as it has no training step" if step.whole_script else _equal_steps_text(step)
    whole = f"{took}{alike}; its parts are of rank {step.rank}, which ended last"
    bubble = format_time(step.bubble_s) if step.bubble_s else None
    straggling = straggling_text(step) if step.straggling_by_rank_s else None
    of_idle = [f"{bubble} bubble"] * bool(bubble) + [f"straggling {straggling}"] * bool(straggling)
    idle = _part_figure(step, "idle_s", "idle", f"of it {'; '.join(of_idle)}" if of_idle else "")
    exposed = f"{format_time(step.exposed_comm_s)}{_exposed_text(step)}; of {format_time(step.total_comm_s)} in all"
    return [
        Fact(what, whole, KeyFigure("step_time_s", what, took, step.step_time_s)),
        Fact(
            "  compute",
            f"{format_time(step.compute_s)}{_other_ranks_text(step)}",
            _part_figure(step, "compute_s", "computation"),
        ),
        Fact("    rests on", _basis_text(step)),
        Fact("    optimizer", None if step.optimizer_s is None else format_time(step.optimizer_s)),
        Fact("  exposed comm", exposed, _part_figure(step, "exposed_comm_s", "exposed communication")),
        Fact("  idle", format_time(step.idle_s), idle),
        Fact("    bubble", bubble and f"{bubble}, for other stages of the pipeline"),
        Fact("    straggling", straggling),
        *_other_step_facts(step),
    ]


def _part_figure(step: Step, name: str, label: str, note: str = "") -> KeyFigure:
    """Return the key figure of a part of the step, with its share of the step as the default note."""
    time_s: float = getattr(step, name)
    share = f"{100 * time_s / (step.step_time_s or 1.0):.1f} % of the step"
    return KeyFigure(name, label, format_time(time_s), time_s, note or share)


def expected_text(step: Step) -> str:
    """Return a text with the expected error of the step time, and the resulting range."""
    return f"{_range_text(step)}: {off_text(step)}" if has_error(step) else off_text(step)


def _range_text(step: Step) -> str:
    """Return the least and the largest time that the step takes by its expected error, as text."""
    low, high = map(format_time, step.expected_s)
    return f"{low} to {high}"


def has_error(of: "Step | PlanTable") -> bool:
    """Return whether an error of published runs holds for a step, or for the steps of plans."""
    return of.either_way is not None


def off_text(of: "Step | PlanTable") -> str:
    """Return a text with the expected error of a step, or of the steps of plans, and its basis."""
    if not has_error(of):
        why = of.beyond_runs or f"no published run of this kind on {of.device} is known"
        return f"{why}, so that nobody knows how far this is off"
    return f"{of.either_way:.1%} either way: {of.either_way_by}"


def _expected_figure(step: Step) -> KeyFigure | None:
    """Return the key figure of the range in which the step is expected; None: nobody knows it."""
    if step.either_way is None:
        return None
    low, high = step.expected_s
    return KeyFigure("expected_s", "expected", _range_text(step), f"{low} {high}", f"{step.either_way:.1%} either way")


def rate_facts(step: ComparedStep) -> list[Fact]:
    """Return facts on tokens per second, MFU and HFU; empty if the step has no model."""
    if step.tokens_per_s is None or step.mfu is None or step.hfu is None:
        return []
    tokens, mfu, hfu = f"{step.tokens_per_s:,.0f}", step.mfu, step.hfu
    return [
        Fact("tokens/s", tokens, KeyFigure("tokens_per_s", "tokens/s", tokens, step.tokens_per_s)),
        Fact("MFU", f"{mfu:.3g}; HFU {hfu:.3g}", KeyFigure("mfu", "MFU", f"{mfu:.3f}", mfu, f"HFU {hfu:.3f}")),
    ]


def foot_facts(step: Step) -> list[Fact]:
    """Return the figures at the foot of a report: critical path, busiest links, memory (a profile has none) and algorithms."""
    peak, most = step.peak_memory_bytes, "the rank that holds most"
    held = KeyFigure("peak_memory_bytes", "peak memory", format_size(peak), peak, f"of {most}")
    return [
        Fact("critical path", path_text(step)),
        Fact("busiest links", _links(step)),
        *packet_facts(step.step_time_s, step.packets, step.fabric_check),
        *([] if step.read is not None else [Fact("peak memory", f"{format_size(peak)} on {most}{_memory_text(step)}", held)]),
        *(Fact("" if number else "algorithms", line) for number, line in enumerate(algorithm_lines(step))),
        Fact("  chosen", None if step.chosen is None else "; ".join(f"{op} by {said}" for op, said in step.chosen.items())),
        Fact("  auto", step_choice_text(step) or None),
    ]


def algorithm_lines(step: Step) -> list[str]:
    """Return what served each operation, a text for each axis such as `dp: all_reduce ring`; one axis is not named."""
    by_axis = step.algorithms_by_axis
    if len(by_axis) < 2:
        return [_served_text(step.algorithms)]
    return [f"{axis or 'other'}: {_served_text(by_axis[axis])}" for axis in axes_in_order(by_axis)]


def _served_text(algorithms: Mapping[str, str]) -> str:
    """Return the algorithm of each operation as one text."""
    return ", ".join(f"{operation} {name}" for operation, name in algorithms.items()) or "none"


def facts_of(step: Step) -> list[Fact]:
    """Return all facts of a step: parts, rate, critical path, links, memory, algorithms and ranks."""
    ranks = Fact("NPUs", None, KeyFigure("ranks", "NPUs", f"{step.ranks:,}", step.ranks, step.device))
    expected = Fact("expected", None, _expected_figure(step))
    return [*part_facts(step), expected, *measured_facts(step), *rate_facts(step), *foot_facts(step), ranks]


def loss_facts(trained: "TrainingResult") -> list[Fact]:
    """Return the last loss of a training run, and the largest difference of its gradients from those of one process."""
    last, error, one = trained.loss[-1], f"{trained.gradient_error:.1e}", f"one process: {trained.reference_loss[-1]:.6f}"
    of_gradients = KeyFigure("gradient_error", "gradient error", error, trained.gradient_error, "against one process")
    return [
        Fact("loss", None, KeyFigure("loss", "last loss", f"{last:.6f}", last, one)),
        Fact("gradients", f"within {error} of one process's, from the same weights", of_gradients),
    ]


def step_text(step: Step, head: Sequence[str], more: Sequence[Fact] = (), *, of_kind: bool = False) -> str:
    """Return the figures of a step as text.

    Args:
        step: The step.
        head: The lines before its parts.
        more: Further figures, which come before the critical path.
        of_kind: Whether to say so where no run of the kind is known, by which one could tell how far the step is off.
    """
    is_expected = of_kind or step.either_way is not None or step.beyond_runs is not None
    lines = [
        *(*pacing_warning(step.paced), *head, *fact_lines(part_facts(step))),
        *fact_lines([*measured_facts(step), Fact("expected", expected_text(step) if is_expected else None)]),
        *(*spread_lines("the step", step.spread), *fact_lines(rate_facts(step)), *pacing_lines(step.paced), *fact_lines(more)),
        *(
            *_programs(step),
            *profile_tables(step),
            *fact_lines(foot_facts(step)),
            "",
            *assumption_lines(step.assumptions),
        ),
    ]
    return "\n".join(lines)


def _equal_steps_text(step: Step) -> str:
    """Return a text that relates the step time to those of equal steps; "" if there is only one."""
    times = [step.step_times_s[number - 1] for number in step.step_groups[0]]
    if len(times) == 1:
        return ""
    least, most = format_time(min(times)), format_time(max(times))
    if least == most:
        return f", as each of {len(times)} equal steps"
    which = "shorter" if len(times) == 2 else "lower median" if len(times) % 2 == 0 else "median"
    return f", the {which} of {len(times)} steps of equal work ({least} to {most})"


def _other_step_facts(step: Step) -> list[Fact]:
    """Return a line for each group of steps of the job that have other events than the first group, with their times."""
    groups = [[step.step_times_s[number - 1] for number in group] for group in step.step_groups[1:]]
    if len(groups) > _GROUPS:
        groups[_GROUPS - 1 :] = [[time_s for times in groups[_GROUPS - 1 :] for time_s in times]]
    return [Fact(f"{len(times)} other step{'s' * (len(times) > 1)}", _first_times(times)) for times in groups]


def _first_times(times_s: Sequence[float]) -> str:
    """Return the first eight times as text, and how many more there are."""
    more = f" and {len(times_s) - _SHOWN} more" if len(times_s) > _SHOWN else ""
    return ", ".join(map(format_time, times_s[:_SHOWN])) + more


def path_text(step: Step) -> str:
    """Return the parts of the critical path in words, each with its share of the step."""
    shares = [(part.time_s / step.step_time_s, part) for part in step.critical_path]
    told = [f"{_percent(share)} {path_part_text(part)}" for share, part in shares[:_PARTS] if share >= _LEAST]
    rest = sum(share for share, _ in shares[len(told) :])
    return ", ".join([*told, *([f"{_percent(rest)} other"] if rest >= _LEAST else [])]) or "none"


def _memory_text(step: Step) -> str:
    """Return the peak memory of each part of memory, such as weights, as text."""
    parts = [f"{name.replace('_', ' ')} {format_size(size)}" for name, size in step.memory_by_part_bytes.items() if size]
    return f" ({', '.join(parts)})" if parts else ""


def _links(step: Step) -> str:
    """Return a text on the busiest links, each with the share of the time in which it is busy."""
    return ", ".join(f"{link.src} to {link.dst} {_percent(link.busy)}" for link in step.busiest_links) or "none"


def _percent(share: float) -> str:
    """Return a share in whole percent."""
    return f"{100 * share:.0f} %"


def path_part_text(part: PathPart) -> str:
    """Return a part of the critical path in words, such as `tp all_reduce in stage 1`."""
    what = f"{part.axis} {part.what}" if part.axis else part.what
    stage = "" if part.stage is None else f" in stage {part.stage}"
    return what + stage + ("" if part.waits_for_rank is None else f" that waits for rank {part.waits_for_rank}")


def _basis_text(step: Step) -> str | None:
    """Return which share of the compute time rests on measured kernels, and which on the model; None: none were measured."""
    of = step.compute_basis
    if of is None:
        return None
    told = {
        "measured kernels": of.measured,
        "the device's model, corrected by measured kernels of other sizes,": of.near,
        "the device's model alone": of.model,
    }
    return ", ".join(f"{what} for {share:.1%} of the time" for what, share in told.items() if share)


def _other_ranks_text(step: Step) -> str:
    """Return a text on the computing time of other ranks, and on computation for other steps."""
    least, most = format_time(step.compute_least_s), format_time(step.compute_most_s)
    others = f", of which {format_time(step.other_compute_s)} belong to another step" if step.other_compute_s else ""
    early = f", and {format_time(step.early_compute_s)} while the last rank was still in the step before"
    all_of_them = f"{least} on every rank" if least == most else f"{least} to {most} on the ranks"
    return f"{others}{early if step.early_compute_s else ''}; {all_of_them}"


def straggling_text(step: Step) -> str:
    """Return a text on how long the rank waits for later ranks of its stage, such as `1.2 ms, for rank 5 (1 ms)`."""
    longest = sorted(step.straggling_by_rank_s.items(), key=lambda each: (-each[1], each[0]))
    each = [f"rank {rank} ({format_time(time_s)})" for rank, time_s in longest[:_PARTS]]
    more = [f"{len(longest) - _PARTS} more ranks"] if len(longest) > _PARTS else []
    return f"{format_time(sum(step.straggling_by_rank_s.values()))}, for {', '.join([*each, *more])}"


def _exposed_text(step: Step) -> str:
    """Return the exposed communication of each axis in words."""
    parts = [f"{axis or 'other'} {format_time(s)}" for axis, s in step.exposed_comm_by_axis_s.items() if s]
    return f" ({', '.join(parts)})" if parts else ""


def step_report(step: Step) -> str:
    """Return the figures of a step of a script on one topology as text."""
    timed = f"timed {timed_dtypes_text(step.dtype, step.products, step.messages_in)}"
    times = fact_lines([*read_facts(step), Fact("steps", None if step.whole_script else _first_times(step.step_times_s))])
    return step_text(step, [f"{step.ranks} {step.device} on {step.topology}", timed, "", *times])


def _or_dash(show: Callable[[float], str]) -> Callable[[float | None], str]:
    """Return a function that formats a number, and returns "-" for None."""
    return lambda value: "-" if value is None else show(value)


def costliest_columns(step: Step) -> list[Column[CostlyRequest]]:
    """Return the columns of the costliest requests; what a request takes alone is a time of the fluid fabric, and says so."""
    alone = "(fluid)" if step.packets is not None else ""
    return [
        Column("line", lambda each: each.line),
        Column("operation", lambda each: each.operation),
        Column("axis", lambda each: each.axis or "-"),
        figures("ranks", lambda each: each.ranks),
        figures("times", lambda each: each.times),
        figures("size", lambda each: each.size_bytes, format_size),
        figures("in all", lambda each: each.time_s, format_time),
        Column("algorithm", lambda each: each.algorithm or "-"),
        figures("alone", lambda each: each.alone_s, _or_dash(format_time), alone),
        figures("busbw", lambda each: each.busbw_Bps, _or_dash(lambda rate: f"{rate / 1e9:.3f}"), alone),
        figures("of_bound", lambda each: each.of_bound, _or_dash("{:.3f}".format), alone),
        Column("next best", lambda each: each.next_algorithm or "-"),
        figures("alone", lambda each: each.next_s, _or_dash(format_time), alone),
    ]


def _programs(step: Step) -> list[str]:
    """Return a table of the costliest requests by program line, with hints."""
    if not step.costliest:
        return []
    hints = fact_lines(Fact("hint", hint) for hint in step.hints or ())
    return ["", column_table(costliest_columns(step), step.costliest), *([""] if hints else []), *hints, ""]


def pacing_warning(paced: PaceFigures | None) -> list[str]:
    """Return a warning for a report if too few messages were in time; else an empty list."""
    if paced is None or paced.wall_in_time_share >= SHARE_IN_TIME:
        return []
    share = f"{100 * paced.wall_in_time_share:.3g} % of {paced.wall_messages:,} messages in time"
    worst = f"the worst {format_time(paced.wall_worst_late_s)} late"
    return [f"This host has not kept up: {share}, {worst}; take a larger --pace, or a host that does nothing else", ""]


def pacing_lines(paced: PaceFigures | None) -> list[str]:
    """Return the lines of a report about pacing; none where the run was not paced."""
    if paced is None:
        return []
    share = f"{100 * paced.wall_in_time_share:.4g} % of {paced.wall_messages:,} messages in time"
    worst = f"the worst {format_time(max(0.0, paced.wall_worst_late_s))} late"
    how = f", computation {format_time(paced.wall_compute_late_s)} late in all" if paced.computes else ", computation is not"
    met = ", ".join(paced.wall_met) or "none was met, as the ranks had ended before"
    return fact_lines(
        [Fact("paced", f"x {paced.pace:g}: {share}, {worst}{how}"), Fact("faults", met if paced.faults else None)]
    )


def step_choice_text(step: Step) -> str:
    """Return the changes and both step times; "" where no algorithm was chosen for the step.

    An example: `dp all_gather: ring instead of direct; 7.7 s instead of 11.9 s`.
    """
    if step.auto is None or not step.auto.free:
        return ""
    if not step.auto.changed:
        return "for the whole step, no choice is better than the fastest algorithm of each request"
    times = f"{format_time(step.step_time_s)} instead of {format_time(step.auto.alone_step_time_s)}"
    return f"{changes_text(step.auto)}; {times} with the fastest algorithm of each request"


def changes_text(auto: StepChoice) -> str:
    """Return the changes of algorithms as text, such as `dp all_gather: ring instead of direct`.

    Sizes are named where an operation of an axis changes more than once.
    """
    times = Counter((each.axis, each.operation) for each in auto.changed)
    told = []
    for each in auto.changed:
        sizes = " to ".join(dict.fromkeys(map(format_size, (each.least_bytes, each.most_bytes))))
        of = f" of {sizes}" if times[each.axis, each.operation] > 1 else ""
        told.append(f"{each.axis} {each.operation}{of}: {each.algorithm} instead of {each.instead_of}")
    return "; ".join(told)


def train_report(r: "TrainingResult") -> str:
    """Return the losses and times of a training run on one topology as text."""
    rows = zip(r.loss, r.reference_loss, r.step_times_s, strict=True)
    head = [
        *(f"{r.model} on {r.ranks} {r.device} of {r.topology}, {r.plan}", ""),
        f"{'step':>6}  {'loss':>10}  {'one process':>11}  {'virtual time':>12}",
        *(f"{i:>6}  {loss:>10.6f}  {one:>11.6f}  {format_time(t):>12}" for i, (loss, one, t) in enumerate(rows, 1)),
        *("", *fact_lines(loss_facts(r))),
    ]
    wall = f"{r.wall_run_s:.1f} s run, {r.wall_reference_s:.1f} s one process, {r.wall_fabric_s:.1f} s timing"
    return step_text(r, head, [Fact("wall", wall)])
