"""The HTML page of a training step on one or several topologies, and the sections that other pages take from it."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from operator import getitem, itemgetter

from matplotlib.colors import to_hex, to_rgb

from emu.study.training.estimate import StepEstimate
from emu.study.training.step.rate import timed_dtypes_text
from emu.study.training.step.step import Step, TimedTrace
from emu.study.training.train import TrainingResult
from emu.trace.report.activity import BusyLink, busiest
from emu.trace.report.critical_path import COMPUTATION
from emu.units import format_bandwidth, format_size, format_time
from launch.show.blocks import Block, ColouredPart, KeyFigure, Page, Section, key_figures, sentences, table_block
from launch.show.html.link_map import link_map
from launch.show.html.pipeline import pipeline
from launch.show.step_parts import COMPUTE, IDLE, MEANS_TOLD, PartTimes, colours_of, comparison_columns, means_of, step_parts
from launch.show.text.profile_report import COLLECTIVES, KERNELS
from launch.show.text.step_report import (
    costliest_columns,
    facts_of,
    loss_facts,
    path_part_text,
    path_text,
    step_choice_text,
)
from launch.show.text.table import Column, figures, spread_lines
from launch.show.text.topology_facts import link_classes

_LINKS = 20  # links in the table of the busiest


def figures_of(step: Step) -> list[KeyFigure]:
    """Return the key figures of one step, the step time first."""
    return key_figures([*facts_of(step), *(loss_facts(step) if isinstance(step, TrainingResult) else [])])


def steps_table(step: Step) -> Block:
    """Return a table of the time of every step of a run, with its loss where something was trained."""
    losses = {"loss": step.loss, "loss of one process": step.reference_loss} if isinstance(step, TrainingResult) else {}
    columns: list[Column[int]] = [
        figures("step", lambda i: i + 1),
        figures("virtual time", step.step_times_s.__getitem__, format_time),
        *(figures(name, partial(getitem, loss), "{:.6f}".format) for name, loss in losses.items()),
    ]
    return table_block(columns, range(len(step.step_times_s)))


def links_table(timed: TimedTrace) -> Block:
    """Return a table of the 20 busiest links."""
    links, tiers = timed.topology.links, {each.dimension: each.title for each in link_classes(timed.topology)}
    columns: list[Column[BusyLink]] = [
        figures("link", lambda each: each.link),
        Column("from", lambda each: each.src),
        Column("to", lambda each: each.dst),
        Column("tier", lambda each: tiers[int(links.dimension[each.link])]),
        figures("bandwidth", lambda each: float(links.bandwidth_Bps[each.link]), format_bandwidth),
        figures("busy", lambda each: each.busy, lambda share: f"{100 * share:.1f} %"),
    ]
    return table_block(columns, busiest(timed.link_busy, timed.topology, _LINKS))


def requests_table(timed: TimedTrace) -> Block:
    """Return a table of the algorithm and the number of requests for each operation, number of ranks and size."""
    asked: dict[tuple[str, int, str, str], list[int]] = {}
    for request, size, by in timed.replayed.services:
        key = (request.operation, len(request.ranks), format_size(size), str(by))
        asked.setdefault(key, []).append(size)
    rows = [
        (operation, ranks, min(sizes), by, len(sizes))
        for (operation, ranks, _, by), sizes in sorted(asked.items(), key=lambda each: (*each[0][:2], min(each[1])))
    ]
    columns: list[Column[tuple[str, int, int, str, int]]] = [
        Column("operation", lambda row: row[0]),
        figures("ranks", lambda row: row[1]),
        figures("size", lambda row: row[2], format_size),
        Column("algorithm", lambda row: row[3]),
        figures("different requests", lambda row: row[4]),
    ]
    return table_block(columns, rows)


def settings_of(step: Step) -> list[str]:
    """Return the settings of a step (topology, device, model, plan, stack), a sentence each."""
    timed = timed_dtypes_text(step.dtype, step.products, step.messages_in)
    told = [f"topology: {step.topology}", f"{step.ranks} ranks; device {step.device}", f"timed {timed}"]
    if isinstance(step, StepEstimate | TrainingResult):
        told.append(f"model {step.model}; plan {step.plan}")
    if isinstance(step, StepEstimate):
        told += [
            f"global batch {step.global_batch}; stack {step.stack}",
            f"placement {step.axes}: neighbouring NPUs are on the first axis",
        ]
    told += [f"auto: {step_choice_text(step)}"] if step_choice_text(step) else []
    return [*told, *spread_lines("the step", step.spread)]


_MEMORY = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_NO_AXIS = "#7c8894"
_LONGEST = 8  # limit of the parts of the critical path that have their own segments


TimedStep = tuple[Step, TimedTrace]  # a step on one topology: its figures, and the timed trace that they are read from


def step_page(title: str, subtitle: str, shown: Sequence[TimedStep]) -> Page:
    """Return the page of a step on one or several topologies.

    The page of one topology begins with key figures, that of several with a table that compares them.
    """
    steps = [step for step, _ in shown]
    if len(shown) == 1:
        return Page(title, subtitle, figures_of(steps[0]), (_breakdown_section(steps), *step_sections(shown[0])))
    note = f"Click on the head of a column to sort by it. Parts of steps are {MEANS_TOLD}."
    several = Section("Topologies compared", (table_block(comparison_columns(steps), steps),), note)
    each = [
        Section(f"{s.topology}: {part.title}", part.blocks, part.note)
        for s, one in zip(steps, shown, strict=True)
        for part in step_sections(one)
    ]
    return Page(title, subtitle, (), (several, _breakdown_section(steps), *each))


def step_sections(shown: TimedStep) -> list[Section]:
    """Return the sections of one step other than its key figures and its breakdown."""
    step, timed = shown
    chart, times = pipeline(timed)
    stage = "Each row is one rank, which stands for its stage of the pipeline or for all ranks of its role."
    busy = "The share of the step for which a link is busy at full rate. Point at a line to read its share."
    rows = f"{stage} Computation is the upper half, communication the lower."
    sections = (
        Section("When each stage computes and communicates", (chart, times), rows),
        Section("Critical path", (sentences((path_text(step),)), _path(step)), _PATH_NOTE),
        Section("How busy the links are", (link_map(timed.topology, timed.link_busy),), busy),
        Section("Busiest links", (links_table(timed),)),
        Section("Memory", (_memory(step),), "The memory of the rank that holds most, at its peak."),
        Section("Collectives, measured and virtual", _collectives(step), _COLLECTIVES_NOTE),
        Section("Kernels on this device", (table_block(KERNELS, step.kernels),) if step.kernels else ()),
        Section("Costliest requests", _costliest(step), _COSTLIEST_NOTE),
        Section("Hints", (sentences(step.hints),) if step.hints else ()),
        Section("Algorithms that served the requests", (requests_table(timed),)),
        Section("Steps", (steps_table(step),) if len(step.step_times_s) > 1 else ()),
        Section("Settings", (sentences(settings_of(step)),)),
        Section("Assumptions", (sentences(step.assumptions),)),
    )
    return [section for section in sections if section.blocks]


def _collectives(step: Step) -> tuple[Block, ...]:
    """Return the tables of a profiled step (parts, collectives), measured and virtual; empty if it has none."""
    if not step.collectives:
        return ()
    parts = (measured_parts_table(step),) if step.measured_parts is not None else ()
    return (*parts, table_block(COLLECTIVES, step.collectives))


def measured_parts_table(step: Step) -> Block:
    """Return a table of the parts of a profiled step, as measured and as replayed."""
    measured = step.measured_parts
    assert measured is not None, "only a profile has measured parts"
    axes = sorted({*measured.exposed_comm_by_axis_s, *step.exposed_comm_by_axis_s})
    mine, theirs = measured.exposed_comm_by_axis_s, step.exposed_comm_by_axis_s
    rows = [
        ("step", step.measured_step_s or 0.0, step.step_time_s),
        ("computation", measured.compute_s, step.compute_s),
        *((f"{axis or 'other'} exposed", mine.get(axis, 0.0), theirs.get(axis, 0.0)) for axis in axes),
        ("idle", measured.idle_s, step.idle_s),
    ]
    columns: list[Column[tuple[str, float, float]]] = [
        Column("part", itemgetter(0)),
        figures("measured", itemgetter(1), format_time),
        figures("virtual", itemgetter(2), format_time),
    ]
    return table_block(columns, rows)


_COLLECTIVES_NOTE = (
    "Times are medians over equal calls, of the member that came last: it waits for nobody. Starts apart is how much earlier "
    "the first member came, and for whom it waited. A straggler lets starts differ, and changes no time of communication. "
    "Measured parts of the step are means over ranks, and exposed communication has waiting in it; virtual ones are of the "
    "rank that ended last."
)
_COSTLIEST_NOTE = (
    "Each row is a line of the program. `in all` is the time on the rank that ended last. `alone` is the time if no other "
    "group communicated: with the algorithm that served the request, and with the fastest other one. busbw (GB/s) is of the "
    "former. Where a step is timed by packets, `alone` is a time of the fluid fabric."
)
_PATH_NOTE = (
    "The path goes back from the end of the step: each moment belongs to the one task for which all later tasks waited."
)


def breakdown(steps: Sequence[PartTimes], names: Sequence[str], notes: Sequence[str]) -> Block:
    """Return stacked bars of the parts of each step; the longest bar is as wide as the page.

    The legend has the times of the parts where there is one step.

    Args:
        steps: The steps.
        names: The text above each bar; "": none.
        notes: The text after each bar.
    """
    parts, longest = step_parts(steps), max(step.step_time_s for step in steps) or 1.0

    def pieces(i: int) -> list[ColouredPart]:
        whole = steps[i].step_time_s
        return [ColouredPart(name, hue, _part_text(name, t[i], whole), t[i] / longest) for name, hue, t in parts]

    bars = [(names[i], pieces(i), notes[i]) for i in range(len(steps))]
    one = len(steps) == 1
    keys = [part._replace(told=part.told.removeprefix(part.name).lstrip() if one else "") for part in bars[0][1]]
    return Block(template="bars.html", bars=bars, keys=keys)


def _breakdown_section(steps: Sequence[Step]) -> Section:
    """Return the section with the parts of each step."""
    one = len(steps) == 1
    rates = ["" if step.mfu is None else f" · MFU {step.mfu:.3f}" for step in steps]
    notes = [format_time(step.step_time_s) + rate for step, rate in zip(steps, rates, strict=True)]
    of = f"The parts of rank {steps[0].rank}, which ended last, add up to the step."
    parts = steps if one else [means_of(step) for step in steps]
    bars = breakdown(parts, ["" if one else step.topology for step in steps], notes)
    return Section("Where the time goes", (bars,), of if one else f"The parts are {MEANS_TOLD}.")


def _part_text(name: str, time_s: float, whole_s: float) -> str:
    """Return a part of a step as text: its name, its time and its share."""
    share = 100 * time_s / whole_s if whole_s else 0.0
    return f"{name} {format_time(time_s)}, {share:.1f} %"


def _costliest(step: Step) -> tuple[Block, ...]:
    """Return the table of the costliest requests; nothing where no request has a known line."""
    return (table_block(costliest_columns(step), step.costliest),) if step.costliest else ()


def _path(step: Step) -> Block:
    """Return a stacked bar of the critical path: its eight longest kinds of activity, then all others as one segment.

    Parts of equal colour are told apart by their shade.
    """
    whole, longest = step.step_time_s or 1.0, step.critical_path[:_LONGEST]
    axes, seen = colours_of([axis for axis in dict.fromkeys(part.axis for part in longest) if axis]), Counter[str]()
    pieces = []
    for part in longest:
        colour, name = COMPUTE if part.what == COMPUTATION else axes.get(part.axis or "", _NO_AXIS), path_part_text(part)
        words = _part_text(name, part.time_s, whole)
        pieces.append(ColouredPart(name, _paler(colour, seen[colour]), words, part.time_s / whole))
        seen[colour] += 1
    rest = sum(part.time_s for part in step.critical_path[_LONGEST:])
    pieces += [ColouredPart("other", IDLE, _part_text("other", rest, whole), rest / whole)] if rest else []
    return _one_bar(pieces)


def _paler(colour: str, times: int) -> str:
    """Return a colour mixed with white `times` times."""
    white = 1 - 0.72**times
    red, green, blue = (part + (1 - part) * white for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _memory(step: Step) -> Block:
    """Return a stacked bar of the peak memory of the rank that needs the most, by part of memory."""
    parts = {name.replace("_", " "): size for name, size in step.memory_by_part_bytes.items() if size}
    total = sum(parts.values()) or 1
    pieces = [
        ColouredPart(name, _MEMORY[i % len(_MEMORY)], f"{name} {format_size(size)}", size / total)
        for i, (name, size) in enumerate(parts.items())
    ]
    return _one_bar(pieces, format_size(sum(parts.values())))


def _one_bar(pieces: Sequence[ColouredPart], told: str = "") -> Block:
    """Return one bar, with the text of each segment in its legend.

    Args:
        pieces: The segments.
        told: The text after the bar.
    """
    keys = [piece._replace(told=piece.told.removeprefix(piece.name)) for piece in pieces]
    return Block(template="bars.html", bars=[("", pieces, told)], keys=keys)
