"""The report of a training step on one topology or several, as a page; and its sections, for other pages."""

from collections import Counter
from collections.abc import Sequence

from matplotlib.colors import to_hex, to_rgb

from emu.study.training.step.step import Step, TimedTrace
from emu.trace.report.path import COMPUTATION
from emu.units import format_size, format_time
from launch.show.html.figures import compared, figures_of, links_table, requests_table, settings_of, steps_table
from launch.show.html.links import link_map
from launch.show.html.page import Bar, Bars, Cell, Key, Page, Piece, Section, Table, Words, table_of
from launch.show.html.pipeline import pipeline
from launch.show.parts import COMPUTE, IDLE, Parted, colours_of, step_parts
from launch.show.text.step import COSTLY, costly_row, part_told, path_told

_MEMORY = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_NO_AXIS = "#7c8894"
_LONGEST = 8  # parts of the critical path that are shown by themselves


Shown = tuple[Step, TimedTrace]  # a step on one topology: its figures, and the moments that they are of


def step_page(title: str, subtitle: str, shown: Sequence[Shown]) -> Page:
    """One page for all topologies: of one its figures, of several first how they compare."""
    steps = [step for step, _ in shown]
    if len(shown) == 1:
        return Page(title, subtitle, figures_of(steps[0]), (_where(steps), *step_sections(shown[0])))
    several = Section("Topologies compared", (compared(steps),), "Click on a head to sort.")
    each = [
        Section(f"{s.topology}: {part.title}", part.blocks, part.note)
        for s, one in zip(steps, shown, strict=True)
        for part in step_sections(one)
    ]
    return Page(title, subtitle, (), (several, _where(steps), *each))


def step_sections(shown: Shown) -> list[Section]:
    """All that is told of a step, but for its figures and its breakdown."""
    step, timed = shown
    chart, times = pipeline(timed)
    stage = "A row is one rank, which stands for its stage of the pipeline or for those that do the same."
    busy = "A share of the step that a link needs at full rate for what it carries. Point at a line to read it."
    return [
        Section(
            "When each stage computes and communicates",
            (chart, times),
            f"{stage} Computation is the upper half, communication the lower.",
        ),
        Section("Critical path", (Words((path_told(step),)), _path(step)), _PATH_NOTE),
        Section("How busy the links are", (link_map(timed.topology, timed.shares),), busy),
        Section("Busiest links", (links_table(timed),)),
        Section("Memory", (_memory(step),), "Of the rank that holds most, at its peak."),
        *([Section("Costliest requests", (_costliest(step),), _COSTLIEST_NOTE)] if step.costliest else []),
        *([Section("Hints", (Words(step.hints),))] if step.hints else []),
        Section("What served the requests", (requests_table(timed),)),
        *([Section("Steps", (steps_table(step),))] if len(step.step_times_s) > 1 else []),
        Section("Settings", (Words(tuple(settings_of(step))),)),
        Section("Assumptions", (Words(step.assumptions),)),
    ]


_COSTLIEST_NOTE = (
    "By line of the program; the time in all is that of the rank that ended last. Alone: if only this group asked, "
    "by what serves it and by the fastest other algorithm; busbw in GB/s is of that."
)
_PATH_NOTE = "From the end of the step back: what each moment was spent on by the one task that all after it waited for."


def breakdown(steps: Sequence[Parted], names: Sequence[str], notes: Sequence[str]) -> Bars:
    """A bar each in parts, the longest as wide as the page; of one alone each colour with its time.

    Args:
        steps: What they are of.
        names: Over the bars; "": none.
        notes: After the bars.
    """
    parts, longest = step_parts(steps), max(step.step_time_s for step in steps) or 1.0
    bars = []
    for i, step in enumerate(steps):
        told = [_part_told(p.name, p.times_s[i], step.step_time_s) for p in parts]
        pieces = [Piece(p.name, p.colour, p.times_s[i] / longest, words) for p, words in zip(parts, told, strict=True)]
        bars.append(Bar(names[i], tuple(pieces), notes[i]))
    one = len(steps) == 1
    keys = [Key(p.name, p.colour, _part_told("", p.times_s[0], steps[0].step_time_s) if one else "") for p in parts]
    return Bars(tuple(bars), tuple(keys))


def _where(steps: Sequence[Step]) -> Section:
    """The parts of each step."""
    one = len(steps) == 1
    rates = ["" if step.mfu is None else f" · MFU {step.mfu:.3f}" for step in steps]
    notes = [format_time(step.step_time_s) + rate for step, rate in zip(steps, rates, strict=True)]
    of = f"The parts of rank {steps[0].rank}, which ended last, add up to the step."
    bars = breakdown(steps, ["" if one else step.topology for step in steps], notes)
    return Section("Where the time goes", (bars,), of if one else "The parts of the rank that ended last.")


def _part_told(name: str, time_s: float, whole_s: float) -> str:
    share = 100 * time_s / whole_s if whole_s else 0.0
    return f"{name} {format_time(time_s)}, {share:.1f} %".strip()


def _path(step: Step) -> Bars:
    """The longest parts by themselves, then all others; of several of one colour each is paler than the one before."""
    whole, longest = step.step_time_s or 1.0, step.critical_path[:_LONGEST]
    axes, seen = colours_of([axis for axis in dict.fromkeys(part.axis for part in longest) if axis]), Counter[str]()
    pieces = []
    for part in longest:
        colour, name = COMPUTE if part.what == COMPUTATION else axes.get(part.axis or "", _NO_AXIS), part_told(part)
        pieces.append(Piece(name, _paler(colour, seen[colour]), part.time_s / whole, _part_told(name, part.time_s, whole)))
        seen[colour] += 1
    rest = sum(part.time_s for part in step.critical_path[_LONGEST:])
    pieces += [Piece("other", IDLE, rest / whole, _part_told("other", rest, whole))] if rest else []
    return Bars((Bar("", tuple(pieces)),), tuple(Key(p.name, p.colour, p.told.removeprefix(p.name)) for p in pieces))


def _paler(colour: str, times: int) -> str:
    """A colour mixed with white, so that equal kinds of parts are told apart."""
    white = 1 - 0.72**times
    red, green, blue = (part + (1 - part) * white for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _costliest(step: Step) -> Table:
    rows = []
    for each in step.costliest or ():
        by = (each.ranks, each.times, each.size_bytes, each.time_s)
        alone = (each.alone_s, each.busbw_Bps, each.of_bound)
        keys = (None, None, None, *by, None, *alone, None, each.next_s)  # None: sorted by its words
        rows.append([Cell(text, key) for text, key in zip(costly_row(each), keys, strict=True)])
    return table_of(COSTLY, rows)


def _memory(step: Step) -> Bars:
    parts = {name.replace("_", " "): size for name, size in step.memory_by_part_bytes.items() if size}
    total = sum(parts.values()) or 1
    pieces = [
        Piece(name, _MEMORY[i % len(_MEMORY)], size / total, f"{name} {format_size(size)}")
        for i, (name, size) in enumerate(parts.items())
    ]
    keys = tuple(Key(p.name, p.colour, p.told.removeprefix(p.name)) for p in pieces)
    return Bars((Bar("", tuple(pieces), format_size(sum(parts.values()))),), keys)
