"""`emu repro` of papers: a sub-command for each, and one for all."""

import importlib
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import click

from emu.errors import InputError
from emu.files import make_folder, write_file
from emu.study.planning.search.kept import Kept
from launch.cli.options.common import import_option, json_option, kept_in, print_json
from launch.cli.options.outputs import OutputFile, OutputFolder, may_fail, print_text
from launch.papers.every import PAPERS
from launch.papers.paper import Paper
from launch.papers.sources import SOURCES, notes_of
from launch.papers.targets import Row, Target, judged
from launch.papers.together import Asked, answers
from launch.show.progress import with_progress
from launch.show.text.paper_page import paper_page, score, scores, unmet_rows
from launch.show.text.paper_table import paper_report

_PROCESSES = 4  # that work out rows, where there are cores for them
_CACHE = click.option("--cache", type=OutputFolder(), help="Keep rows in this folder. [default: the user's cache]")


def add_papers(group: click.Group) -> None:
    """A command for each paper."""
    for name in PAPERS:
        group.add_command(_command(name))
    group.add_command(all_command)


@click.command("all")
@click.option("--docs", type=OutputFolder(), help="Write a page of each paper to this folder.")
@_CACHE
@import_option
@json_option
def all_command(docs: Path | None, cache: Path | None, as_json: bool) -> None:
    """Work out each row of each paper, and tell how many are met.

    Rows are kept: what was worked out before is only read.

    \b
    emu repro all
    emu repro all --json
    """
    with closing(Kept(None)) as nowhere:
        papers = {name: make(nowhere) for name, make in PAPERS.items()}
        rows = _rows(papers, [(name, target) for name, paper in papers.items() for target in paper.targets], cache)
    every = [row for each in rows.values() for row in each]
    if as_json:
        told_rows = [{"paper": name, **row.told()} for name, each in rows.items() for row in each]
        print_json({"score": score(every), "rows": told_rows})
    else:
        print_text("\n\n".join((scores(rows), unmet_rows(every), score(every))))
    if docs is not None:
        with may_fail():
            _write(docs, papers, rows)


def _rows(papers: Mapping[str, Paper], wanted: Sequence[tuple[str, Target]], cache: Path | None) -> dict[str, list[Row]]:
    """Rows of papers, worked out with a bar."""
    asked = [Asked(name, target.table, papers[name].targets.index(target)) for name, target in wanted]
    processes = min(_PROCESSES, os.cpu_count() or 1)
    found = answers({name: PAPERS[name] for name in papers}, asked, kept_in(cache), processes)
    rows: dict[str, list[Row]] = {name: [] for name in papers}
    for (name, target), answer in zip(wanted, with_progress(found, f"working out {len(asked)} rows", len(asked)), strict=True):
        rows[name].append(judged(target, answer))
    return rows


def _write(folder: Path, papers: Mapping[str, Paper], rows: Mapping[str, Sequence[Row]]) -> None:
    make_folder("--docs", folder)
    for name, paper in papers.items():
        title, source = SOURCES[name]
        text = paper_page(title, source, rows[name], paper.assumptions(), notes_of(name))
        write_file("--docs", folder / f"{name}.md", text.encode())


def _command(name: str) -> click.Command:
    @click.command(name)
    @click.option("--table", help="Of the paper, such as 6; or a section, such as 6.4.")
    @click.option("--figure", help="Of the paper, such as 17.")
    @click.option("--png", type=OutputFile(".png"), help="Draw the figure in the paper's axes to this file.")
    @_CACHE
    @import_option
    @json_option
    def command(table: str | None, figure: str | None, png: Path | None, cache: Path | None, as_json: bool) -> None:
        if table is not None and figure is not None:
            raise InputError("repro: --table and --figure exclude one another; give one of them")
        place = table if figure is None else f"fig {figure}"
        with closing(Kept(kept_in(cache))) as kept:
            paper = PAPERS[name](kept)
            targets = paper.of(place)
            if png is not None:
                _draw(paper, figure, png)
        rows = _rows({name: paper}, [(name, target) for target in targets], cache)[name]
        if as_json:
            told_rows = [row.told() for row in rows]
            print_json({"paper": name, "place": place, "rows": told_rows, "assumptions": paper.assumptions()})
        else:
            print_text(paper_report(rows, paper.assumptions()))

    command.help = (
        f"Work out the {name} paper again: each row of its tables and figures beside what is printed.\n\n"
        "Rows are kept; interrupt it as you like: started again, it goes on where it stopped.\n\n"
        f"\b\nemu repro {name}\nemu repro {name} --table {_first(name)} --json"
    )
    return command


def _first(name: str) -> str:
    return {"infinitehbd": "2", "railx": "6"}.get(name, "1")


def _draw(paper: Paper, figure: str | None, png: Path) -> None:
    if figure is None or figure not in paper.figures:
        known = ", ".join(paper.figures) or "none"
        raise InputError(f"repro: --png needs --figure of one that is drawn: {known}; got {figure}")
    draw = importlib.import_module("launch.show.chart.paper_chart")  # not above: it loads matplotlib
    with may_fail():
        draw.draw_figure(paper.figures[figure](paper), png)
