"""The commands `emu repro PAPER` and `emu repro all`."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import click

from emu.errors import InputError
from emu.files import make_folder, write_file
from emu.study.planning.search.timer import ResultCache
from launch.cli.options.common import cache_folder, cache_option, import_option, json_option, print_result
from launch.cli.options.files import OutputFile, OutputFolder, write_output, write_png
from launch.papers.catalogue import PAPERS
from launch.papers.paper import REGISTERED, Paper
from launch.papers.row_answers import RowRequest, answers
from launch.papers.targets import PaperRow, Target, judge
from launch.show.progress import with_progress
from launch.show.text.measured_report import paper_page, paper_report, score, scores, unmet_rows

_PROCESSES = 4  # most processes that compute rows


def add_papers(group: click.Group) -> None:
    """Add a command for each paper, and one for all, to a group of commands."""
    for name in PAPERS:
        group.add_command(_command(name))
    group.add_command(all_command)


@click.command("all")
@click.option("--docs", type=OutputFolder(), help="Write a page of each paper to this folder.")
@cache_option
@import_option
@json_option
def all_command(docs: Path | None, cache: Path | None, as_json: bool) -> None:
    """Compute each row of each paper, and report how many are met.

    Results are kept: a row that was computed before is read from the cache.

    \b
    emu repro all
    emu repro all --json
    """
    with closing(ResultCache(None)) as nowhere:
        papers = {name: make(nowhere) for name, make in PAPERS.items()}
        rows = _rows(papers, [(name, target) for name, paper in papers.items() for target in paper.targets], cache)
    every = [row for each in rows.values() for row in each]
    told = [{"paper": name, **row.as_json()} for name, each in rows.items() for row in each]
    text = "\n\n".join((scores(rows), unmet_rows(every), score(every)))
    print_result({"score": score(every), "rows": told}, lambda: text, as_json=as_json)
    write_output(docs, partial(_write, papers, rows))


def _rows(papers: Mapping[str, Paper], wanted: Sequence[tuple[str, Target]], cache: Path | None) -> dict[str, list[PaperRow]]:
    """Return the rows of each paper, computed in several processes below a progress bar."""
    asked = [RowRequest(name, target.table, papers[name].targets.index(target)) for name, target in wanted]
    processes = min(_PROCESSES, os.cpu_count() or 1)
    found = answers({name: PAPERS[name] for name in papers}, asked, cache_folder(cache), processes)
    rows: dict[str, list[PaperRow]] = {name: [] for name in papers}
    for (name, target), answer in zip(wanted, with_progress(found, f"working out {len(asked)} rows", len(asked)), strict=True):
        rows[name].append(judge(target, answer))
    return rows


def _write(papers: Mapping[str, Paper], rows: Mapping[str, Sequence[PaperRow]], folder: Path) -> None:
    """Write the page of each paper."""
    make_folder("--docs", folder)
    for name, paper in papers.items():
        text = paper_page(paper, rows[name])
        write_file("--docs", folder / f"{name}.md", text.encode())


def _command(name: str) -> click.Command:
    """Return the command of one paper."""

    @click.command(name, help=_help(name))
    @click.option("--table", help="One table of the paper, such as 6, or one section, such as 6.4.")
    @click.option("--figure", help="One figure of the paper, such as 17.")
    @click.option("--png", type=OutputFile(".png"), help="Draw the --figure with the axes of the paper to this file.")
    @click.option("--docs", type=OutputFolder(), help="Write the page of the paper, with all its rows, to this folder.")
    @cache_option
    @import_option
    @json_option
    def command(
        table: str | None, figure: str | None, png: Path | None, docs: Path | None, cache: Path | None, as_json: bool
    ) -> None:
        place = _place(table, figure, docs)
        with closing(ResultCache(cache_folder(cache))) as kept:
            paper = PAPERS[name](kept)
            targets = paper.of(place)
            if png is not None:
                _draw(paper, figure, png)
        rows = _rows({name: paper}, [(name, target) for target in targets], cache)[name]
        found = {"paper": name, "place": place, "rows": [row.as_json() for row in rows], "assumptions": paper.assumptions()}
        print_result(found, lambda: paper_report(rows, paper.assumptions()), as_json=as_json)
        write_output(docs, partial(_write, {name: paper}, {name: rows}))

    return command


def _help(name: str) -> str:
    """Return the help of the command of one paper."""
    return (
        f"Compute the rows of the {name} paper.\n\n"
        "Each row of its tables and figures is compared with the printed value. Results are kept. "
        " An interrupted command goes on where it stopped when it is started again.\n\n"
        f"\b\nemu repro {name}\nemu repro {name} {REGISTERED[name].example} --json"
    )


def _place(table: str | None, figure: str | None, docs: Path | None) -> str | None:
    """Return the place of the rows that are asked for; None: all rows of the paper.

    Raises:
        InputError: Two of the options exclude each other.
    """
    given = {"--table": table, "--figure": figure, "--docs": docs}
    first, *others = [name for name, value in given.items() if value is not None] or [""]
    if others:
        raise InputError(f"repro: {first} and {others[0]} exclude each other; give one of them")
    return table if figure is None else f"fig {figure}"


def _draw(paper: Paper, figure: str | None, png: Path) -> None:
    """Draw a figure of a paper.

    Raises:
        InputError: Emu does not draw the figure.
    """
    if figure is None or figure not in paper.figures:
        known = ", ".join(paper.figures) or "none"
        raise InputError(f"repro: --png needs a --figure that Emu draws, got {figure or 'none'}; known: {known}")
    write_png(png, "chart.paper_chart:picture", paper.figures[figure](paper))
