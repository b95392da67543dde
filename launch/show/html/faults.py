"""What faults leave of machines, as a page: how they compare, their waste over time, and how often it is how large."""

from collections.abc import Sequence

import numpy as np

from launch.show.html.frame import Axis
from launch.show.html.lines import Stairs, stairs
from launch.show.html.page import Cell, Page, Section, Svg, Table, Words, table_of
from launch.show.text.faults import MEANING, Kept, columns_of, named

_WASTE = "NPUs that work and find no group, of all NPUs. Point at a line to read it."
_LEAST = 0.001  # of the axis of waste, where nothing is wasted


def faults_page(rows: Sequence[Kept], notes: Sequence[str]) -> Page:
    """One page for all machines and sizes of groups."""
    sizes = sorted({row.waste.group for row in rows})
    title = f"What faults leave for groups of {', '.join(map(str, sizes))} NPUs"
    machines = list(dict.fromkeys(f"{row.waste.topology} ({row.waste.npus:,} NPUs)" for row in rows))
    sections = (
        Section("Machines compared", (_table(rows),), "Click on a head to sort."),
        Section("Waste over time", (_over_time(rows),), _WASTE),
        Section("How often the waste is how large", (_often(rows),)),
        Section("What the columns mean", (Words((MEANING,)),)),
        Section("Assumptions", (Words(tuple(notes)),)),
    )
    return Page(title, ", ".join(machines), (), sections)


def _table(rows: Sequence[Kept]) -> Table:
    columns = columns_of(rows)
    head = tuple(f"{column.head} ({column.unit})" if column.unit else column.head for column in columns)
    cells = [[_cell(column.told(row)) for column in columns] for row in rows]
    return table_of(head, cells)


def _cell(text: str) -> Cell:
    try:
        return Cell(text, float(text))
    except ValueError:
        return Cell(text)


def _most(rows: Sequence[Kept]) -> float:
    return max(_LEAST, 1.05 * max(float(row.waste.wasted.max()) for row in rows))


def _over_time(rows: Sequence[Kept]) -> Svg:
    lines = []
    for row in rows:
        of = row.waste
        ends = [*of.begin.tolist(), _end(row)]
        lines.append(Stairs(named(of, several=True), ends, of.wasted.tolist()))
    return stairs("waste over time", lines, Axis("day", max(map(_end, rows))), _axis(rows))


def _end(row: Kept) -> float:
    """When the last state ends; states without times have one day each."""
    begin, share = row.waste.begin, row.waste.share
    return float(begin[-1] + (begin[-1] - begin[0]) * share[-1] / max(1e-12, 1 - share[-1])) if len(begin) > 1 else 1.0


def _often(rows: Sequence[Kept]) -> Svg:
    lines = []
    for row in rows:
        order = np.argsort(row.waste.wasted, kind="stable")
        ends = [0.0, *row.waste.share[order].cumsum().tolist()]
        lines.append(Stairs(named(row.waste, several=True), ends, row.waste.wasted[order].tolist()))
    across = Axis("share of the time with so much waste or less", 1.0, 100.0, " %")
    return stairs("waste, from the least to the most", lines, across, _axis(rows))


def _axis(rows: Sequence[Kept]) -> Axis:
    return Axis("waste", _most(rows), 100.0, " %")
