"""The question of `emu repro`: what does Emu compute for the figures that papers and vendors published?"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emu.errors import InputError
from emu.files import make_folder, write_file
from emu.registry import unknown
from emu.study.job_pool import JobPool, LocalPool
from emu.study.planning.search.result_cache import ResultCache
from launch.clusters import job_pool
from launch.data.fitted import read_fitted, write_fit, write_fitted
from launch.front.inputs import cache_folder, question
from launch.front.result import PICTURES, Result, lazy
from launch.papers import torchtitan
from launch.papers.catalogue import PAPERS
from launch.papers.kernels import report as kernels
from launch.papers.kernels.report import COMMAND as KERNELS_FIT
from launch.papers.kernels.report import HBM
from launch.papers.kernels.report import fit as fit_products
from launch.papers.measured.report import COMMAND, PREDICTED, TRAINING, PreparedRun, ask, row_of, summaries, with_unseen
from launch.papers.measured.report import fit as fit_runs
from launch.papers.measured.rows import read_runs
from launch.papers.nccl import report as nccl
from launch.papers.paper import Paper
from launch.papers.row_answers import RowRequest, answers
from launch.papers.targets import Answer, PaperRow, Target, with_others
from launch.papers.torchtitan import read_rows
from launch.show.progress import late_notice, with_progress
from launch.show.row_file import row_known
from launch.show.text import measured_report as texts

if TYPE_CHECKING:  # it takes long to load
    from matplotlib.figure import Figure

_PROCESSES = 4  # most processes that compute rows
_NOTES = (
    "ours_s does not use the row's own model: its constants are fitted on the runs of the device's other models",
    "in_sample_s uses the constants of the device, which are fitted on all its runs, with equal weight for each model; no "
    "constant belongs to a single row or model",
    f"the fit minimizes the squares of log(ours / measured); `{COMMAND}` repeats it",
    "software names the settings of the row's source, which launch/papers/measured/settings.py lists",
    "every step is a composed step (docs/training.md); memory is not checked",
)
_KERNEL_NOTES = (
    "used figures gave what devices have; predicted ones are only compared with it. A used figure of attention is predicted "
    "from the others of its table",
    "each kernel on each machine has a clock, which no source prints: the used products of the machine give it",
    f"what all products have in common is fitted on those that are used: `{KERNELS_FIT}` fits it anew",
    f"copies and norms are held against {HBM:g} of the memory's bandwidth, the share that a fit on runs begins from",
)


@dataclass(frozen=True, repr=False, eq=False)
class Reproduction(Result[Any], files=PICTURES):
    """The rows of a publication: the printed value of each, and the value that Emu computes for it."""

    report: Callable[[], str]  # the text of the command
    told: object  # what the command prints as JSON
    draw: "Callable[[], Figure] | None" = None  # the picture of a figure of a paper; None: there is none
    write_fit: Callable[[Path], object] | None = None  # writes the constants that were fitted; None: none were
    pages: Mapping[str, str] | None = None  # the page of each paper, as docs/papers has it; None: not of a whole paper
    told_rows: Sequence[object] = ()  # the fields of each row for JSON; empty: the rows have them

    def text(self) -> str:
        """Return the table of the rows."""
        return self.report()

    def as_json(self) -> object:
        """Return the rows with the notes on their assumptions, as objects that become JSON."""
        return self.told

    def records(self) -> Sequence[object]:
        """Return the rows, those of papers with the name of the paper."""
        return self.told_rows or self.rows

    def figure(self) -> "Figure":
        """Return the figure of the paper, with the paper's axes.

        Raises:
            InputError: no figure was asked for that Emu draws.
        """
        return super().figure() if self.draw is None else self.draw()

    def save_docs(self, folder: Path) -> None:
        """Write the page of each paper to a folder."""
        make_folder("--docs", folder)
        for name, page in (self.pages or {}).items():
            write_file("--docs", folder / f"{name}.md", page.encode())

    def save_fit(self, path: Path) -> None:
        """Write the constants that were fitted."""
        if self.write_fit is not None:
            self.write_fit(path)


@question
def repro(
    source: str,
    *,
    table: str | None = None,
    figure: str | None = None,
    data: str | Path | None = None,
    fit: bool = False,
    cache: str | Path | None = None,
    workers: str = "local",
    ray_address: str | None = None,
) -> Reproduction:
    """Compute figures that papers and vendors published, and compare them with the printed values.

    Args:
        source: A paper; `all`: all papers; `measured`, `nccl`, `torchtitan` or `kernels`: what was measured on real machines.
        table: One table of the paper, such as 6, or one section, such as 6.4.
        figure: One figure of the paper, such as 17.
        data: For `measured`: a CSV of your own runs, with the columns of launch/data/measured/training.csv.
        fit: For what was measured: fit Emu's constants on it anew, and use them.
        cache: Keep results of papers in this folder; None: in the user's cache.
        workers: The processes that compute rows of papers: of this machine (`local`), or of a Ray (`ray`).
        ray_address: The address of a running Ray; None: start one on this machine.

    Raises:
        InputError: the source is unknown, or an argument is not for it.
    """
    asked: dict[str, Callable[..., Reproduction]] = {**_ASKED, **{name: partial(paper_rows, name) for name in PAPERS}}
    if source not in asked:
        raise unknown("publication", source, asked)
    of_papers = {"table": table, "figure": figure, "cache": cache, "workers": workers, "ray_address": ray_address}
    given, takes = {**of_papers, "data": data, "fit": fit}, inspect.signature(asked[source]).parameters
    for name, value in given.items():
        if value and value != "local" and name not in takes:
            raise InputError(f"repro: {name} is not for {source}; leave it out")
    return asked[source](**{name: given[name] for name in takes})


def _pool(source: str, workers: str, ray_address: str | None) -> JobPool:
    """Return the job pool whose processes compute the rows of a publication."""
    return job_pool(f"emu repro {source}", workers, ray_address, LocalPool(min(_PROCESSES, os.cpu_count() or 1)))


def all_papers(cache: str | Path | None, workers: str, ray_address: str | None) -> Reproduction:
    """Return each row of each paper, and how many are met."""
    pool = _pool("all", workers, ray_address)
    with closing(ResultCache(cache_folder(cache))) as kept:
        papers = {name: make(kept) for name, make in PAPERS.items()}
        rows = _rows(papers, [(name, target) for name, paper in papers.items() for target in paper.targets], kept, pool)
        pages = {name: texts.paper_page(paper, rows[name]) for name, paper in papers.items()}
    every = [row for each in rows.values() for row in each]
    told = [_record(name, row) for name, each in rows.items() for row in each]

    def report() -> str:
        return "\n\n".join((texts.scores(rows), texts.unmet_rows(every), texts.score(every)))

    return Reproduction(tuple(every), report, {"score": texts.score(every), "rows": told}, pages=pages, told_rows=told)


def _record(paper: str, row: PaperRow) -> dict[str, object]:
    """Return the fields of a row of a paper for JSON."""
    return {"paper": paper, **row.as_json()}


def paper_rows(
    source: str, table: str | None, figure: str | None, cache: str | Path | None, workers: str, ray_address: str | None
) -> Reproduction:
    """Return the rows of one paper, or of one of its tables or figures.

    Raises:
        InputError: a table and a figure are given.
    """
    pool = _pool(source, workers, ray_address)
    if table is not None and figure is not None:
        raise InputError("repro: --table and --figure exclude each other; give one of them")
    place = table if figure is None else f"fig {figure}"
    with closing(ResultCache(cache_folder(cache))) as kept:
        paper = PAPERS[source](kept)
        draw = None if figure is None or figure not in paper.figures else partial(_drawn, paper, figure)
        rows = _rows({source: paper}, [(source, target) for target in paper.of(place)], kept, pool)[source]
    told = {"paper": source, "place": place, "rows": [row.as_json() for row in rows], "assumptions": paper.assumptions()}
    pages, records = {source: texts.paper_page(paper, rows)} if place is None else None, [_record(source, row) for row in rows]
    nothing = "" if rows or draw is None else f"no rows for figure {figure}: it is only drawn; add --png FILE"

    def report() -> str:
        return nothing or texts.paper_report(rows, paper.assumptions())

    return Reproduction(tuple(rows), report, told, draw, pages=pages, told_rows=records)


def check_figure(source: str, figure: str | None) -> None:
    """Refuse a figure that Emu does not draw.

    Raises:
        InputError: naming those that it draws.
    """
    with closing(ResultCache(None)) as nowhere:
        figures = PAPERS[source](nowhere).figures
    if figure is None or figure not in figures:
        raise InputError(
            f"repro: --png needs a --figure that Emu draws, got {figure or 'none'}; known: {', '.join(figures) or 'none'}"
        )


def _drawn(paper: Paper, figure: str) -> "Figure":
    """Return the picture of a figure of a paper: Emu's values, and the printed ones as far as the paper's module has them."""
    drawn: Figure = lazy("chart.paper_chart:picture")(paper.figures[figure](paper))
    return drawn


def _rows(
    papers: Mapping[str, Paper], wanted: Sequence[tuple[str, Target]], kept: ResultCache, pool: JobPool
) -> dict[str, list[PaperRow]]:
    """Return, by paper, the wanted rows with verdicts, computed by the job pool.

    Rows that they are judged against are computed, too.
    """
    needed = {(name, each.id): each for name, target in wanted for each in with_others([target])}
    asked = [RowRequest(name, target.table, papers[name].targets.index(target)) for (name, _), target in needed.items()]
    found = answers({name: PAPERS[name] for name in papers}, asked, kept, pool)
    shown = {(name, target.id) for name, target in wanted}
    rows: dict[str, list[PaperRow]] = {name: [] for name in papers}
    known: dict[str, dict[str, Answer]] = {name: {} for name in papers}
    progress = with_progress(found, f"working out {len(asked)} rows", len(asked))
    for ((name, row), target), answer in zip(needed.items(), progress, strict=True):
        known[name][row] = answer
        if (name, row) in shown:
            rows[name].append(papers[name].judge(target, known[name]))
            row_known(_record(name, rows[name][-1]))
    return rows


def measured_runs(data: str | Path | None, *, fit: bool) -> Reproduction:
    """Return the estimates of steps measured on real clusters, beside the measured times."""
    path = Path(data or TRAINING)
    name = path.name if data is None else str(data)
    runs = read_runs(path, name)
    asked = [ask(run, f"{name}, line {run.line}") for run in runs]
    all_ready = with_progress((each.ready() for each in asked), "estimating the runs", len(runs))
    if fit:
        kept, others = [*all_ready], [*(_predicted() if data is None else ())]
        with late_notice("fitting the constants"):
            fitted = fit_runs(kept, others)
        rows = [row_of(of, fitted) for of in kept]
        fitted = with_unseen(fitted, [*rows, *(row_of(of, fitted) for of in others)])
    else:
        fitted = read_fitted()
        rows = [row_of(of, fitted) for of in all_ready]
    sums = [*summaries(rows)]
    constants = {device: {"fitted_on": of.models, "constants": of.constants} for device, of in fitted.items()}
    told = {"rows": rows, "errors": sums, "constants": constants, "fitted_by": COMMAND, "assumptions": _NOTES}
    report = partial(texts.measured_report, rows, sums, fitted, _NOTES)
    return Reproduction(tuple(rows), report, told, write_fit=partial(write_fitted, fitted) if fit else None)


def _predicted() -> Iterator[PreparedRun]:
    """Yield published runs, prepared, on whose times no constant was fitted but the spread of speeds."""
    runs = read_runs(PREDICTED, PREDICTED.name)
    all_ready = (ask(run, f"{PREDICTED.name}, line {run.line}").ready() for run in runs)
    return with_progress(all_ready, "estimating runs that are in no fit", len(runs))


def nccl_times(*, fit: bool) -> Reproduction:
    """Return the times of an all_reduce on a node of 8 H100, beside those of nccl-tests."""
    which = nccl.measured_times()
    with late_notice("timing the sizes"):
        stack = nccl.fit(which) if fit else nccl.nccl_stack()
        rows = nccl.rows(stack, which)
        unseen = nccl.cross_validated_rows(which) if fit else []
    found = nccl.NcclComparison(
        rows=tuple(rows),
        median_error=nccl.median_error(rows),
        median_error_of_unseen=nccl.median_error(unseen) if unseen else None,
        topology=nccl.NODE,
        stack=nccl.stack_words(stack),
        fitted_by=nccl.COMMAND,
    )
    return Reproduction(found.rows, partial(texts.nccl_report, found), found)


def torchtitan_runs(*, fit: bool) -> Reproduction:
    """Return the estimates of torchtitan's FSDP2 on 8 and 128 H100, beside the published speed and memory."""
    runs = read_rows()
    every = [*with_progress((torchtitan.ready(run) for run in runs), "estimating the runs", len(runs))]
    clock = torchtitan.clock_of(every)
    rows = [torchtitan.row_of(*of, clock) for of in every]
    compared = [*torchtitan.pairs(rows)]
    told_by = {"clock": clock, "set_by": torchtitan.SET_BY, "fitted_by": torchtitan.COMMAND}
    told = {"rows": rows, "pairs": compared, **told_by, "assumptions": torchtitan.NOTES}
    report, write = partial(texts.torchtitan_report, rows, compared, clock), partial(torchtitan.write_clock, clock)
    return Reproduction(tuple(rows), report, told, write_fit=write if fit else None)


def kernel_figures(*, fit: bool) -> Reproduction:
    """Return the times of kernels by Emu's model, beside figures that others published of them."""
    write = None
    if fit:
        with late_notice("fitting the constants of products"):
            write = partial(write_fit, fit_products())
    rows = kernels.rows()
    sums = [*kernels.summaries(rows)]
    told = {"rows": rows, "errors": sums, "fitted_by": KERNELS_FIT, "assumptions": _KERNEL_NOTES}
    return Reproduction(tuple(rows), partial(texts.kernels_report, rows, sums, _KERNEL_NOTES), told, write_fit=write)


_ASKED: Mapping[str, Callable[..., Reproduction]] = {
    "measured": measured_runs,
    "nccl": nccl_times,
    "kernels": kernel_figures,
    "torchtitan": torchtitan_runs,
    "all": all_papers,
}
