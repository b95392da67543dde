"""The figures of a step, of a script or of a training run as text; other reports take single groups of lines from here."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from emu.cluster.pace.timeliness import SHARE_IN_TIME, PaceFigures
from emu.study.training.step.choices import StepChoice
from emu.study.training.step.rate import timed_told
from emu.study.training.step.step import CostlyRequest, Step
from emu.trace.report.critical_path import PathPart
from emu.units import format_size, format_time
from launch.show.text.table import Column, assumption_lines, column_table, figures, spread_lines

if TYPE_CHECKING:  # it loads torch
    from emu.study.training.train import TrainingResult

_SHOWN = 8  # step times that are listed
_GROUPS = 4  # most lines of other steps
_PARTS, _LEAST = 5, 0.005  # parts or ranks that are listed; the least share that is


def step_lines(step: Step) -> list[str]:
    """Return lines that say where the time of the step, or of the whole script, went."""
    what = (
        f"step            {{}}{_equal_steps_text(step)}"
        if not step.whole_script
        else "whole script    {}, as it has no training step"
    )
    return [
        f"{what.format(format_time(step.step_time_s))}; its parts are of rank {step.rank}, which ended last",
        f"  compute       {format_time(step.compute_s)}{_other_ranks_text(step)}",
        *([] if step.optimizer_s is None else [f"    optimizer   {format_time(step.optimizer_s)}"]),
        f"  exposed comm  {format_time(step.exposed_comm_s)}{_by_axis(step)}; of {format_time(step.total_comm_s)} in all",
        f"  idle          {format_time(step.idle_s)}",
        *([f"    bubble      {format_time(step.bubble_s)}, for other stages of the pipeline"] if step.bubble_s else []),
        *([f"    straggling  {straggling_text(step)}"] if step.straggling_by_rank_s else []),
        *_other_steps(step),
    ]


def read_lines(step: Step) -> list[str]:
    """Return lines that say what was read of a profile; none where the step is of Emu's own trace."""
    heads = ["read", *[""] * len(step.read or ())]
    return [f"{head:<16}{line}" for head, line in zip(heads, step.read or (), strict=False)]


def measured_lines(step: Step) -> list[str]:
    """Return the line of the step's measured time, and how far the replay is from it; none where nobody measured it."""
    measured_s = step.measured_step_s
    if measured_s is None:
        return []
    off = step.step_time_s / measured_s - 1
    return [f"measured        {format_time(measured_s)}; the replay takes {abs(off):.1%} {'more' if off > 0 else 'less'}"]


def expected_told(step: Step) -> str:
    """Return how far the step may be off, in words, and between which times it is then."""
    off = off_told(step.device, step.either_way, step.either_way_by)
    if step.either_way is None:
        return off
    low, high = map(format_time, step.expected_s)
    return f"{low} to {high}: {off}"


def off_told(device: str, either_way: float | None, by: str | None) -> str:
    """Return how far steps of a kind are off on a device, in words, and the runs that say so."""
    if either_way is None:
        return f"no published run of this kind on a {device} is known, so that nobody knows how far this is off"
    return f"{either_way:.1%} either way: {by}"


def expected_lines(step: Step) -> list[str]:
    """Return the line of `expected_told`; none where no run of the kind is known."""
    return [] if step.either_way is None else [f"expected        {expected_told(step)}"]


def rate_lines(step: Step) -> list[str]:
    """Return the lines of tokens per second, MFU and HFU; none where the step has no model."""
    if step.tokens_per_s is None:
        return []
    return [f"tokens/s        {step.tokens_per_s:,.0f}", f"MFU             {step.mfu:.3g}; HFU {step.hfu:.3g}"]


def foot_lines(step: Step) -> list[str]:
    """Return the lines of the critical path, busiest links, memory, algorithms and assumptions."""
    return [
        f"critical path   {path_text(step)}",
        f"busiest links   {_links(step)}",
        *_memory_lines(step),
        f"algorithms      {', '.join(f'{op} {name}' for op, name in step.algorithms.items()) or 'none'}",
        *([f"  auto          {step_choice_text(step)}"] if step.auto is not None else []),
        "",
        *assumption_lines(step.assumptions),
    ]


def _memory_lines(step: Step) -> list[str]:
    """Return the line of the memory; none of a profile, which does not have it."""
    held = f"{format_size(step.peak_memory_bytes)} on the rank that holds most{_by_part(step)}"
    return [] if step.read is not None else [f"peak memory     {held}"]


def _equal_steps_text(step: Step) -> str:
    """Return how the step time relates to other equal steps, in words; "" where there is one step."""
    times = [step.step_times_s[number - 1] for number in step.step_groups[0]]
    if len(times) == 1:
        return ""
    least, most = format_time(min(times)), format_time(max(times))
    if least == most:
        return f", as each of {len(times)} equal steps"
    return f", the median of {len(times)} equal steps ({least} to {most})"


def _other_steps(step: Step) -> list[str]:
    """Return a line for each group of steps that do other work; from the fourth group on they share a line."""
    groups = [[step.step_times_s[number - 1] for number in group] for group in step.step_groups[1:]]
    if len(groups) > _GROUPS:
        groups[_GROUPS - 1 :] = [[time_s for times in groups[_GROUPS - 1 :] for time_s in times]]
    return [f"{len(times)} other step{'s' * (len(times) > 1)}".ljust(16) + _first_times(times) for times in groups]


def _first_times(times_s: Sequence[float]) -> str:
    """Return the first eight times in words, and how many more there are."""
    more = f" and {len(times_s) - _SHOWN} more" if len(times_s) > _SHOWN else ""
    return ", ".join(map(format_time, times_s[:_SHOWN])) + more


def path_text(step: Step) -> str:
    """Return the parts of the critical path in words, each with its share of the step."""
    shares = [(part.time_s / step.step_time_s, part) for part in step.critical_path]
    told = [f"{_percent(share)} {path_part_text(part)}" for share, part in shares[:_PARTS] if share >= _LEAST]
    rest = sum(share for share, _ in shares[len(told) :])
    return ", ".join([*told, *([f"{_percent(rest)} other"] if rest >= _LEAST else [])]) or "none"


def _by_part(step: Step) -> str:
    """Return the parts of the peak memory in words."""
    parts = [f"{name.replace('_', ' ')} {format_size(size)}" for name, size in step.memory_by_part_bytes.items() if size]
    return f" ({', '.join(parts)})" if parts else ""


def _links(step: Step) -> str:
    """Return the busiest links in words."""
    return ", ".join(f"{link.src} to {link.dst} {_percent(link.busy)}" for link in step.busiest_links) or "none"


def _percent(share: float) -> str:
    """Return a share in whole percent."""
    return f"{100 * share:.0f} %"


def path_part_text(part: PathPart) -> str:
    """Return a part of the critical path in words, such as `tp all_reduce in stage 1`."""
    what = f"{part.axis} {part.what}" if part.axis else part.what
    stage = "" if part.stage is None else f" in stage {part.stage}"
    return what + stage + ("" if part.waits_for_rank is None else f" that waits for rank {part.waits_for_rank}")


def _other_ranks_text(step: Step) -> str:
    """Return how long other ranks compute, and how much of the computation is of other steps, in words."""
    least, most = format_time(step.compute_least_s), format_time(step.compute_most_s)
    others = f", of which {format_time(step.other_compute_s)} belong to another step" if step.other_compute_s else ""
    early = f", and {format_time(step.early_compute_s)} while the last rank was still in the step before"
    all_of_them = f"{least} on every rank" if least == most else f"{least} to {most} on the ranks"
    return f"{others}{early if step.early_compute_s else ''}; {all_of_them}"


def straggling_text(step: Step) -> str:
    """Return how long the rank waits for others of its stage, such as `1.2 ms, for rank 5 (1 ms), rank 3 (0.2 ms)`."""
    longest = sorted(step.straggling_by_rank_s.items(), key=lambda each: (-each[1], each[0]))
    each = [f"rank {rank} ({format_time(time_s)})" for rank, time_s in longest[:_PARTS]]
    more = [f"{len(longest) - _PARTS} more ranks"] if len(longest) > _PARTS else []
    return f"{format_time(sum(step.straggling_by_rank_s.values()))}, for {', '.join([*each, *more])}"


def _by_axis(step: Step) -> str:
    """Return the exposed communication of each axis in words."""
    parts = [f"{axis or 'other'} {format_time(s)}" for axis, s in step.exposed_comm_by_axis_s.items() if s]
    return f" ({', '.join(parts)})" if parts else ""


def step_report(step: Step) -> str:
    """Return the figures of a step of a script on one topology as text."""
    timed = f"timed {timed_told(step.dtype, step.products, step.messages_in)}"
    head = [*pacing_warning(step.paced), f"{step.ranks} {step.device} on {step.topology}", timed, ""]
    head += read_lines(step)
    if not step.whole_script:
        head.append(f"steps           {_first_times(step.step_times_s)}")
    timed_lines = [
        *step_lines(step),
        *measured_lines(step),
        *expected_lines(step),
        *spread_lines("the step", step.spread),
        *rate_lines(step),
    ]
    return "\n".join([*head, *timed_lines, *pacing_lines(step.paced), *_programs(step), *foot_lines(step)])


def _or_dash(show: Callable[[float], str]) -> Callable[[float | None], str]:
    """Return the function that shows a figure, and "-" for one that is not known."""
    return lambda value: "-" if value is None else show(value)


COSTLIEST: Sequence[Column[CostlyRequest]] = (
    Column("line", lambda each: each.line),
    Column("operation", lambda each: each.operation),
    Column("axis", lambda each: each.axis or "-"),
    figures("ranks", lambda each: each.ranks),
    figures("times", lambda each: each.times),
    figures("size", lambda each: each.size_bytes, format_size),
    figures("in all", lambda each: each.time_s, format_time),
    Column("algorithm", lambda each: each.algorithm or "-"),
    figures("alone", lambda each: each.alone_s, _or_dash(format_time)),
    figures("busbw", lambda each: each.busbw_Bps, _or_dash(lambda rate: f"{rate / 1e9:.3f}")),
    figures("of_bound", lambda each: each.of_bound, _or_dash("{:.3f}".format)),
    Column("next best", lambda each: each.next_algorithm or "-"),
    figures("alone", lambda each: each.next_s, _or_dash(format_time)),
)


def _programs(step: Step) -> list[str]:
    """Return a table of the requests that take most time, by line of the program, and hints about them."""
    if not step.costliest:
        return []
    hints = [f"hint            {hint}" for hint in step.hints or ()]
    return ["", column_table(COSTLIEST, step.costliest), *([""] if hints else []), *hints, ""]


def pacing_warning(paced: PaceFigures | None) -> list[str]:
    """Return the first lines of a report where too few messages were in time; none else."""
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
    return [f"paced           x {paced.pace:g}: {share}, {worst}{how}", *[f"faults          {met}"] * bool(paced.faults)]


def step_choice_text(step: Step) -> str:
    """Return the changes and both step times; "" where algorithms were not chosen for the step.

    An example: `dp all_gather: ring instead of direct; 7.7 s instead of 11.9 s`.
    """
    if step.auto is None:
        return ""
    if not step.auto.changed:
        return "for the whole step, no choice is better than the fastest algorithm of each request"
    times = f"{format_time(step.step_time_s)} instead of {format_time(step.auto.alone_step_time_s)}"
    return f"{changes_told(step.auto)}; {times} with the fastest algorithm of each request"


def changes_told(auto: StepChoice) -> str:
    """Return what was changed alone, such as `dp all_gather: ring instead of direct`.

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
    lines = [
        *pacing_warning(r.paced),
        f"{r.model} on {r.ranks} {r.device} of {r.topology}, {r.plan}",
        "",
        f"{'step':>6}  {'loss':>10}  {'one process':>11}  {'virtual time':>12}",
        *(f"{i:>6}  {loss:>10.6f}  {one:>11.6f}  {format_time(t):>12}" for i, (loss, one, t) in enumerate(rows, 1)),
        "",
        f"gradients       within {r.gradient_error:.1e} of one process's, from the same weights",
        *step_lines(r),
        *expected_lines(r),
        *rate_lines(r),
        *pacing_lines(r.paced),
        f"wall            {r.wall_run_s:.1f} s run, {r.wall_reference_s:.1f} s one process, {r.wall_fabric_s:.1f} s timing",
        *foot_lines(r),
    ]
    return "\n".join(lines)
