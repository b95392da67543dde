"""The HTML page of `emu faults`: machines compared, their waste over time, and the share of the time by amount of waste.

Also here: a chart of stair lines on an HTML page: lines that keep each value until the next.
"""

from collections.abc import Sequence
from itertools import cycle, pairwise
from types import SimpleNamespace

import numpy as np

from launch.show.blocks import Block, ColouredPart, Page, Section, drawing_block, sentences, table_block
from launch.show.html.page import ChartAxis, frame_of
from launch.show.text.machine_table import MEANING, MachineWaste, columns_of, machine_name

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7c8894", "#22313f", "#999933", "#882255")
Line = tuple[str, Sequence[float], Sequence[float]]  # name, where each value begins and the last one ends, and the values
Span = tuple[tuple[float, float], float]
_WASTE = "The share of all NPUs that work but find no group. Point at a line to read it."
_LEAST = 0.001  # end of the axis of waste, where nothing is wasted


def stair_chart(told: str, rows: Sequence[Line], across: ChartAxis, up: ChartAxis) -> Block:
    """Return a chart of stair lines, which keep each value until the next, with its legend.

    Args:
        told: The description of the chart for readers who cannot see it.
        rows: The lines.
        across: The lower axis.
        up: The axis at the left.
    """
    drawn = []
    for (name, x, y), colour in zip(rows, cycle(_COLOURS), strict=False):
        spans = _merge_equal(zip(pairwise(x), y, strict=True))
        points = (f"{across.x(begin)},{up.y(value)} {across.x(end)},{up.y(value)}" for (begin, end), value in spans)
        drawn.append((" ".join(points), colour, name))
    keys = [ColouredPart(name, colour) for _, colour, name in drawn]
    return drawing_block("lines.html", told, SimpleNamespace(frame=frame_of(across, up), lines=drawn), keys)


def _merge_equal(spans: "zip[Span]") -> list[Span]:
    """Return the spans, with neighbours of equal value merged into one."""
    found: list[Span] = []
    for (begin, end), value in spans:
        if found and found[-1][1] == value:
            found[-1] = ((found[-1][0][0], end), value)
        else:
            found.append(((begin, end), value))
    return found


def faults_page(rows: Sequence[MachineWaste], notes: Sequence[str]) -> Page:
    """Return one page for all machines and sizes of groups.

    Args:
        rows: The waste of each machine and size of groups.
        notes: The assumptions, a sentence each.
    """
    sizes = sorted({row.waste.group for row in rows})
    title = f"What faults leave for groups of {', '.join(map(str, sizes))} NPUs"
    machines = list(dict.fromkeys(f"{row.waste.topology} ({row.waste.npus:,} NPUs)" for row in rows))
    sections = (
        Section("Machines compared", (table_block(columns_of(rows), rows),), "Click on the head of a column to sort by it."),
        Section("Waste over time", (_over_time(rows),), _WASTE),
        Section("Distribution of the waste", (_by_amount(rows),)),
        Section("What the columns mean", (sentences((MEANING,)),)),
        Section("Assumptions", (sentences(notes),)),
    )
    return Page(title, ", ".join(machines), (), sections)


def _over_time(rows: Sequence[MachineWaste]) -> Block:
    """Return the chart of waste over time, with a line for each row."""
    lines = []
    for row in rows:
        of = row.waste
        ends = [*of.begin.tolist(), _end(row)]
        lines.append((machine_name(of, several=True), ends, of.wasted.tolist()))
    return stair_chart("waste over time", lines, ChartAxis("day", max(map(_end, rows))), _axis(rows))


def _end(row: MachineWaste) -> float:
    """Return the day on which the last state ends; 1.0 where there is only one state."""
    begin, share = row.waste.begin, row.waste.share
    return float(begin[-1] + (begin[-1] - begin[0]) * share[-1] / max(1e-12, 1 - share[-1])) if len(begin) > 1 else 1.0


def _by_amount(rows: Sequence[MachineWaste]) -> Block:
    """Return the chart of the share of the time that has so much waste or less, with a line for each row."""
    lines = []
    for row in rows:
        order = np.argsort(row.waste.wasted, kind="stable")
        ends = [0.0, *row.waste.share[order].cumsum().tolist()]
        lines.append((machine_name(row.waste, several=True), ends, row.waste.wasted[order].tolist()))
    across = ChartAxis("share of the time with at most this waste", 1.0, 100.0, " %")
    return stair_chart("waste, from the least to the most", lines, across, _axis(rows))


def _axis(rows: Sequence[MachineWaste]) -> ChartAxis:
    """Return the axis of waste in percent."""
    return ChartAxis("waste", max(_LEAST, 1.05 * max(float(row.waste.wasted.max()) for row in rows)), 100.0, " %")
