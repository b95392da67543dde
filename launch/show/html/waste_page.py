"""The HTML page of `emu faults`: machines compared, and their waste over time and by amount."""

from collections.abc import Sequence

from launch.show.blocks import Page, Section, sentences, table_block
from launch.show.chart.step_chart import waste_figure
from launch.show.html.page import picture_block
from launch.show.text.machine_table import MEANING, MachineWaste, columns_of

_WASTE = "The share of all NPUs that work but find no group."


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
        Section("Waste over time, and its distribution", (picture_block(waste_figure(rows), _WASTE),), _WASTE),
        Section("What the columns mean", (sentences((MEANING,)),)),
        Section("Assumptions", (sentences(notes),)),
    )
    return Page(title, ", ".join(machines), (), sections)
