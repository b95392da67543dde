"""The key figures and the tables of a step's HTML page."""

from collections.abc import Sequence

from emu.study.training.estimate import StepEstimate
from emu.study.training.step.rate import timed_told
from emu.study.training.step.step import Step, TimedTrace
from emu.study.training.train import TrainingResult
from emu.trace.report.link_use import busiest
from emu.units import format_bandwidth, format_size, format_time
from launch.show.html.page import Cell, KeyFigure, Table, column_table_of, table_of
from launch.show.step_parts import exposed_axes, exposed_column
from launch.show.text.step_report import step_choice_text, straggling_text
from launch.show.text.table import Column, figures, spread_lines
from launch.show.text.topology_facts import link_classes

_LINKS = 20  # links in the table of the busiest


def figures_of(step: Step) -> tuple[KeyFigure, ...]:
    """Return the key figures of one step, the step time first."""
    whole = "whole script" if step.whole else "step"
    return (
        KeyFigure("step_time_s", whole, format_time(step.step_time_s), step.step_time_s),
        *_rates(step),
        _part("compute_s", "computation", step.compute_s, step),
        _part("exposed_comm_s", "exposed communication", step.exposed_comm_s, step),
        _part("idle_s", "idle", step.idle_s, step, _idle_note(step)),
        *_memory(step),
        *_losses(step),
    )


def _idle_note(step: Step) -> str:
    """Return the parts of the idle time in words; "" where there is none."""
    bubble = [f"{format_time(step.bubble_s)} bubble"] if step.bubble_s else []
    straggling = [f"straggling {straggling_text(step)}"] if step.straggling_by_rank_s else []
    return f"of it {'; '.join([*bubble, *straggling])}" if bubble or straggling else ""


def _part(name: str, label: str, time_s: float, step: Step, note: str = "") -> KeyFigure:
    """Return the key figure of a part of the step; its note is the share of the step unless another note is given."""
    return KeyFigure(name, label, format_time(time_s), time_s, note or _percent(time_s / (step.step_time_s or 1.0)))


def _rates(step: Step) -> list[KeyFigure]:
    """Return the key figures MFU and tokens per second; none where the step has no model."""
    if step.tokens_per_s is None or step.mfu is None or step.hfu is None:
        return []
    hfu = f"HFU {step.hfu:.3f}"
    return [
        KeyFigure("mfu", "MFU", f"{step.mfu:.3f}", step.mfu, hfu),
        KeyFigure("tokens_per_s", "tokens/s", f"{step.tokens_per_s:,.0f}", step.tokens_per_s),
    ]


def _memory(step: Step) -> list[KeyFigure]:
    """Return the key figures of peak memory and of the number of NPUs."""
    peak = step.peak_memory_bytes
    return [
        KeyFigure("peak_memory_bytes", "peak memory", format_size(peak), peak, "of the rank that holds most"),
        KeyFigure("ranks", "NPUs", f"{step.ranks:,}", step.ranks, step.device),
    ]


def _losses(step: Step) -> list[KeyFigure]:
    """Return the key figures of the last loss and of the gradients; none where nothing was trained."""
    if not isinstance(step, TrainingResult):
        return []
    last, note = step.loss[-1], f"one process: {step.reference_loss[-1]:.6f}"
    return [
        KeyFigure("loss", "last loss", f"{last:.6f}", last, note),
        KeyFigure("gradient_error", "gradient error", f"{step.gradient_error:.1e}", step.gradient_error, "against one process"),
    ]


def comparison_table(steps: Sequence[Step]) -> Table:
    """Return a table of several steps, with a row for each topology."""
    columns: list[Column[Step]] = [
        Column("topology", lambda step: step.topology),
        figures("NPUs", lambda step: step.ranks),
        figures("step", lambda step: step.step_time_s, format_time),
        figures("computation", lambda step: step.compute_s, format_time),
        *(exposed_column(axis, f"{axis or 'other'} exposed") for axis in exposed_axes(steps)),
        figures("bubble", lambda step: step.bubble_s, format_time),
        figures("idle", lambda step: step.idle_s, format_time),
        *([figures("MFU", lambda step: step.mfu, "{:.3f}".format)] if all(step.mfu is not None for step in steps) else []),
        figures("memory", lambda step: step.peak_memory_bytes, format_size),
    ]
    return column_table_of(columns, steps)


def steps_table(step: Step) -> Table:
    """Return a table of the time of every step of a run, with its loss where something was trained."""
    losses = {"loss": step.loss, "loss of one process": step.reference_loss} if isinstance(step, TrainingResult) else {}
    rows = []
    for i, time_s in enumerate(step.step_times_s):
        row = [Cell(str(i + 1), i + 1), Cell(format_time(time_s), time_s)]
        rows.append([*row, *(Cell(f"{loss[i]:.6f}", loss[i]) for loss in losses.values())])
    return table_of(("step", "virtual time", *losses), rows)


def links_table(timed: TimedTrace) -> Table:
    """Return a table of the 20 busiest links."""
    links, tiers = timed.topology.links, {each.dimension: each.title for each in link_classes(timed.topology)}
    rows = []
    for each in busiest(timed.shares, timed.topology, _LINKS):
        rate, tier = float(links.bandwidth_Bps[each.link]), tiers[int(links.dimension[each.link])]
        number, speed = Cell(str(each.link), each.link), Cell(format_bandwidth(rate), rate)
        rows.append((number, each.src, each.dst, tier, speed, _share(each.busy)))
    return table_of(("link", "from", "to", "tier", "bandwidth", "busy"), rows)


def requests_table(timed: TimedTrace) -> Table:
    """Return a table of the algorithm that served each operation, number of ranks and size, and how many requests that were."""
    asked: dict[tuple[str, int, str, str], list[int]] = {}
    for request, size, by in timed.replayed.services:
        key = (request.operation, len(request.ranks), format_size(size), str(by))
        asked.setdefault(key, []).append(size)
    rows = [
        (operation, Cell(str(ranks), ranks), Cell(told, min(sizes)), by, Cell(str(len(sizes)), len(sizes)))
        for (operation, ranks, told, by), sizes in sorted(asked.items(), key=lambda each: (*each[0][:2], min(each[1])))
    ]
    return table_of(("operation", "ranks", "size", "algorithm", "different requests"), rows)


def settings_of(step: Step) -> list[str]:
    """Return the settings of a step (topology, device, model, plan, stack), a sentence each."""
    timed = timed_told(step.dtype, step.products, step.messages_in)
    told = [f"topology: {step.topology}", f"{step.ranks} ranks; device {step.device}", f"timed {timed}"]
    if isinstance(step, StepEstimate | TrainingResult):
        told.append(f"model {step.model}; plan {step.plan}")
    if isinstance(step, StepEstimate):
        told += [
            f"global batch {step.global_batch}; stack {step.stack}",
            f"placement {step.axes}: neighbouring NPUs are on the first axis",
        ]
    told += [f"auto: {step_choice_text(step)}"] if step.auto is not None else []
    return [*told, *spread_lines("the step", step.spread)]


def _percent(share: float) -> str:
    """Return a share in words, such as `12.3 % of the step`."""
    return f"{100 * share:.1f} % of the step"


def _share(share: float) -> Cell:
    """Return a cell with a share in percent."""
    return Cell(f"{100 * share:.1f} %", share)
