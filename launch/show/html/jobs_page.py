"""The HTML page of `emu jobs`: settings compared, and in each of them the lanes, the jobs, and who slows whom."""

from collections.abc import Iterator, Sequence

from emu.study.jobs.jobs_row import JobsRow
from emu.study.jobs.setting_run import RunSideBySide
from launch.show.blocks import Block, KeyFigure, Page, Section, fact_lines, sentences, table_block
from launch.show.chart.jobs_chart import jobs_figure
from launch.show.html.page import picture_block
from launch.show.text.jobs_table import (
    best_setting,
    job_columns,
    jobs_facts,
    jobs_title,
    link_lines,
    pair_table,
    setting_columns,
)

_LANES = "The steps of each job over time, and when it has messages on the fabric."


def jobs_page(runs: Sequence[RunSideBySide]) -> Page:
    """Return the page of jobs side by side in one setting or several."""
    rows = [run.row for run in runs]
    best = best_setting(rows)
    names = ", ".join(job.name for job in best.jobs)
    return Page(f"Jobs side by side: {names}", jobs_title(best), list(_figures(best)), list(_sections(runs)))


def _figures(row: JobsRow) -> Iterator[KeyFigure]:
    """Yield the key figures of the best setting."""
    yield KeyFigure("slow_down", "slow-down", f"{row.slow_down:.3f}", row.slow_down, "mean of all jobs")
    yield KeyFigure("worst", "worst job", f"{row.worst:.3f}", row.worst)
    yield KeyFigure("fairness", "fairness", f"{row.fairness:.4f}", row.fairness, "Jain's index")
    yield KeyFigure("busiest", "busiest link", f"{100 * row.busiest:.1f} %", row.busiest, row.busiest_link)


def _sections(runs: Sequence[RunSideBySide]) -> Iterator[Section]:
    """Yield all sections of the page."""
    rows = [run.row for run in runs]
    if len(rows) > 1:
        compared = (
            picture_block(jobs_figure(runs), "The slow-down of each job in each setting."),
            table_block(setting_columns(rows), rows),
        )
        yield Section("Settings compared", compared, "Click on the head of a column to sort by it.")
    for run in runs:
        yield Section(jobs_title(run.row), tuple(_blocks(run)), _LANES)
    yield Section("Assumed", (sentences(list(dict.fromkeys(line for row in rows for line in row.assumptions))),))


def _blocks(run: RunSideBySide) -> Iterator[Block]:
    """Yield the blocks of one setting: its lanes, its jobs, and who slows whom over which links."""
    row = run.row
    yield picture_block(jobs_figure([run]), _LANES)
    yield table_block(job_columns(row), row.jobs)
    lines = [*fact_lines(jobs_facts(row)), "", pair_table(row), "", *link_lines(row)]
    yield Block(template="verbatim.html", text="\n".join(lines))
